"""Topics, dynamic settings, users, ACLs and producer ids, stored in a journal.

A journal is a file of frames (journal_file.py), each flushed before it takes effect. The body of a
frame is a map with a `kind` and the fields of that kind:

    kind             fields
    header           version (1), epoch, size: the first frame; epoch: how often the journal was
                     rewritten; size: its size when it took its name (8 bytes)
    topic            name, id (16 bytes), partitions, configs, replicas (with several brokers): a
                     topic was created, has grown or was configured; the last one counts
    topic_deleted    name, id: from now on the topic's directories are removed
    topic_gone       id: the directories are removed, and so are the offsets that groups committed
    broker_configs   configs: the dynamic settings of this broker, all of them
    broker_default_configs
                     configs: the dynamic settings of every broker, all of them
    client_metrics   name, configs: a subscription of clients' metrics, whole; none: it is removed
    group_configs    name, configs: the settings of a group, all of them; none: they are removed
    features         levels, epoch, updated: the finalised features; updated: by requests
    scram_credential user, mechanism (number), credential: salt, stored key, server key,
                     iterations; nil: the credential is removed
    acl              id (16 bytes), acl: the fields of Kafka's AccessControlEntryRecord in order
    acl_removed      id
    client_quota     entity, quotas: the quotas of an entity, all of them; none: they are removed.
                     entity: for each type its name, nil for the default
    producer_ids     next: lower ids may be in use
    changes          changes: several of these, which take effect together or not at all

A kill at any byte leaves a torn last frame, which is cut off and logged. An invalid frame with
valid frames after it is damage. A file that does not begin with the header is damaged as well,
since the header was flushed before any other frame: the broker reports the damage and changes
nothing. When most frames are outdated the journal is rewritten to another file, `<journal>.new`,
which is then renamed. For a large journal some of the current frames are encoded at each tick;
changes that are made meanwhile are appended to the old file and to the new content. The new content
may then contain a change twice. This is correct, since each change contains the whole new value.
The fsyncs of the new file are steps (`SyncSteps`). The old file is the journal until the rename.

The durable size of the journal is recorded in a file beside it (durable_size.py). A start refuses a
shorter journal, since it was cut, or replaced by an earlier copy.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, starmap
from typing import Any, TypeVar

from barnabas.broker.logs import journal_file
from barnabas.broker.logs.durable_size import DurableSize
from barnabas.broker.logs.journal_file import (
    FRAME,
    HEADER,
    VERSION,
    JournalError,
    JournalFile,
    Rewriting,
    check_torn,
    decode_frame,
    encode_frame,
)
from barnabas.broker.security.stored import Acl, ScramCredential
from barnabas.coordinator.internal_topics import INTERNAL_TOPICS, RETENTION_CONFIGS
from barnabas.storage.disk import (
    REPLACING_SUFFIX,
    Disk,
    SyncSteps,
    is_out_of_resources,
    run_at_once,
)

logger = logging.getLogger("barnabas.metadata")

RENAMED_CONFIGS = {
    "remote.copy.disable": "remote.log.copy.disable"
}  # the names of topic settings in earlier journals, and the present names
SMALLEST_REWRITE, REWRITE_FACTOR = 1000, 10


_Key = TypeVar("_Key")
_Value = TypeVar("_Value")
QuotaEntity = tuple[tuple[str, str | None], ...]
"""The entity of a quota (KIP-546): pairs of type and name, sorted by type; the name None is the
default of the type.
"""


@dataclass(slots=True)
class Topic:
    """A topic.

    configs: the settings of the topic itself, as text; all other settings have the broker's
    defaults. replicas: the node ids of each partition's replicas. Partitions without an entry are
    placed by a rule (brokers/cluster.py).
    """

    name: str
    topic_id: uuid.UUID
    partition_count: int
    configs: dict[str, str] = field(default_factory=dict)
    replicas: tuple[tuple[int, ...], ...] = ()

    @property
    def internal(self) -> bool:
        return self.name in INTERNAL_TOPICS


class ClusterMetadata:
    """All topics in the order of creation, the dynamic settings, and the next producer id.

    deletions: the names of the topics whose deletion has begun and is not finished, by topic id.
    coming: the topics whose creation has begun, by topic id; they are not visible yet, and a start
    after a kill finishes the creation. change_count: the number of changes in the journal so far;
    it only increases.

    Takes:  disk; path, the journal's path. The journal is created if it does not exist.
    Raises: JournalError.
    """

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk, self._path = disk, path
        self.topics: dict[str, Topic] = {}
        self._by_id: dict[uuid.UUID, Topic] = {}
        self.deletions: dict[uuid.UUID, str] = {}
        self.coming: dict[uuid.UUID, Topic] = {}
        self._gone: list[uuid.UUID] = []
        self.broker_configs: dict[str, str] = {}
        self.broker_default_configs: dict[str, str] = {}
        self.client_metrics: dict[str, dict[str, str]] = {}
        self.scram_credentials: dict[tuple[str, int], ScramCredential] = {}
        self.acls: dict[uuid.UUID, Acl] = {}
        self.client_quotas: dict[QuotaEntity, dict[str, float]] = {}
        self.group_configs: dict[str, dict[str, str]] = {}
        self.feature_levels: dict[str, int] = {}
        self.updated_features: dict[str, int] = {}
        self.features_epoch = -1
        self.next_producer_id = 0
        self._frames = 0
        self.rewriting: Rewriting | None = None
        self.run_steps: Callable[[SyncSteps], None] = run_at_once
        # the position of an incomplete change at the end of the file, until the change is cut off
        self._torn_at = -1
        self._epoch = 0  # how often the journal was rewritten
        self._first_size = 0  # size in bytes after the last rewriting
        self._file = self._open()
        self.change_count = self._frames

    # --- reading ---------------------------------------------------------------------------------

    def topic(self, name: str) -> Topic | None:
        return self.topics.get(name)

    def topic_by_id(self, topic_id: uuid.UUID) -> Topic | None:
        return self._by_id.get(topic_id)

    # --- changing --------------------------------------------------------------------------------

    def create_topic(
        self, name: str, topic_id: uuid.UUID, partition_count: int, configs: dict[str, str]
    ) -> Topic:
        """Store a new topic. Its name and id have to be unused."""
        topic = Topic(name, topic_id, partition_count, dict(configs))
        self.begin_topics([topic])
        self.end_creation(topic)
        return topic

    def begin_topics(self, topics: Sequence[Topic]) -> None:
        """Store new topics, with one flush. Their names and ids have to be unused. A topic is in
        `topics` only from `end_creation` on.
        """
        for topic in topics:
            assert topic.name not in self.topics and topic.topic_id not in self._by_id, (
                f"{topic.name} exists"
            )
        self._append(*map(_topic_frame, topics))
        self.coming.update((topic.topic_id, topic) for topic in topics)
        self._maybe_rewrite()

    def end_creation(self, topic: Topic) -> None:
        """Make the topic visible, now that all its logs exist."""
        del self.coming[topic.topic_id]
        self._take(topic)

    def adopt_topic(
        self,
        name: str,
        topic_id: uuid.UUID,
        partition_count: int,
        configs: dict[str, str] | None = None,
    ) -> Topic:
        """Store a topic that was found only in the data directory.

        Takes: configs, the settings that the topic had with the broker that wrote it; None if they
               are unknown. In that case retention deletes none of its data until its settings are
               changed.
        """
        if name in INTERNAL_TOPICS:
            logger.info(
                "taking over %s with %d partitions, which the data directory holds",
                name,
                partition_count,
            )
            return self.create_topic(
                name, topic_id, partition_count, {**(configs or {}), **RETENTION_CONFIGS[name]}
            )
        if configs is not None:
            logger.info(
                "taking over %s with %d partitions, which the data directory holds, and with the "
                "settings that Kafka's metadata log has (%s); "
                "for all others the broker's defaults hold",
                name,
                partition_count,
                ", ".join(f"{key}={value}" for key, value in configs.items()) or "none",
            )
            return self.create_topic(name, topic_id, partition_count, configs)
        logger.warning(
            "taking over %s with %d partitions, which the data directory holds; its settings are "
            "not known, so that nothing of it is deleted "
            "(retention.ms=-1) until you set cleanup.policy and retention.ms",
            name,
            partition_count,
        )
        return self.create_topic(name, topic_id, partition_count, {"retention.ms": "-1"})

    def delete_topics(self, names: Iterable[str]) -> list[uuid.UUID]:
        """Delete topics, with one flush. When the call returns, the deletion is durable.

        Gives:  the topics' ids, for `end_deletion`.
        """
        topics = [self.topics[name] for name in names]
        self._append(*(_deletion_frame(topic.topic_id, topic.name) for topic in topics))
        for topic in topics:
            self._drop(topic.name)
            self.deletions[topic.topic_id] = topic.name
        self._maybe_rewrite()
        return [topic.topic_id for topic in topics]

    def end_deletion(self, topic_id: uuid.UUID) -> None:
        """Record that the deletion of a topic is complete. This function may be called twice.

        The record is written with the next change. Without it the deletion is repeated, which does
        no harm. As a separate unflushed frame it could be lost in a power loss that keeps the next
        frame, and the journal would look damaged.
        """
        if self.deletions.pop(topic_id, None) is not None:
            self._gone.append(topic_id)

    def add_partitions(self, name: str, new_count: int) -> None:
        self.grow_topics({name: new_count})

    def grow_topics(self, counts: Mapping[str, int]) -> list[Topic]:
        """Store new partition counts of topics, with one flush."""
        topics = [self.topics[name] for name in counts]
        for topic, new_count in zip(topics, counts.values(), strict=True):
            assert new_count > topic.partition_count, "a topic grows"
        self._append(
            *(_topic_frame(replace(topic, partition_count=counts[topic.name])) for topic in topics)
        )
        for topic in topics:
            topic.partition_count = counts[topic.name]
        self._maybe_rewrite()
        return topics

    def set_topic_configs(self, name: str, configs: dict[str, str]) -> None:
        topic = self.topics[name]
        self._change(topic, replace(topic, configs=dict(configs)))

    def set_topic_replicas(self, name: str, replicas: tuple[tuple[int, ...], ...]) -> None:
        topic = self.topics[name]
        self._change(topic, replace(topic, replicas=replicas))

    def set_broker_configs(self, configs: dict[str, str]) -> None:
        """Store all dynamic settings of this broker."""
        self._append({"kind": "broker_configs", "configs": configs})
        self.broker_configs = dict(configs)
        self._maybe_rewrite()

    def set_broker_default_configs(self, configs: dict[str, str]) -> None:
        """Store all dynamic settings for all brokers."""
        self._append({"kind": "broker_default_configs", "configs": configs})
        self.broker_default_configs = dict(configs)
        self._maybe_rewrite()

    def set_client_metrics(self, name: str, configs: dict[str, str]) -> None:
        """Store a subscription. Without configs the subscription is deleted."""
        self._append(_client_metrics_frame(name, configs))
        _store(self.client_metrics, name, dict(configs))
        self._maybe_rewrite()

    def set_scram_credentials(
        self, changes: Mapping[tuple[str, int], ScramCredential | None]
    ) -> None:
        """Store credentials by (user, number of the mechanism), with one flush. The value None
        deletes a credential.
        """
        self._append(*(_scram_frame(key, credential) for key, credential in changes.items()))
        for key, credential in changes.items():
            _store(self.scram_credentials, key, credential)
        self._maybe_rewrite()

    def add_acls(self, acls: Mapping[uuid.UUID, Acl]) -> None:
        """Store ACLs by id, with one flush."""
        self._append(*(_acl_frame(acl_id, acl) for acl_id, acl in acls.items()))
        self.acls.update(acls)
        self._maybe_rewrite()

    def remove_acls(self, ids: Sequence[uuid.UUID]) -> None:
        """Delete ACLs, with one flush."""
        self._append(*({"kind": "acl_removed", "id": acl_id.bytes} for acl_id in ids))
        for acl_id in ids:
            del self.acls[acl_id]
        self._maybe_rewrite()

    def set_client_quotas(self, changes: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        """Store all quotas of entities, with one flush. An empty mapping deletes an entity's
        quotas.
        """
        self._append(*(_client_quota_frame(entity, quotas) for entity, quotas in changes.items()))
        for entity, quotas in changes.items():
            _store(self.client_quotas, entity, dict(quotas))
        self._maybe_rewrite()

    def set_group_configs(self, name: str, configs: dict[str, str]) -> None:
        """Store all settings of a group. An empty mapping deletes them."""
        self._append(_group_configs_frame(name, configs))
        _store(self.group_configs, name, dict(configs))
        self._maybe_rewrite()

    def set_features(self, levels: Mapping[str, int], updated: Mapping[str, int]) -> None:
        """Store the levels of all features under the next epoch. Takes: updated, the levels that
        requests set.
        """
        epoch = self.features_epoch + 1
        self._append(_features_frame(levels, epoch, updated))
        self.feature_levels, self.features_epoch = dict(levels), epoch
        self.updated_features = dict(updated)
        self._maybe_rewrite()

    def set_next_producer_id(self, next_producer_id: int) -> None:
        """Store the next producer id. When the call returns, it is durable, so all lower ids may be
        assigned.
        """
        self._append({"kind": "producer_ids", "next": next_producer_id})
        self.next_producer_id = next_producer_id
        self._maybe_rewrite()

    @property
    def is_torn(self) -> bool:
        """Whether the journal ends in an incomplete change, which may have contained topics."""
        return self._torn_at >= 0

    def cut_torn(self) -> None:
        """Cut off an incomplete change. If the process ends before this call, the next start finds
        the change again.
        """
        if self._torn_at >= 0:
            self._file.truncate(self._torn_at)
            self._torn_at = -1

    def close(self) -> None:
        """Close the journal; a rewriting that has not ended is dropped."""
        self.cut_torn()
        if self.rewriting is not None:
            self.rewriting = None
            self._disk.unlink(self._path + REPLACING_SUFFIX)
        if self._gone:
            self._append()
        self._file.close()
        self._durable_size.close()

    # --- the journal -----------------------------------------------------------------------------

    def _change(self, topic: Topic, changed: Topic) -> None:
        """Store a topic's new settings and replicas, then change the existing object."""
        self._append(_topic_frame(changed))
        topic.partition_count, topic.configs = changed.partition_count, changed.configs
        topic.replicas = changed.replicas
        self._maybe_rewrite()

    def _take(self, topic: Topic) -> None:
        self.topics[topic.name] = self._by_id[topic.topic_id] = topic

    def _drop(self, name: str) -> None:
        """Remove a topic from memory."""
        topic = self.topics.pop(name, None)
        if topic is not None:
            del self._by_id[topic.topic_id]

    def _append(self, *changes: dict[str, Any]) -> None:
        """Write the changes as one frame, together with the deletions that were completed since the
        previous frame. A power loss keeps or loses the whole frame. Raises: NotWrittenError if
        there is no space for the frame.
        """
        bodies = [
            *({"kind": "topic_gone", "id": topic_id.bytes} for topic_id in self._gone),
            *changes,
        ]
        if not bodies:
            return
        self.cut_torn()
        frame = encode_frame(
            bodies[0] if len(bodies) == 1 else {"kind": "changes", "changes": bodies}
        )
        self._file.append(frame)
        if self.rewriting is not None and not self.rewriting.try_add(frame, len(bodies)):
            # there is no space for the new file: the rewriting is dropped, and the old file has the
            # change
            self.rewriting = None
        self._note_size()
        self._gone.clear()
        self._frames += len(bodies)
        self.change_count += len(bodies)

    def _note_size(self) -> None:
        """Record that all of the journal is durable."""
        self._durable_size.note(self._epoch, self._file.size)

    def _check_size(self, good: int) -> None:
        """Compare the end of the valid frames with the recorded durable size. Raises:
        JournalError.
        """
        own = self._epoch, self._first_size
        epoch, size = max(self._durable_size.noted or own, own)
        if (self._epoch, good) >= (epoch, size):
            return
        what = (
            f"has {good} bytes of whole changes, and had {size}"
            if epoch == self._epoch
            else "is an earlier version, from before it was rewritten"
        )
        raise JournalError(
            f"{self._path} {what}: it was truncated, or replaced by a copy, and later changes "
            "of topics, settings, users, ACLs or quotas are missing. Restore the file from a "
            f"copy; or remove {self._durable_size.path}, and the broker starts with what the "
            "file has: topics that only the missing changes created are taken over from their "
            "directories without settings, and all else in these changes is lost"
        )

    def _open(self) -> JournalFile:
        """Open and replay the journal; a missing one is created. Raises: JournalError, OSError."""
        self._durable_size = DurableSize(self._disk, self._path)
        if self._durable_size.noted is not None and not self._disk.exists(self._path):
            logger.error(
                "%s is gone: the settings, users, ACLs and quotas in it are lost; topics are taken "
                "over from their directories",
                self._path,
            )
            self._durable_size.forget()
        file = JournalFile(self._disk, self._path)
        data = file.content()
        good = self._read(data)
        self._check_size(good)
        if good < len(data):
            logger.warning(
                "%s: cutting %d bytes of a change that was not finished",
                self._path,
                len(data) - good,
            )
            if good:
                self._torn_at = good
            else:
                file.truncate(good)
        if good == 0:
            self._frames = 1
        # Flush again, since a kill may have come between a write and its flush, or between the
        # creation of the file and the flush of its name.
        file.append(b"" if good else HEADER)
        self._durable_size.note(self._epoch, good or file.size)
        return file

    def _read(self, data: bytes) -> int:
        """Read every frame. Gives: the position after the last valid frame."""
        position = 0
        while position < len(data):
            body = decode_frame(data, position)
            if body is None:
                check_torn(self._path, data, position)
                break
            if position == 0 and body.get("kind") != "header":
                raise JournalError(
                    f"{self._path} has no journal's header: restore the file from a copy, or "
                    "move it away"
                )
            self._replay(body, position)
            position += FRAME.size + FRAME.unpack_from(data, position)[0]
            self._frames += 1
        return position

    def _replay(self, body: dict[str, Any], position: int) -> None:
        """Apply one change of the journal. The function is a list of cases, one for each kind. The
        most frequent kinds, those of topics, are first.
        """
        try:
            kind = body["kind"]
            if kind == "topic":
                configs = {
                    RENAMED_CONFIGS.get(key, key): text for key, text in body["configs"].items()
                }
                replicas = tuple(tuple(of_one) for of_one in body.get("replicas", ()))
                topic = Topic(
                    body["name"], uuid.UUID(bytes=body["id"]), body["partitions"], configs, replicas
                )
                self._replay_topic(topic)
            elif kind == "topic_deleted":
                self._drop(body["name"])
                if "id" in body:
                    self.deletions[uuid.UUID(bytes=body["id"])] = body["name"]
            elif kind == "changes":
                for change in body["changes"]:
                    self._replay(change, position)
                self._frames += len(body["changes"]) - 1
            elif kind == "topic_gone":
                self.deletions.pop(uuid.UUID(bytes=body["id"]), None)
            elif kind == "header":
                if body["version"] != VERSION:
                    raise JournalError(
                        f"{self._path} is of version {body['version']}, this broker reads "
                        f"{VERSION}: use the release that wrote it"
                    )
                self._epoch = body.get("epoch", 0)
                self._first_size = int.from_bytes(body.get("size", b""))
            elif not _replay_setting(self, kind, body):
                raise JournalError(
                    f"{self._path} has a change of the unknown kind {kind!r} at byte "
                    f"{position}: use a later release"
                )
        except (KeyError, TypeError, ValueError) as error:
            raise JournalError(
                f"{self._path} has a change at byte {position} that cannot be read: {error!r}"
            ) from error

    def _replay_topic(self, topic: Topic) -> None:
        """Apply the creation or a change of a topic. A topic with the same name and another id
        replaces the earlier one.
        """
        existing = self.topics.get(topic.name)
        if existing is not None and existing.topic_id == topic.topic_id:
            existing.partition_count, existing.configs = topic.partition_count, topic.configs
            existing.replicas = topic.replicas
            return
        self._drop(topic.name)
        self._take(topic)

    def _maybe_rewrite(self) -> None:
        """Rewrite the journal if at most a tenth of its frames are still current: at once, or in
        slices if there are many current frames.
        """
        living = (
            len(self.topics)
            + len(self.coming)
            + len(self.deletions)
            + len(self.client_metrics)
            + len(self.scram_credentials)
            + len(self.acls)
            + len(self.client_quotas)
            + len(self.group_configs)
            # the header, both settings of brokers, the features, the producer ids
            + 5
        )
        if self.rewriting is not None or self._frames < max(
            SMALLEST_REWRITE, REWRITE_FACTOR * living
        ):
            return
        self.rewriting = Rewriting(_living_frames(self), self._epoch + 1)
        if living <= journal_file.ENCODED_AT_ONCE:
            self._gone.clear()
            while self.is_rewriting:
                self.on_tick()

    @property
    def is_rewriting(self) -> bool:
        """Whether `on_tick` has frames to encode."""
        return self.rewriting is not None and not self.rewriting.is_encoded

    def on_tick(self) -> None:
        """Encode the next part of a journal that is being rewritten."""
        rewriting = self.rewriting
        if rewriting is not None and not rewriting.is_encoded and rewriting.encode_some():
            self.run_steps(self._replace_file(rewriting))

    def _replace_file(self, rewriting: Rewriting) -> SyncSteps:
        """Replace the journal by the new content, in steps."""
        path = self._path + REPLACING_SUFFIX
        try:
            yield from rewriting.write(self._disk, path)
        except OSError as error:
            if not is_out_of_resources(error):
                raise
            logger.warning("%s waits for space to be written again: %s", self._path, error)
            self.rewriting = None
        if self.rewriting is not rewriting:
            self._disk.unlink(path)
            return
        self.rewriting, self._frames = None, rewriting.frame_count
        self._epoch = rewriting.epoch
        yield from self._file.replace_by(path)
        self._note_size()  # only now, since a power loss could undo the rename until it was durable


def _store(table: dict[_Key, _Value], key: _Key, value: _Value | None) -> None:
    """Store a value, or remove the key if the value is None or empty."""
    if value:
        table[key] = value
    else:
        table.pop(key, None)


def _replay_setting(metadata: ClusterMetadata, kind: str, body: dict[str, Any]) -> bool:
    """Apply a change that is not about topics. Gives: False for an unknown kind."""
    if kind == "broker_configs":
        metadata.broker_configs = dict(body["configs"])
    elif kind == "broker_default_configs":
        metadata.broker_default_configs = dict(body["configs"])
    elif kind == "client_metrics":
        _store(metadata.client_metrics, body["name"], dict(body["configs"]))
    elif kind == "group_configs":
        _store(metadata.group_configs, body["name"], dict(body["configs"]))
    elif kind == "features":
        metadata.feature_levels, metadata.features_epoch = dict(body["levels"]), body["epoch"]
        metadata.updated_features = dict(body.get("updated", ()))
    elif kind == "scram_credential":
        kept = body["credential"]
        _store(
            metadata.scram_credentials,
            (body["user"], body["mechanism"]),
            None if kept is None else ScramCredential(*kept),
        )
    elif kind == "acl":
        metadata.acls[uuid.UUID(bytes=body["id"])] = Acl(*body["acl"])
    elif kind == "acl_removed":
        metadata.acls.pop(uuid.UUID(bytes=body["id"]), None)
    elif kind == "client_quota":
        _store(metadata.client_quotas, tuple(sorted(body["entity"].items())), dict(body["quotas"]))
    elif kind == "producer_ids":
        metadata.next_producer_id = max(metadata.next_producer_id, body["next"])
    else:
        return False
    return True


def _living_frames(metadata: ClusterMetadata) -> Iterator[dict[str, Any]]:
    """Yields the frames of the whole state. A frame is made when it is yielded, so it may already
    contain a change that was made after the call.
    """
    return chain(
        # deletions are first, since there may already be a new topic with the name of a deleted one
        starmap(_deletion_frame, list(metadata.deletions.items())),
        map(_topic_frame, [*metadata.topics.values(), *metadata.coming.values()]),
        [{"kind": "broker_configs", "configs": metadata.broker_configs}],
        # this frame is left out if it is empty, since earlier versions do not know its kind
        [{"kind": "broker_default_configs", "configs": metadata.broker_default_configs}]
        if metadata.broker_default_configs
        else (),
        starmap(_client_metrics_frame, list(metadata.client_metrics.items())),
        starmap(_scram_frame, list(metadata.scram_credentials.items())),
        starmap(_acl_frame, list(metadata.acls.items())),
        starmap(_client_quota_frame, list(metadata.client_quotas.items())),
        starmap(_group_configs_frame, list(metadata.group_configs.items())),
        [
            _features_frame(
                metadata.feature_levels, metadata.features_epoch, metadata.updated_features
            )
        ]
        if metadata.feature_levels
        else (),
        [{"kind": "producer_ids", "next": metadata.next_producer_id}],
    )


def _topic_frame(topic: Topic) -> dict[str, Any]:
    """The frame of a topic's creation or change; replicas only if it has some, since earlier
    versions do not know them.
    """
    frame = {
        "kind": "topic",
        "name": topic.name,
        "id": topic.topic_id.bytes,
        "partitions": topic.partition_count,
        "configs": topic.configs,
    }
    return {**frame, "replicas": topic.replicas} if topic.replicas else frame


def _group_configs_frame(name: str, configs: dict[str, str]) -> dict[str, Any]:
    return {"kind": "group_configs", "name": name, "configs": configs}


def _client_metrics_frame(name: str, configs: dict[str, str]) -> dict[str, Any]:
    return {"kind": "client_metrics", "name": name, "configs": configs}


def _scram_frame(key: tuple[str, int], credential: ScramCredential | None) -> dict[str, Any]:
    """The frame of a user's credential; None deletes it."""
    user, mechanism = key
    kept = None if credential is None else list(credential)
    return {
        "kind": "scram_credential", "user": user, "mechanism": mechanism, "credential": kept,
    }  # fmt: skip


def _acl_frame(acl_id: uuid.UUID, acl: Acl) -> dict[str, Any]:
    return {"kind": "acl", "id": acl_id.bytes, "acl": list(acl)}


def _client_quota_frame(entity: QuotaEntity, quotas: Mapping[str, float]) -> dict[str, Any]:
    return {"kind": "client_quota", "entity": dict(entity), "quotas": dict(quotas)}


def _features_frame(
    levels: Mapping[str, int], epoch: int, updated: Mapping[str, int]
) -> dict[str, Any]:
    return {
        "kind": "features",
        "levels": dict(levels),
        "epoch": epoch,
        "updated": dict(updated),
    }


def _deletion_frame(topic_id: uuid.UUID, name: str) -> dict[str, Any]:
    return {"kind": "topic_deleted", "name": name, "id": topic_id.bytes}


def changes_in(data: bytes) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Yields (position, end, body) of the complete frames at the start of a journal, for tools."""
    position = 0
    while (body := decode_frame(data, position)) is not None:
        end = position + FRAME.size + FRAME.unpack_from(data, position)[0]
        yield position, end, body
        position = end


def topics_in(data: bytes) -> dict[str, Topic]:
    """The topics that exist at the end of a journal, by name. The journal is only read."""
    topics: dict[str, Topic] = {}
    position = 0
    while (body := decode_frame(data, position)) is not None:
        for change in body["changes"] if body["kind"] == "changes" else (body,):
            if change["kind"] == "topic":
                topics[change["name"]] = Topic(
                    change["name"], uuid.UUID(bytes=change["id"]), change["partitions"]
                )
            elif change["kind"] == "topic_deleted":
                topics.pop(change["name"], None)
        position += FRAME.size + FRAME.unpack_from(data, position)[0]
    return topics

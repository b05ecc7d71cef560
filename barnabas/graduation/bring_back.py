"""The return of a directory that was handed over, with the changes made under Kafka.

    in Kafka's metadata                    here
    topics created, with new partitions    go into the journal
    topics deleted, with a record of it    go into the journal; the next start removes their data
    topics missing without a record        an error: the directory does not come back
    settings of topics, brokers, groups,   go into the journal, if they were changed under Kafka and
    users, ACLs, quotas                    are known here
    defaults of topics' settings, which    go into the journal, unless the settings of the next
    the hand-over took from the settings   start have them
    of the broker's start
    producer ids                           are not assigned again
    leader epochs                          the next start begins a higher one

Kafka's metadata are in its metadata log, or, if its first start was interrupted before it began
that log, in `bootstrap.checkpoint`. No topic is deleted because files are missing, empty or torn: a
topic counts as deleted only if a record says so, or if a complete checkpoint lacks a topic that was
handed over. Lost settings could delete data as well, if an older retention applied again. So, if
Kafka has opened the logs, its metadata are required; and settings of Kafka's properties file that
decide about deletion have to be among the settings of the next start (`--config`).

The steps are in an order in which a kill leaves the directory either Kafka's or ours:

    step                                                  after a kill before the next one
    the journal is rewritten and renamed                  Kafka's; all steps are repeated
    our files about logs that Kafka has changed are       Kafka's
    removed
    bootstrap.checkpoint gets a name of ours              Kafka's, if it has metadata; else ours
    __cluster_metadata-0 is removed                       ours
    the mark and the old bootstrap.checkpoint are removed
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from barnabas.broker.logs.durable_size import SIZE_SUFFIX
from barnabas.broker.logs.metadata import ClusterMetadata, Topic
from barnabas.broker.settings.client_metrics import CLIENT_METRICS_SETTINGS
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.deletion import (
    DELETING_BROKER_SETTINGS,
    DELETING_TOPIC_SETTINGS,
    StartNote,
    deleting,
    is_topic_default,
    listed,
    not_decided,
)
from barnabas.broker.settings.group_configs import GROUP_SETTINGS
from barnabas.broker.settings.properties import read_properties
from barnabas.broker.settings.rows_broker import BROKER_SETTINGS
from barnabas.broker.settings.rows_topic import TOPIC_SETTINGS
from barnabas.broker.settings.rows_without_effect import ALL_BROKER_SETTINGS
from barnabas.broker.settings.setting import ConfigError, Setting
from barnabas.broker.settings.topic_config import broker_default
from barnabas.coordinator.internal_topics import INTERNAL_TOPICS, RETENTION_CONFIGS
from barnabas.graduation.bootstrap import (
    ClusterImage,
    KafkaPartition,
    read_bootstrap,
)
from barnabas.graduation.kafka_directory.kafka_metadata import (
    OF_CLIENT_METRICS,
    OF_GROUP,
    latest_checkpoint,
    torn_segment,
    usable_configs,
    values_of_log,
)
from barnabas.graduation.kafka_directory.kafka_records import UnreadableMetadata
from barnabas.graduation.server_properties import INTER_BROKER_USER
from barnabas.graduation.steps import PROPERTIES_NAME, discard_kafka_metadata
from barnabas.graduation.survey import GraduationError
from barnabas.protocol.errors import KafkaError
from barnabas.storage.directory.bootstrap_checkpoint import is_what_kafka_was_given
from barnabas.storage.directory.graduated import (
    BOOTSTRAP_NAME,
    GIVEN_NAME,
    KAFKA_METADATA_NAME,
    MARK_NAME,
    is_graduated,
)
from barnabas.storage.disk import Disk
from barnabas.storage.files.checkpoints import (
    CLEAN_SHUTDOWN,
    CLEAN_SHUTDOWN_NAME,
    META_PROPERTIES_NAME,
    METADATA_JOURNAL_NAME,
    PARTITION_METADATA_NAME,
    CorruptCheckpoint,
    decode_partition_metadata,
    decode_properties,
)
from barnabas.storage.files.data_files import kind_of
from barnabas.storage.files.leader_epochs import HighestEpoch

Key = TypeVar("Key")
Value = TypeVar("Value")
_PARTITION = re.compile(r"([a-zA-Z0-9._-]+)-([0-9]+)")
_SHOWN = 10


@dataclass
class BringBackReport:
    """The changes made when a directory came back from Kafka: names of topics, and counts.

    kept: the defaults of topics' settings that the journal got, since the settings of the next
    start do not have them. differing: texts about such settings with another value in the next
    start. refused: the settings that Barnabas does not know. was_clean: whether Kafka was stopped
    cleanly; if it was not, the next start recovers the logs. has_started: whether Kafka has begun
    its metadata log; if it has not, the directory is unchanged.
    """

    made: list[str] = field(default_factory=list)
    grown: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    configured: list[str] = field(default_factory=list)
    users: int = 0
    acls: int = 0
    quotas: int = 0
    kept: dict[str, str] = field(default_factory=dict)
    differing: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    was_clean: bool = True
    has_started: bool = True


def bring_back(
    disk: Disk,
    data_dir: str,
    config: BrokerConfig,
    sync: Callable[[str], None],
    *,
    is_dry_run: bool = False,
) -> BringBackReport:
    """Bring a directory back from Kafka. When the call returns, the directory is ours. The caller
    holds the directory's lock. This is one long function, since the order of its steps is what a
    kill relies on.

    Takes:  config, with the settings that the broker will be started with; sync, a function that
            makes all files of a directory and their names durable.
    Raises: GraduationError if the directory is not Kafka's, a partition is incomplete in it, or
            settings are missing that decide about deletion; OSError.
    """
    if not is_graduated(disk, data_dir):
        raise GraduationError(
            f"{data_dir} was not handed over by `barnabas graduate`: to take over a directory "
            "of Apache Kafka, start the broker on it"
        )
    node_id = _node_id(disk, data_dir)
    given = _given(disk, data_dir)
    image = _image_of_log(disk, data_dir)
    has_started = image.is_begun
    _check_log(disk, data_dir, is_begun=has_started)
    if not has_started:
        image = _image_of_bootstrap(data_dir, given)
    _check_partitions(disk, data_dir, image, node_id)
    path = f"{data_dir}/{METADATA_JOURNAL_NAME}"
    # the changes are merged into a copy: an error leaves the journal as it is
    draft_path = f"{path}.draft"
    disk.unlink(draft_path + SIZE_SUFFIX)  # left by an interrupted call of this function
    disk.write_atomic(draft_path, _read_journal(disk, path), sync=False)
    draft = ClusterMetadata(disk, draft_path)
    try:
        report = _Merge(draft, image, given, node_id, config).run()
        _check_start_settings(disk, data_dir, draft, config)
    except GraduationError:
        disk.unlink(draft_path)
        raise
    finally:
        draft.close()
        disk.unlink(draft_path + SIZE_SUFFIX)
    report.was_clean = disk.exists(f"{data_dir}/{CLEAN_SHUTDOWN_NAME}")
    report.has_started = has_started
    if is_dry_run:
        disk.unlink(draft_path)
        return report
    disk.rename(draft_path, path)
    disk.fsync_dir(data_dir)
    _forget_logs(disk, data_dir, image)
    sync(data_dir)
    if disk.exists(f"{data_dir}/{BOOTSTRAP_NAME}"):
        # kept under another name until the end: after a kill, this function is called again and
        # reads the file
        disk.rename(f"{data_dir}/{BOOTSTRAP_NAME}", f"{data_dir}/{GIVEN_NAME}")
        disk.fsync_dir(data_dir)
    discard_kafka_metadata(disk, data_dir)
    disk.unlink(f"{data_dir}/{GIVEN_NAME}")
    disk.unlink(f"{data_dir}/{MARK_NAME}")
    disk.fsync_dir(data_dir)
    return report


def _node_id(disk: Disk, data_dir: str) -> int:
    """The node id in meta.properties. Raises: GraduationError."""
    path = f"{data_dir}/{META_PROPERTIES_NAME}"
    try:
        return int(decode_properties(disk.read(path))["node.id"])
    except (FileNotFoundError, CorruptCheckpoint, KeyError, ValueError) as error:
        raise GraduationError(f"{path} cannot be read ({error}): restore it from a copy") from error


def _image_of_log(disk: Disk, data_dir: str) -> ClusterImage:
    """The metadata of Kafka's metadata log; empty if Kafka has not written it yet."""
    directory = f"{data_dir}/{KAFKA_METADATA_NAME}"
    image = ClusterImage()
    if not disk.is_dir(directory):
        return image
    image.is_of_checkpoint = bool(latest_checkpoint(disk.list(directory)))
    try:
        image.take(values_of_log(disk, directory))
    except (UnreadableMetadata, KafkaError, KeyError) as error:
        raise GraduationError(
            f"Kafka's metadata cannot be read ({error}): start Kafka and stop it, or restore "
            f"{directory} from a copy"
        ) from error
    return image


def _check_log(disk: Disk, data_dir: str, *, is_begun: bool) -> None:
    """Raise GraduationError if a part of the metadata log is lost, as the clean-shutdown file
    shows.

    Kafka begins its metadata log, and then opens the other logs and removes our clean-shutdown
    file. At a clean stop Kafka writes a clean-shutdown file of its own. After that no file is torn.
    """
    directory = f"{data_dir}/{KAFKA_METADATA_NAME}"
    try:
        mark = disk.read(f"{data_dir}/{CLEAN_SHUTDOWN_NAME}")
    except FileNotFoundError:
        mark = b""
    if not is_begun and mark != CLEAN_SHUTDOWN:
        raise GraduationError(
            f"Kafka has run in {data_dir}, and {directory} lacks what it wrote there: "
            "restore it from a copy"
        )
    torn = torn_segment(disk, directory) if is_begun and mark else ""
    if torn:
        raise GraduationError(
            f"Kafka was stopped cleanly, and {torn} is cut off in the middle of a batch: restore "
            "it from a copy"
        )


def _read_journal(disk: Disk, path: str) -> bytes:
    """The content of our metadata journal, as the hand-over left it. Raises: GraduationError if it
    is missing.
    """
    try:
        return disk.read(path)
    except FileNotFoundError as error:
        raise GraduationError(
            f"{path} is missing, which the broker wrote before the hand-over: restore it from a "
            "copy"
        ) from error


def _image_of_bootstrap(data_dir: str, given: ClusterImage | None) -> ClusterImage:
    """The metadata with which Kafka would begin its metadata log."""
    if given is None:
        raise GraduationError(
            f"{data_dir}/{KAFKA_METADATA_NAME} has no complete metadata of Kafka, and "
            f"{BOOTSTRAP_NAME} is incomplete, or not the one that `barnabas graduate` wrote: "
            "restore one of the two from a copy"
        )
    return given


def _given(disk: Disk, data_dir: str) -> ClusterImage | None:
    """The metadata that the hand-over gave to Kafka; None if the file is missing, torn, or not the
    file that the hand-over wrote.
    """
    for name in (GIVEN_NAME, BOOTSTRAP_NAME):
        path = f"{data_dir}/{name}"
        try:
            if is_what_kafka_was_given(disk, f"{data_dir}/{MARK_NAME}", disk.read(path)):
                return read_bootstrap(disk, path)
        except (UnreadableMetadata, KafkaError, FileNotFoundError):
            continue
    return None


def _check_partitions(disk: Disk, data_dir: str, image: ClusterImage, node_id: int) -> None:
    """Check that this directory has each partition, in sync. Otherwise some records of the
    partition are only on other brokers.
    """
    problems = []
    for name, topic_id in sorted(image.topic_ids.items()):
        for index, partition in sorted(image.partitions.get(topic_id, {}).items()):
            if not partition.is_whole_on(node_id):
                problems.append(_why_not_whole(f"{name}-{index}", partition, node_id))
            elif not disk.is_dir(f"{data_dir}/{name}-{index}"):
                problems.append(f"{name}-{index} has no directory")
            elif _topic_id(disk, f"{data_dir}/{name}-{index}") not in (topic_id, None):
                problems.append(f"the directory {name}-{index} belongs to another topic")
    if problems:
        more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        raise GraduationError(
            f"{'; '.join(problems[:_SHOWN])}{more}. Start Kafka, move all partitions to broker "
            f"{node_id} (kafka-reassign-partitions.sh), and stop it"
        )


def _why_not_whole(name: str, partition: KafkaPartition, node_id: int) -> str:
    """The problem with a partition of which this node has no complete copy."""
    if partition.isr:
        return f"{name} is in sync on {partition.isr}, not on {node_id}"
    able = partition.eligible or partition.last_known
    return f"{name} is in sync on no broker, and may be led by {able or 'none'}, not by {node_id}"


def _topic_id(disk: Disk, directory: str) -> uuid.UUID | None:
    """The topic id stored in a partition's directory; None if the file is missing or torn.

    The next start writes a file that is missing or torn.
    """
    try:
        return decode_partition_metadata(disk.read(f"{directory}/{PARTITION_METADATA_NAME}"))
    except (FileNotFoundError, CorruptCheckpoint):
        return None


# --- the journal --------------------------------------------------------------------------------


class _Merge:
    """Merges the changes made under Kafka into the journal.

    draft: the journal. now: Kafka's metadata. given: the metadata that the hand-over gave to Kafka,
    or None if they are unknown. With `given`, changes made only for Kafka are not merged (a value
    limited to Kafka's bounds, users of a file). Without it, all of Kafka's metadata are merged.
    """

    def __init__(
        self,
        draft: ClusterMetadata,
        now: ClusterImage,
        given: ClusterImage | None,
        node_id: int,
        config: BrokerConfig,
    ) -> None:
        self.draft, self.now, self.given, self.node_id = draft, now, given, node_id
        self.config = config
        self.report = BringBackReport()
        self._refused: dict[str, None] = {}

    def run(self) -> BringBackReport:
        """Merge everything. Gives: the changes. Raises: GraduationError."""
        self._take_topics()
        self._take_settings()
        self._take_users()
        if self.now.next_producer_id > self.draft.next_producer_id:
            self.draft.set_next_producer_id(self.now.next_producer_id)
        self.report.refused = list(self._refused)
        return self.report

    def _take_topics(self) -> None:
        """Delete, create, grow and configure topics, so that the draft has the same topics as
        Kafka.
        """
        draft, now, report = self.draft, self.now, self.report
        gone = [
            topic
            for topic in draft.topics.values()
            if now.topic_ids.get(topic.name) != topic.topic_id
        ]
        self._check_deleted(gone)
        report.deleted = sorted(topic.name for topic in gone)
        if report.deleted:
            draft.delete_topics(report.deleted)
        for name, topic_id in sorted(now.topic_ids.items()):
            count = len(now.partitions.get(topic_id, {}))
            configs = self._topic_configs(name, topic_id)
            topic = draft.topic(name)
            if topic is None:
                draft.create_topic(name, topic_id, count, configs)
                report.made.append(name)
                continue
            if count > topic.partition_count:
                draft.add_partitions(name, count)
                report.grown.append(name)
            if configs != topic.configs:
                draft.set_topic_configs(name, configs)
                report.configured.append(name)
            if topic.replicas:
                draft.set_topic_replicas(name, ())

    def _check_deleted(self, topics: list[Topic]) -> None:
        """Raise GraduationError if topics are missing without having been deleted under Kafka,
        since metadata records were lost.

        A checkpoint does not record earlier deletions, but it is complete. So a topic that was
        handed over and is not in the checkpoint was deleted.
        """
        now = self.now
        given = set() if self.given is None else set(self.given.topic_ids.values())
        deleted = now.removed | (given if now.is_of_checkpoint else set())
        lost = sorted(topic.name for topic in topics if topic.topic_id not in deleted)
        if lost:
            more = f" and {len(lost) - _SHOWN} more" if len(lost) > _SHOWN else ""
            raise GraduationError(
                f"Kafka's metadata does not have the topics {', '.join(lost[:_SHOWN])}{more}, and "
                f"no record says that they were deleted: restore {KAFKA_METADATA_NAME}, or "
                f"{BOOTSTRAP_NAME} as `barnabas graduate` wrote it, from a copy"
            )

    def _topic_configs(self, name: str, topic_id: uuid.UUID) -> dict[str, str]:
        """The settings of a topic, including the settings that `graduate --set` gave it."""
        now = self._usable(
            self.now.topic_configs(name, topic_id) or {}, TOPIC_SETTINGS, f"the topic {name}"
        )
        topic = self.draft.topic(name)
        if topic is None:
            ours: dict[str, str] = {}
        else:
            given = None if self.given is None else self.given.topic_configs(name, topic_id)
            ours = merged(topic.configs, given, now)
        configs = {**now, **ours}
        if name in INTERNAL_TOPICS:
            configs |= RETENTION_CONFIGS[name]
        return configs

    def _usable(
        self, configs: Mapping[str, str], settings: Mapping[str, Setting[Any]], whose: str
    ) -> dict[str, str]:
        """The settings that Barnabas knows. Errors about the other settings are added to the
        report. Raises: GraduationError if one of them decides about deletion.
        """
        usable, wrong = usable_configs(configs, settings)
        self._refused.update(dict.fromkeys(wrong))
        deleting = DELETING_TOPIC_SETTINGS | DELETING_BROKER_SETTINGS
        lost = {name: configs[name] for name in (configs.keys() - usable.keys()) & deleting}
        if lost:
            raise GraduationError(
                f"{whose} has {listed(lost)}, which decides what is deleted and is not possible "
                f"here ({'; '.join(wrong)}): start Kafka, change it there, and stop Kafka"
            )
        return usable

    def _kept_defaults(self, now: Mapping[str, str], every: Mapping[str, str]) -> dict[str, str]:
        """The defaults of topics' settings that apply under Kafka and would not apply after the
        next start.

        The hand-over gave them to Kafka from the settings of the broker's start. If the settings of
        the next start have them, they decide, and the report says if they differ.
        """
        kept = {}
        for setting in TOPIC_SETTINGS.values():
            for name in setting.synonyms:
                if name not in now or name in every:
                    continue
                value, decided_by = broker_default(self.config, setting)
                if BROKER_SETTINGS[name].parse(now[name]) == value:
                    continue
                if decided_by is None:
                    kept[name] = now[name]
                elif setting.deletes:
                    self.report.differing.append(
                        f"{name} is {now[name]} under Kafka, and the settings of the next start "
                        f"have {decided_by}={self.config[decided_by]}, which applies"
                    )
        return kept

    def _take_settings(self) -> None:
        """Merge the dynamic settings of brokers, groups and clients' metrics."""
        draft, now, given = self.draft, self.now, self.given
        usable = self._usable(now.broker_default_configs(), ALL_BROKER_SETTINGS, "Kafka's cluster")
        every = merged(
            draft.broker_default_configs,
            None if given is None else given.broker_default_configs(),
            usable,
        )
        self.report.kept = self._kept_defaults(usable, every)
        every |= self.report.kept
        if every != draft.broker_default_configs:
            draft.set_broker_default_configs(every)
        own = merged(
            draft.broker_configs,
            None if given is None else given.broker_configs(self.node_id),
            self._usable(now.broker_configs(self.node_id), ALL_BROKER_SETTINGS, "Kafka's broker"),
        )
        if own != draft.broker_configs:
            draft.set_broker_configs(own)
        for kept, kind, settings, keep in (
            (
                draft.client_metrics,
                OF_CLIENT_METRICS,
                CLIENT_METRICS_SETTINGS,
                draft.set_client_metrics,
            ),
            (draft.group_configs, OF_GROUP, GROUP_SETTINGS, draft.set_group_configs),
        ):
            configs = now.configs_of(kind)
            for name in sorted(kept.keys() | configs.keys()):
                usable, wrong = usable_configs(configs.get(name, {}), settings)
                self._refused.update(dict.fromkeys(wrong))
                if kept.get(name, {}) != usable:
                    keep(name, usable)

    def _take_users(self) -> None:
        """Merge users, ACLs and quotas, except the user that the hand-over made for Kafka
        itself.
        """
        draft, now, given, report = self.draft, self.now, self.given, self.report
        credentials = merged(
            draft.scram_credentials,
            None if given is None else given.scram_credentials,
            now.scram_credentials,
        )
        changes = {
            key: credentials.get(key)
            for key in sorted(draft.scram_credentials.keys() | credentials.keys())
            if draft.scram_credentials.get(key) != credentials.get(key)
            and key[0] != INTER_BROKER_USER
        }
        if changes:
            draft.set_scram_credentials(changes)
        gone = sorted(draft.acls.keys() - now.acls.keys())
        come = {acl_id: acl for acl_id, acl in now.acls.items() if acl_id not in draft.acls}
        if gone:
            draft.remove_acls(gone)
        if come:
            draft.add_acls(come)
        quotas = {
            entity: now.client_quotas.get(entity, {})
            for entity in sorted(draft.client_quotas.keys() | now.client_quotas.keys(), key=str)
            if draft.client_quotas.get(entity) != now.client_quotas.get(entity)
        }
        if quotas:
            draft.set_client_quotas(quotas)
        report.users, report.acls, report.quotas = len(changes), len(gone) + len(come), len(quotas)


def merged(
    ours: Mapping[Key, Value], given: Mapping[Key, Value] | None, now: Mapping[Key, Value]
) -> dict[Key, Value]:
    """`ours`, changed where `now` differs from `given`; all of `now` if `given` is None."""
    if given is None:
        return dict(now)
    result = dict(ours)
    for key in given.keys() | now.keys():
        if key not in now:
            result.pop(key, None)
        elif given.get(key) != now[key]:
            result[key] = now[key]
    return result


def _check_start_settings(
    disk: Disk, data_dir: str, draft: ClusterMetadata, config: BrokerConfig
) -> None:
    """Raise GraduationError if the settings of the next start lack some that decide about deletion
    and that Kafka had from its properties file.

    The hand-over wrote that file into the directory. Where it is missing, the settings of the
    broker's last start are those of the hand-over.
    """
    noted = StartNote(disk, data_dir).read()
    settings = {name: text for name, text in noted.items() if not is_topic_default(name)}
    try:
        text = disk.read(f"{data_dir}/{PROPERTIES_NAME}").decode("latin-1")
        settings = deleting(read_properties(text))
    except (FileNotFoundError, ConfigError):
        pass
    missing = not_decided(
        settings,
        config.explicit,
        draft.broker_configs.keys() | draft.broker_default_configs.keys(),
    )
    if missing:
        raise GraduationError(
            f"{data_dir}/{PROPERTIES_NAME} has {listed(missing)}, which decides what is deleted, "
            "and the next start would not have it: pass --config FILE, the properties file with "
            "which you will start the broker, or --broker-set NAME=VALUE for each"
        )


# --- the logs -----------------------------------------------------------------------------------


def _forget_logs(disk: Disk, data_dir: str, image: ClusterImage) -> None:
    """Remove our files that describe the logs as they were before Kafka wrote to them; raise the
    leader epochs.
    """
    for name in disk.list(data_dir):
        if not _PARTITION.fullmatch(name) or not disk.is_dir(f"{data_dir}/{name}"):
            paths = [name]
        else:
            paths = [f"{name}/{file}" for file in disk.list(f"{data_dir}/{name}")]
        for path in paths:
            kind = kind_of(path)
            if kind is not None and kind.is_outdated:
                disk.unlink(f"{data_dir}/{path}")
    highest = max(
        (
            partition.leader_epoch
            for partitions in image.partitions.values()
            for partition in partitions.values()
        ),
        default=-1,
    )
    epochs = HighestEpoch(disk, data_dir)
    if highest > epochs.read():
        epochs.write(highest)

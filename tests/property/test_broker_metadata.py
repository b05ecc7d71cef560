"""The metadata journal against a model: random changes, then a truncation, a wrong byte, a kill or
a power failure.

After that, a start finds all changes, or refuses the journal. If the file with the journal's size
is missing, the start may also find just the changes before the damage. No other outcome is allowed.
"""

from __future__ import annotations

import copy
import random
import uuid
from typing import Any
from unittest import mock

import pytest
from helpers.examples import drawn
from hypothesis import given, settings
from hypothesis import strategies as st
from sim.disk import Crash, SimDisk

from barnabas.broker.logs import durable_size, journal_file
from barnabas.broker.logs import metadata as module
from barnabas.broker.logs.durable_size import SIZE_SUFFIX
from barnabas.broker.logs.journal_file import JournalError
from barnabas.broker.logs.metadata import ClusterMetadata, Topic
from barnabas.broker.logs.syncs import Syncs
from barnabas.broker.outbox import FlushJob, Outbox
from barnabas.broker.security.stored import Acl, ScramCredential

PATH = "/data/journal"
NAMES = ("a", "b.c", "__consumer_offsets", "lang" * 40)
State = tuple[list[Any], dict[str, Any], int]

configs = st.dictionaries(
    st.sampled_from(["retention.ms", "cleanup.policy"]), st.text(max_size=8), max_size=2
)
quota_entities = st.dictionaries(
    st.sampled_from(["user", "client-id"]), st.none() | st.text(max_size=4), min_size=1
).map(lambda entity: tuple(sorted(entity.items())))
quotas = st.dictionaries(
    st.sampled_from(["producer_byte_rate", "request_percentage"]), st.floats(min_value=0.001)
)
replicas = st.lists(st.permutations([1, 2, 3]).map(tuple), max_size=2).map(tuple)
credentials = st.none() | st.builds(
    ScramCredential, st.binary(max_size=4), st.binary(max_size=4), st.binary(max_size=4),
    st.integers(4096, 5000),
)  # fmt: skip
levels = st.dictionaries(
    st.sampled_from(["metadata.version", "group.version"]), st.integers(1, 30), min_size=1
)
changes = st.lists(
    st.one_of(
        st.tuples(st.just("create"), st.sampled_from(NAMES), st.integers(1, 5), configs),
        st.tuples(st.just("begin"), st.sampled_from(NAMES), st.integers(1, 5), configs),
        st.tuples(st.just("is made")),
        st.tuples(st.just("delete"), st.sampled_from(NAMES)),
        st.tuples(st.just("end")),
        st.tuples(st.just("grow"), st.sampled_from(NAMES), st.integers(1, 3)),
        st.tuples(st.just("configure"), st.sampled_from(NAMES), configs),
        st.tuples(st.just("replicas"), st.sampled_from(NAMES), replicas),
        st.tuples(st.just("group"), st.sampled_from(NAMES), configs),
        st.tuples(st.just("user"), st.sampled_from(NAMES), st.integers(1, 2), credentials),
        st.tuples(st.just("features"), levels, st.just({}) | levels),
        st.tuples(st.just("broker"), configs),
        st.tuples(st.just("every broker"), configs),
        st.tuples(st.just("client metrics"), st.sampled_from(NAMES), configs),
        st.tuples(st.just("quotas"), st.lists(st.tuples(quota_entities, quotas), max_size=3)),
        st.tuples(st.just("ids")),
        st.tuples(st.just("allow"), st.integers(1, 3)),
        st.tuples(st.just("disallow"), st.integers(1, 3)),
    ),
    max_size=25,
)


def new_disk(seed: int = 0) -> SimDisk:
    """A simulated disk with an empty data directory."""
    disk = SimDisk(random.Random(seed), lambda: 0)
    disk.mkdir("/data")
    disk.fsync_dir("/")
    return disk


def state_of(metadata: ClusterMetadata) -> State:
    """The topics by id, and the other contents of the journal. Topics whose creation is unfinished
    are included, since a start loads them as well.
    """
    topics = [
        (
            topic.name,
            topic.topic_id,
            topic.partition_count,
            dict(topic.configs),
            topic.replicas,
        )
        for topic in (*metadata.topics.values(), *metadata.coming.values())
    ]
    topics.sort(key=lambda topic: topic[1])
    assert all(
        metadata.topic_by_id(topic_id) is metadata.topic(name)
        for name, topic_id, *_ in topics
        if topic_id not in metadata.coming
    )
    dynamic = {
        "own": metadata.broker_configs,
        "default": metadata.broker_default_configs,
        "metrics": metadata.client_metrics,
        "acls": metadata.acls,
        "quotas": metadata.client_quotas,
        "groups": metadata.group_configs,
        "users": metadata.scram_credentials,
        "features": (metadata.feature_levels, metadata.updated_features, metadata.features_epoch),
    }
    return topics, copy.deepcopy(dynamic), metadata.next_producer_id


def _store(table: dict[Any, Any], key: Any, value: Any) -> None:
    table.pop(key, None)
    table |= {key: value} if value else {}


def acl_of(number: int) -> Acl:
    return Acl(2, f"t{number}", 3, "User:ann", "*", 3, 3)


class Model:
    """The expected contents of the journal, stored as simply as possible."""

    def __init__(self) -> None:
        self.topics: dict[str, tuple[uuid.UUID, int, dict[str, str]]] = {}
        self.replicas: dict[str, tuple[tuple[int, ...], ...]] = {}
        self.coming: list[str] = []
        self.dynamic: dict[str, Any] = {
            "own": {}, "default": {}, "metrics": {}, "acls": {}, "quotas": {}, "groups": {},
            "users": {}, "features": ({}, {}, -1),
        }  # fmt: skip
        self.next_producer_id = 0
        self._made = 0

    def state(self) -> State:
        """The state that the journal must have."""
        topics = [
            (name, topic_id, count, dict(own), self.replicas.get(name, ()))
            for name, (topic_id, count, own) in self.topics.items()
        ]
        topics.sort(key=lambda topic: topic[1])
        return topics, copy.deepcopy(self.dynamic), self.next_producer_id

    def apply(self, change: tuple[Any, ...], metadata: ClusterMetadata) -> None:
        """If the change is possible, apply it to the model and then to the journal."""
        kind, *arguments = change
        name = arguments[0] if arguments else ""
        if kind in ("create", "begin") and name not in self.topics:
            self._made += 1
            topic_id = uuid.UUID(int=self._made)
            self.topics[name] = (topic_id, arguments[1], arguments[2])
            if kind == "create":
                metadata.create_topic(name, topic_id, arguments[1], arguments[2])
            else:
                self.coming.append(name)
                metadata.begin_topics([Topic(name, topic_id, arguments[1], dict(arguments[2]))])
        elif kind == "is made" and self.coming:
            metadata.end_creation(metadata.coming[self.topics[self.coming.pop(0)][0]])
        elif name in self.coming:
            return  # until a topic is created, requests do not see it
        elif kind == "delete" and name in self.topics:
            del self.topics[name]
            self.replicas.pop(name, None)
            metadata.delete_topics([name])
        elif kind == "end" and metadata.deletions:
            metadata.end_deletion(next(iter(metadata.deletions)))
        elif kind == "grow" and name in self.topics:
            topic_id, count, own = self.topics[name]
            self.topics[name] = (topic_id, count + arguments[1], own)
            metadata.add_partitions(name, count + arguments[1])
        elif kind == "configure" and name in self.topics:
            topic_id, count, _ = self.topics[name]
            self.topics[name] = (topic_id, count, arguments[1])
            metadata.set_topic_configs(name, arguments[1])
        elif kind == "replicas" and name in self.topics:
            self.replicas[name] = arguments[1]
            metadata.set_topic_replicas(name, arguments[1])
        else:
            self._set(kind, arguments, metadata)

    def _set(self, kind: str, arguments: list[Any], metadata: ClusterMetadata) -> None:
        """Change anything other than a topic."""
        name = arguments[0] if arguments else ""
        if kind == "group":
            _store(self.dynamic["groups"], name, arguments[1])
            metadata.set_group_configs(name, arguments[1])
        elif kind == "user":
            _store(self.dynamic["users"], (name, arguments[1]), arguments[2])
            metadata.set_scram_credentials({(name, arguments[1]): arguments[2]})
        elif kind == "features":
            epoch = self.dynamic["features"][2] + 1
            self.dynamic["features"] = (dict(arguments[0]), dict(arguments[1]), epoch)
            metadata.set_features(*arguments)
        elif kind == "broker":
            self.dynamic["own"] = name
            metadata.set_broker_configs(name)
        elif kind == "every broker":
            self.dynamic["default"] = name
            metadata.set_broker_default_configs(name)
        elif kind == "client metrics":
            _store(self.dynamic["metrics"], name, arguments[1])
            metadata.set_client_metrics(name, arguments[1])
        elif kind == "allow":
            acls = {uuid.UUID(int=n): acl_of(n) for n in range(arguments[0])}
            self.dynamic["acls"].update(acls)
            metadata.add_acls(acls)
        elif kind == "disallow":
            ids = list(self.dynamic["acls"])[: arguments[0]]
            for acl_id in ids:
                del self.dynamic["acls"][acl_id]
            metadata.remove_acls(ids)
        elif kind == "quotas":
            changed = dict(arguments[0])
            self.dynamic["quotas"] |= changed
            for entity in [one for one, held in changed.items() if not held]:
                del self.dynamic["quotas"][entity]
            metadata.set_client_quotas(changed)
        elif kind == "ids":
            self.next_producer_id += 1000
            metadata.set_next_producer_id(self.next_producer_id)


def written(disk: SimDisk, wanted: list[tuple[Any, ...]]) -> list[tuple[int, State]]:
    """Make the changes. Return the journal's size and the model's state after each change."""
    metadata = ClusterMetadata(disk, PATH)
    model = Model()
    history = [(disk.size(PATH), model.state())]
    for change in wanted:
        model.apply(change, metadata)
        history.append((disk.size(PATH), model.state()))
    assert state_of(metadata) == model.state()
    return history


@given(changes)
@settings(max_examples=drawn(60))
def test_a_restart_loads_all_changes(wanted: list[tuple[Any, ...]]) -> None:
    disk = new_disk()
    history = written(disk, wanted)
    assert state_of(ClusterMetadata(disk, PATH)) == history[-1][1]


@given(changes, st.data())
@settings(max_examples=drawn(150))
def test_a_truncated_journal_is_refused_until_its_size_file_is_deleted(
    wanted: list[tuple[Any, ...]], data: st.DataObject
) -> None:
    """The size file shows that the journal was longer. An operator who deletes this file accepts
    the loss, and the journal then loads with all changes before the cut.
    """
    disk = new_disk()
    history = written(disk, wanted)
    size = disk.size(PATH)
    cut = data.draw(st.integers(0, size))
    disk.open(PATH).truncate(cut)
    expected = [state for size, state in history if size <= cut] or [history[0][1]]
    if cut < size:
        for _ in range(2):
            with pytest.raises(JournalError, match="Restore the file from a copy"):
                ClusterMetadata(disk, PATH)
            assert disk.size(PATH) == cut, "a refused journal is left as it is"
        disk.unlink(PATH + SIZE_SUFFIX)
    assert state_of(ClusterMetadata(disk, PATH)) == expected[-1]
    assert state_of(ClusterMetadata(disk, PATH)) == expected[-1], "the cut file loads again"


@given(changes, st.data())
@settings(max_examples=drawn(150))
def test_a_wrong_byte_anywhere_is_refused(
    wanted: list[tuple[Any, ...]], data: st.DataObject
) -> None:
    disk = new_disk()
    history = written(disk, wanted)
    position = data.draw(st.integers(0, disk.size(PATH) - 1))
    inode = disk.open(PATH).inode
    inode.data[position] ^= data.draw(st.integers(1, 255))
    damaged = bytes(inode.data)
    with pytest.raises(JournalError):
        ClusterMetadata(disk, PATH)
    assert bytes(inode.data) == damaged, "a damaged journal is left as it is"
    disk.unlink(PATH + SIZE_SUFFIX)
    before = [state for size, state in history if size <= position]
    in_last_change = position >= max(
        (size for size, _ in history if size < disk.size(PATH)), default=0
    )
    try:
        loaded = state_of(ClusterMetadata(disk, PATH))
    except JournalError:
        assert not (in_last_change and before), "the last change alone is cut, without the size"
        assert bytes(inode.data) == damaged
    else:
        assert in_last_change
        assert loaded == (before or [history[0][1]])[-1], (
            "a header alone that looks torn is written again"
        )


def end_flush(job: FlushJob) -> None:
    """Do the flusher thread's work, and then run the job's next step."""
    for file in job.files:
        file.fsync()
    assert job.then is not None
    job.then(0)


@given(changes, st.integers(0, 2**32), st.data())
@settings(max_examples=drawn(250))
def test_a_kill_or_power_loss_keeps_all_finished_changes_and_at_most_one_unfinished(
    wanted: list[tuple[Any, ...]], seed: int, data: st.DataObject
) -> None:
    """The changes include rewrites of the journal, which happen every few changes here. A rewrite
    is done at once or in slices, and its fsyncs end at once or some changes later. The kill may
    come at each step.
    """
    disk = new_disk(seed)
    model = Model()
    ticks = data.draw(st.integers(0, 3), label="ticks after each change")
    is_at_once = data.draw(st.booleans(), label="flushes end at once")
    chance = random.Random(seed)
    with (
        mock.patch.object(
            journal_file, "ENCODED_AT_ONCE", data.draw(st.sampled_from([1000, 1, 3]))
        ),
        mock.patch.object(module, "SMALLEST_REWRITE", 6),
        mock.patch.object(module, "REWRITE_FACTOR", 1),
    ):
        for _ in range(2):  # the second round starts from the files that the first one left
            before = copy.deepcopy(model)
            disk.crash_in(data.draw(st.integers(0, 60)))
            try:
                metadata = ClusterMetadata(disk, PATH)
                assert state_of(metadata) == model.state()
                # A start of the broker would create the files of these topics and end their
                # creation.
                model.coming.clear()
                outbox = Outbox()
                if not is_at_once:
                    metadata.run_steps = Syncs(outbox).run
                for change in wanted:
                    before = copy.deepcopy(model)
                    model.apply(change, metadata)
                    for _ in range(ticks):
                        metadata.on_tick()
                    while outbox.flushes and chance.random() < 0.5:
                        end_flush(outbox.flushes.pop(0))
            except Crash:
                pass
            if data.draw(st.booleans()):
                disk.lose_power()
            else:
                disk.kill()
            loaded = state_of(ClusterMetadata(disk, PATH))
            assert loaded in (before.state(), model.state())
            disk.lose_power()
            assert state_of(ClusterMetadata(disk, PATH)) == loaded, (
                "what was loaded, and acted upon, is on the disk"
            )
            if loaded == before.state():
                model = before


@given(changes, st.integers(0, 2**32), st.data())
@settings(max_examples=drawn(150))
def test_a_truncation_after_a_kill_is_refused_or_loses_at_most_the_unfinished_change(
    wanted: list[tuple[Any, ...]], seed: int, data: st.DataObject
) -> None:
    """The changes include rewrites of the journal, and the kill may come at each of their steps."""
    disk = new_disk(seed)
    model = Model()
    before = copy.deepcopy(model)
    with (
        mock.patch.object(module, "SMALLEST_REWRITE", 6),
        mock.patch.object(module, "REWRITE_FACTOR", 1),
        mock.patch.object(durable_size, "MOST_RECORDS", 3),
    ):
        ClusterMetadata(disk, PATH).close()
        disk.crash_in(data.draw(st.integers(0, 100)))
        try:
            metadata = ClusterMetadata(disk, PATH)
            for change in wanted:
                before = copy.deepcopy(model)
                model.apply(change, metadata)
            metadata.close()
        except Crash:
            pass
        disk.kill()
        cut = data.draw(st.integers(0, disk.size(PATH)))
        disk.open(PATH).truncate(cut)
        try:
            loaded = state_of(ClusterMetadata(disk, PATH))
        except JournalError:
            assert disk.size(PATH) == cut
        else:
            assert loaded in (before.state(), model.state())

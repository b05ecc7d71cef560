"""No command deletes topics' data, or sets it aside, because a file is missing, empty or truncated.

The data directories are those of Barnabas, of Barnabas after a hand-over to Kafka, and of Kafka
itself. One file at a time is removed, emptied or truncated. Then a start, a take-over or a
hand-over follows, and a day passes. Each segment that would remain without the damage must remain
in its place, and its topic must exist. Otherwise the command must refuse with an error and change
no segment.
"""

from __future__ import annotations

import contextlib
import logging
import random
import uuid
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from helpers.examples import drawn
from helpers.graduation import (
    DATA,
    KAFKAS_MARK,
    NODE_ID,
    NOW_MS,
    config_of,
    fill,
    flush,
    graduate,
    new_disk,
    opened,
    planned,
    run_kafka,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from sim.disk import Directory, SimDisk

from barnabas.broker.core import Broker
from barnabas.coordinator.result import CoordinatorRecord
from barnabas.graduation.bootstrap import encode_bootstrap, read_bootstrap
from barnabas.graduation.bring_back import bring_back
from barnabas.graduation.kafka_directory.kafka_records import (
    CONFIG,
    PARTITION,
    PARTITION_CHANGE,
    REMOVE_TOPIC,
    TOPIC,
    KafkaRecord,
)
from barnabas.graduation.survey import GraduationError, UncleanError
from barnabas.storage.directory.graduated import BOOTSTRAP_NAME, MARK_NAME, is_graduated
from barnabas.storage.files.checkpoints import (
    CLEAN_SHUTDOWN_NAME,
    PARTITION_METADATA_NAME,
    encode_partition_metadata,
)
from barnabas.storage.log.broker_appends import append_records
from barnabas.storage.log.log_directory import LogDirectoryError

pytestmark = pytest.mark.deep

FIXTURES = Path(__file__).parent.parent / "fixtures"
DAY_MS = 86_400_000
NEW_ID = uuid.UUID(int=0xABC)
OF_KAFKA = f"{DATA}/__cluster_metadata-0"
ADVICE = ("restore", "remove", "move", "start", "give", "copy", "take-over", "name")
Files = dict[str, bytes]


class World(NamedTuple):
    """A data directory, and the id of its node. `deleted` has the topics that the metadata log
    deletes.
    """

    files: Files
    node_id: int = NODE_ID
    deleted: tuple[str, ...] = ()


# --- directories --------------------------------------------------------------------------------


def saved(disk: SimDisk) -> Files:
    return {path: bytes(inode.data) for path, inode in disk.files() if not path.endswith(".lock")}


def loaded(files: Files) -> SimDisk:
    """A disk with these files, all durable."""
    disk = new_disk()
    disk.root = Directory()
    disk.mkdir(DATA)
    for path, data in files.items():
        disk.mkdir(path.rpartition("/")[0])
        disk.open(path, create=True).append(data)
    flush(disk, DATA)
    return disk


def filled() -> SimDisk:
    """A disk with topics of several segments each. "brief" has a retention of an hour and a
    half.
    """
    disk = new_disk()
    fill(disk)
    broker = opened(disk)
    soon = {"segment.bytes": "200", "retention.ms": "5400000"}
    for number, name, count, configs in (
        (0xB, "brief", 1, soon),
        (0xC, "long", 2, {"segment.bytes": "200"}),
    ):
        broker.topics.create_topic(
            name, count, configs, topic_id=uuid.UUID(int=number), now_ms=NOW_MS
        )
    for name, index in (("brief", 0), ("long", 0), ("long", 1), ("orders", 1), ("events", 0)):
        log = broker.topics.partition(name, index)
        assert log is not None
        for number in range(4):
            record = CoordinatorRecord(b"k%d" % number, b"of %s" % name.encode() * 4)
            append_records(log, [record], NOW_MS)
            log.flush()
    broker.close_logs(NOW_MS)
    disk.kill()
    return disk


@cache
def ours(way: str) -> World:
    """A directory of Barnabas after a clean stop or a kill. The records of the topic "brief" expire
    within the day that passes after a command.
    """
    disk = filled()
    if way == "killed":
        opened(disk)
        disk.kill()
    return World(saved(disk))


@cache
def handed_over(way: str) -> World:
    """The directory of `filled` after the hand-over. If Kafka started completely, it has also
    created one topic, deleted one, and set unlimited retention for "brief".
    """
    disk = filled()
    graduate(disk)
    if way == "not started":
        return World(saved(disk))
    if way == "died at its start":
        disk.mkdir(OF_KAFKA)
        disk.write_atomic(f"{OF_KAFKA}/{0:020}.log", b"")
        disk.write_atomic(f"{OF_KAFKA}/quorum-state", b"{}")
        return World(saved(disk))
    given = read_bootstrap(disk, f"{DATA}/bootstrap.checkpoint").topic_ids
    partition = {
        "topic_id": NEW_ID, "partition_id": 0, "replicas": [NODE_ID], "isr": [NODE_ID],
        "removing_replicas": [], "adding_replicas": [], "leader": NODE_ID, "leader_epoch": 4,
        "partition_epoch": 0, "directories": [NEW_ID],
    }  # fmt: skip
    config = {"resource_type": 2, "name": "retention.ms", "value": "-1"}
    stop = {
        "topic_id": given["long"], "partition_id": 1, "isr": [], "replicas": None, "leader": -1,
        "eligible_leader_replicas": [NODE_ID],
    }  # fmt: skip
    changes = [
        KafkaRecord(REMOVE_TOPIC, {"topic_id": given["orders"]}),
        KafkaRecord(TOPIC, {"name": "new", "topic_id": NEW_ID}),
        KafkaRecord(PARTITION, partition),
        KafkaRecord(CONFIG, {**config, "resource_name": "brief"}),
        KafkaRecord(CONFIG, {**config, "resource_name": "new"}),
        KafkaRecord(PARTITION_CHANGE, stop),
    ]
    if way == "checkpoint":
        write_checkpoint(disk)
        run_kafka(disk, changes[1:], base_offset=900)
    else:
        run_kafka(disk, changes)
    for index in (0, 1):
        disk.rename(f"{DATA}/orders-{index}", f"{DATA}/orders-{index}.{'0' * 32}-delete")
    disk.mkdir(f"{DATA}/new-0")
    metadata = encode_partition_metadata(NEW_ID)
    disk.write_atomic(f"{DATA}/new-0/{PARTITION_METADATA_NAME}", metadata)
    source = f"{DATA}/events-0/{0:020}.log"
    disk.write_atomic(f"{DATA}/new-0/{0:020}.log", disk.read(source))
    if way == "killed":
        disk.unlink(f"{DATA}/{CLEAN_SHUTDOWN_NAME}")
    return World(saved(disk), deleted=("orders",))


def write_checkpoint(disk: SimDisk) -> None:
    """Write a checkpoint of Kafka's metadata as of offset 900, after the deletion of "orders"."""
    before = loaded(saved(disk))
    for name in (MARK_NAME, BOOTSTRAP_NAME):
        before.unlink(f"{DATA}/{name}")
    plan = planned(before)
    plan.survey.metadata._drop("orders")
    del plan.topic_configs["orders"]
    disk.mkdir(OF_KAFKA)
    path = f"{OF_KAFKA}/{900:020}-{1:010}.checkpoint"
    disk.write_atomic(path, encode_bootstrap(plan, NOW_MS))


@cache
def of_kafkas_own() -> World:
    """A directory that Apache Kafka 3.9 wrote before a clean stop."""
    files = {}
    for root in (FIXTURES / "kafka-logdir" / "logdir", FIXTURES / "kafka-metadata"):
        for path in root.rglob("*"):
            if path.is_file():
                files[f"{DATA}/{path.relative_to(root)}"] = path.read_bytes()
    return World(files | {f"{DATA}/{CLEAN_SHUTDOWN_NAME}": KAFKAS_MARK}, node_id=1)


# --- commands -----------------------------------------------------------------------------------


def start(disk: SimDisk, world: World) -> None:
    """Start the broker, let a day pass, and stop it.

    Raises: AssertionError if a topic with segments is gone.
    """
    broker = opened(disk, node_id=str(world.node_id))
    for hour in range(25):
        now_ms = NOW_MS + hour * DAY_MS // 24
        broker.logs.wall.feed(now_ms, now_ms)
        broker.on_tick(now_ms)
        serve(broker, now_ms)
    assert partitions_of(saved(disk)) <= {
        (topic.name, index)
        for topic in broker.metadata.topics.values()
        for index in range(topic.partition_count)
    }
    broker.close_logs(NOW_MS + DAY_MS)
    disk.kill()


def serve(broker: Broker, now_ms: int) -> None:
    """Carry out the flushes that are due."""
    outbox = broker.outbox
    while outbox.flushes:
        jobs, outbox.flushes = outbox.flushes, []
        for job in jobs:
            for file in job.files:
                file.fsync()
            broker.on_flushed(job, now_ms)
        broker.on_sent(now_ms)


def take_over(disk: SimDisk, world: World) -> None:
    """Take the directory over from Kafka, and start the broker."""
    bring_back(disk, DATA, config_of(), lambda path: flush(disk, path))
    start(disk, world)


def hand_over(disk: SimDisk, world: World) -> None:
    """Hand the directory over to Kafka, and check that Kafka's metadata has each topic with
    segments.
    """
    before = partitions_of(saved(disk))
    graduate(disk)
    image = read_bootstrap(disk, f"{DATA}/bootstrap.checkpoint")
    assert before <= {
        (name, index)
        for name, topic_id in image.topic_ids.items()
        for index in image.partitions[topic_id]
    }


Command = Callable[[SimDisk, World], None]
WORLDS: dict[str, tuple[Callable[[], World], tuple[Command, ...]]] = {
    "stopped": (lambda: ours("stopped"), (start, hand_over)),
    "killed": (lambda: ours("killed"), (start,)),
    "not started": (lambda: handed_over("not started"), (start, take_over)),
    "died at its start": (lambda: handed_over("died at its start"), (start, take_over)),
    "Kafka's": (lambda: handed_over("log"), (start, take_over)),
    "Kafka's, killed": (lambda: handed_over("killed"), (start, take_over)),
    "Kafka's, with a checkpoint": (lambda: handed_over("checkpoint"), (start, take_over)),
    "Kafka's own": (of_kafkas_own, (start,)),
}


# --- what has to hold ---------------------------------------------------------------------------


def partitions_of(files: Files) -> set[tuple[str, int]]:
    """The partitions that have segments with records."""
    found = set()
    for path in segments_of(files):
        topic, _, number = path.split("/")[2].rpartition("-")
        if files[path]:
            found.add((topic, int(number)))
    return found


def segments_of(files: Files) -> set[str]:
    """The paths of topics' log files."""
    return {
        path
        for path in files
        if path.endswith(".log") and path.split("/")[2].rpartition("-")[2].isdigit()
        and not path.startswith(OF_KAFKA)
    }  # fmt: skip


@cache
def kept(world_name: str, command: Command) -> frozenset[str]:
    """The segments that remain if no file is damaged. Metadata records delete the other segments.
    If the directory is handed over to Kafka, these are the segments that a take-over keeps.
    """
    world = WORLDS[world_name][0]()
    disk = loaded(world.files)
    if is_graduated(disk, DATA):
        command = take_over
    command(disk, world)
    after = saved(disk)
    return frozenset(
        path
        for path in segments_of(world.files)
        if after.get(path, b"").startswith(world.files[path])
    )


class Complaints(logging.Handler):
    """Collects log messages at WARNING and above."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


@contextlib.contextmanager
def complaints() -> Iterator[list[str]]:
    """The messages that are logged within the context."""
    handler = Complaints()
    logging.getLogger().addHandler(handler)
    try:
        yield handler.texts
    finally:
        logging.getLogger().removeHandler(handler)


def check(world_name: str, command: Command, path: str, data: bytes | None) -> str:
    """Run the command with the file `path` missing (if `data` is None) or with other contents.
    Return "done" or the text of the error.
    """
    world = WORLDS[world_name][0]()
    files = {**world.files, path: data} if data is not None else dict(world.files)
    if data is None:
        del files[path]
    disk = loaded(files)
    if data is None and path.rpartition("/")[0] != DATA:
        disk.mkdir(path.rpartition("/")[0])
    with complaints() as texts:
        try:
            command(disk, world)
            outcome = "done"
        except (LogDirectoryError, GraduationError) as error:
            outcome = str(error)
            if isinstance(error, UncleanError):  # the command line adds this advice
                outcome += ": start the broker there"
            assert "\n" not in outcome and any(word in outcome for word in ADVICE), outcome
    after = saved(disk)
    own = path.rpartition("/")[0]  # the directory of the damaged file, which may be a partition's
    for segment in kept(world_name, command):
        if segment == path:
            continue
        now = after.get(segment)
        if now is None and segment.startswith(f"{own}/") and path.endswith(".log"):
            # The segment is beyond the end of the truncated log. It is kept as a set-aside file,
            # and a message reports this.
            now = after.get(segment.replace(".log", ".set-aside"))
            assert texts, f"{segment} is set aside, and nothing is said"
        assert now is not None and now.startswith(world.files[segment]), (
            f"{segment} is not there, or cut: {outcome}; {texts}"
        )
    return outcome


def damages_of(data: bytes, seed: int) -> Iterator[bytes | None]:
    """The damages of a file: None for a missing file, then empty and truncated contents."""
    chance = random.Random(seed)
    yield None
    if data:
        yield b""
        for _ in range(2):
            yield data[: chance.randrange(len(data))]


@pytest.mark.parametrize("world_name", WORLDS)
def test_without_damage_each_command_succeeds_or_names_the_right_one(world_name: str) -> None:
    world, commands = WORLDS[world_name][0](), WORLDS[world_name][1]
    assert len(segments_of(world.files)) > 6
    for command in commands:
        is_refused = command is start and is_graduated(loaded(world.files), DATA)
        expected = "barnabas take-over /data" if is_refused else ""
        with (
            contextlib.nullcontext()
            if not is_refused
            else pytest.raises(LogDirectoryError, match=expected)
        ):
            command(loaded(world.files), world)


@pytest.mark.parametrize("world_name", WORLDS)
def test_no_command_deletes_data_if_a_file_beside_the_logs_is_lost(world_name: str) -> None:
    """The damaged files are in the data directory itself or in Kafka's metadata log."""
    world, commands = WORLDS[world_name][0](), WORLDS[world_name][1]
    for path, data in world.files.items():
        if path.count("/") == 2 or path.startswith(OF_KAFKA):
            for number, damage in enumerate(damages_of(data, len(path))):
                for command in commands:
                    check(world_name, command, path, damage)
                    assert number < 4


@settings(max_examples=drawn(60))
@given(
    world_name=st.sampled_from(sorted(WORLDS)),
    pick=st.floats(0, 0.999),
    which=st.floats(0, 0.999),
    part=st.sampled_from([None, 0.0]) | st.floats(0, 0.999),
)
def test_no_command_deletes_data_if_any_one_file_is_lost(
    world_name: str, pick: float, which: float, part: float | None
) -> None:
    world, commands = WORLDS[world_name][0](), WORLDS[world_name][1]
    paths = sorted(world.files)
    path = paths[int(len(paths) * pick)]
    data = world.files[path]
    damage = None if part is None else data[: int(len(data) * part)]
    check(world_name, commands[int(len(commands) * which)], path, damage)

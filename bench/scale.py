"""The cost of a request, by the number of topics, groups and so on in the broker.

    python -m bench.scale [--scale X] [--publish DIRECTORY] [CASE …]

No sockets are used. The benchmark passes frames to `Broker.on_frame` and takes responses from the
outbox, so only the core is measured. Each case has brokers of several sizes. All of them do the
same work by turns: they produce and fetch records, one in each request, and run transactions of one
partition. A figure is the CPU time of the thread, the best of several rounds, since other load can
only add to it. The longest call is the longest time for which the loop would have been blocked.

`make bench-watched` (tests/tools/torture/scale.py) watches each call as the tests watch the event
loop of the daemon. After the measurement it advances the clock of each broker by twenty minutes,
and does all work that becomes due. A call that uses more than 50 ms of CPU, or waits for the disk,
is printed, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import gc
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from barnabas.broker.settings.config import BrokerConfig
from barnabas.daemon.opening import open_broker
from barnabas.protocol.framing import encode_request
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from barnabas.protocol.messages.end_txn import EndTxnRequest
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from barnabas.protocol.messages.message import Message
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.protocol.records import NewRecord, encode_batch
from bench.many_partitions import NOW_MS, Ids

TOPIC, NAME = "bench", "bench"
WORKER, FIRST_OTHER = 1, 2  # connections
RECORD = NewRecord(None, b"x" * 100, NOW_MS)
RECORDS, TRANSACTIONS, ROUNDS = 50, 10, 61
IDLE_MS = 3_600_000
OFFSETS_A_GROUP = 50
SIZES = (10, 100, 1000, 10_000)
WATCHED_MS = 1_200_000


class Core:
    """A broker without sockets, with one topic. longest_ns: the longest call since its reset.

    watched: a function through which each call into the core is made. Its arguments are the call's
    name and the call.
    """

    watched: Callable[[str, Callable[[], object]], object] = staticmethod(lambda _, call: call())

    def __init__(
        self, directory: str, more: dict[str, str] | None = None, *, is_new: bool = True
    ) -> None:
        settings = {
            **(more or {}),
            "log.dirs": directory,
            "barnabas.transaction.durability": "os",
            "transaction.state.log.num.partitions": "1",
            "offsets.topic.num.partitions": "1",
        }
        self.broker = open_broker(BrokerConfig.from_properties(settings), Ids(), now_ms=NOW_MS)
        self.connect(WORKER)
        if is_new:
            self.broker.topics.create_topic(TOPIC, 1, {}, now_ms=NOW_MS)
        self.longest_ns = 0
        self.sequence = self.offset = 0
        self.producer_id = self.begin(NAME)

    def connect(self, connection: int) -> None:
        """Connect a client."""
        self.broker.on_connected(connection, "127.0.0.1", "127.0.0.1", 9092)

    def call(self, request: Message, version: int, connection: int = WORKER) -> int:
        """Handle one request, including the work that is deferred until after its response.

        Gives: CPU time in ns.
        """
        frame = memoryview(encode_request(request, version, 1, "bench"))[4:]
        broker, took_ns = self.broker, 0

        def handle() -> None:
            nonlocal took_ns
            began_ns = time.thread_time_ns()
            broker.on_frame(connection, frame, NOW_MS)
            while broker.outbox.deferred:
                broker.on_sent(NOW_MS)
            broker.next_deadline_ms()
            took_ns = time.thread_time_ns() - began_ns

        self.watched(type(request).__name__, handle)
        self.longest_ns = max(self.longest_ns, took_ns)
        return took_ns

    def pass_time(self, for_ms: int) -> None:
        """Advance the clock, and do all work that becomes due, including the work of the rim's
        threads but not compaction.
        """
        broker, now_ms = self.broker, NOW_MS
        while (deadline := broker.next_deadline_ms()) is not None and deadline <= NOW_MS + for_ms:
            now_ms = max(now_ms, deadline)
            self.watched("on_tick", partial(broker.on_tick, now_ms))
            self._carry_out(now_ms)

    def _carry_out(self, now_ms: int) -> None:
        """Do the work of the rim's threads until there is none: flushes, and computations of the
        worker.
        """
        broker, outbox = self.broker, self.broker.outbox
        while outbox.deferred or outbox.flushes or outbox.work:
            self.watched("on_sent", partial(broker.on_sent, now_ms))
            works, outbox.work = outbox.work, []
            for work in works:
                result = work.run()
                self.watched("on_worked", partial(broker.on_worked, work, result, None, now_ms))
            jobs, outbox.flushes = outbox.flushes, []
            for job in jobs:
                for file in job.files:
                    file.fsync()
                self.watched("on_flushed", partial(broker.on_flushed, job, now_ms))
        outbox.sends.clear()
        outbox.cleanings.clear()

    def answer(self, connection: int = WORKER) -> bytes:
        """The only response in the outbox, without its file slices. The outbox is then empty."""
        sends, self.broker.outbox.sends = self.broker.outbox.sends, []
        assert not self.broker.outbox.closes, self.broker.outbox.closes
        assert [to for to, _ in sends] == [connection], f"{len(sends)} answers"
        return bytes(sends[0][1][0])  # type: ignore[arg-type]

    def begin(self, transactional_id: str) -> int:
        """Begin a session of a transactional id. Gives: the producer id."""
        self.call(InitProducerIdRequest(transactional_id, 900_000), 0)
        answer = InitProducerIdResponse.read(self.answer()[8:], 0, 0)[0]
        assert answer.error_code == 0
        return answer.producer_id

    def produce(self, producer_id: int = -1, sequence: int = -1, name: str | None = None) -> int:
        """Produce one record."""
        batch = encode_batch(
            [RECORD],
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence,
            transactional=name is not None,
        )
        data = TopicProduceData(TOPIC, partition_data=[PartitionProduceData(0, batch)])
        took_ns = self.call(ProduceRequest(name, -1, 1000, [data]), 7)
        # the partition's index 0 and error code 0, found without decoding the answer
        assert b"\0\0\0\0\0\0" in self.answer()
        self.offset += 1
        return took_ns

    def add(self, transactional_id: str, producer_id: int) -> int:
        """Add the partition to a transaction."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=[AddPartitionsToTxnTopic(TOPIC, [0])],
        )
        took_ns = self.call(request, 0)
        assert self.answer()[-2:] == b"\0\0"
        return took_ns

    def fetch(self, connection: int = WORKER, max_wait_ms: int = 0) -> int:
        """Fetch the last record. With a maximum wait, fetch the record after it, which does not
        exist yet.
        """
        offset = self.offset if max_wait_ms else self.offset - 1
        rows = [FetchPartition(0, -1, offset, -1, -1, 1 << 20)]
        request = FetchRequest(
            None, -1, None, max_wait_ms, 1, 1 << 20, 0, 0, -1, [FetchTopic(TOPIC, None, rows)]
        )
        return self.call(request, 11, connection)


class Work(NamedTuple):
    """Microseconds of CPU for each part of the measured work."""

    produce_us: float
    fetch_us: float
    transaction_us: float


def work(core: Core) -> Work:
    """Do the measured work once."""
    produced_ns = fetched_ns = transacted_ns = 0
    for _ in range(RECORDS):
        produced_ns += core.produce()
        fetched_ns += core.fetch()
        assert len(core.broker.outbox.sends[0][1]) > 1, "the record is not in the answer"
        core.answer()
    for _ in range(TRANSACTIONS):
        transacted_ns += core.add(NAME, core.producer_id)
        transacted_ns += core.produce(core.producer_id, core.sequence, NAME)
        core.sequence += 1
        transacted_ns += core.call(EndTxnRequest(NAME, core.producer_id, 0, True), 1)
        assert core.answer()[-2:] == b"\0\0"
        core.offset += 1
    return Work(
        produced_ns / RECORDS / 1000,
        fetched_ns / RECORDS / 1000,
        transacted_ns / TRANSACTIONS / 1000,
    )


# --- contents of a broker -----------------------------------------------------------------------


def _partitions(core: Core, count: int) -> None:
    core.broker.topics.create_topic("others", count, {}, now_ms=NOW_MS)


def _connections(core: Core, count: int) -> None:
    for connection in range(FIRST_OTHER, FIRST_OTHER + count):
        core.connect(connection)


def _transactional_ids(core: Core, count: int) -> None:
    for number in range(count):
        core.begin(f"id-{number}")


def _open_transactions(core: Core, count: int) -> None:
    """Open that many transactions, each of another transactional id."""
    for number in range(count):
        name = f"open-{number}"
        core.add(name, core.begin(name))


def _producer_ids(core: Core, count: int) -> None:
    for number in range(count):
        core.produce(1_000_000 + number, 0)


def _offsets(core: Core, count: int) -> None:
    """Commit that many offsets, OFFSETS_A_GROUP by each group."""
    core.broker.topics.create_topic("read", OFFSETS_A_GROUP, {}, now_ms=NOW_MS)
    rows = [OffsetCommitRequestPartition(index, 1) for index in range(OFFSETS_A_GROUP)]
    for number in range(max(1, count // OFFSETS_A_GROUP)):
        request = OffsetCommitRequest(
            f"group-{number}", -1, "", topics=[OffsetCommitRequestTopic("read", partitions=rows)]
        )
        core.call(request, 2)
        core.answer()


def _idle_polls(core: Core, count: int) -> None:
    """Connect that many clients, each with a Fetch that waits for data."""
    core.broker.topics.create_topic("quiet", 1, {}, now_ms=NOW_MS)
    rows = [FetchPartition(0, -1, 0, -1, -1, 1 << 20)]
    topics = [FetchTopic("quiet", None, rows)]
    request = FetchRequest(None, -1, None, IDLE_MS, 1, 1 << 20, 0, 0, -1, topics)
    for connection in range(FIRST_OTHER, FIRST_OTHER + count):
        core.connect(connection)
        core.call(request, 11, connection)
    assert not core.broker.outbox.sends


def _segments(core: Core, count: int) -> None:
    """Give the log that many segments, by a very small segment size."""
    log = core.broker.topics.partitions_of(TOPIC)[0]
    wanted, log.config = log.config, replace(log.config, segment_bytes=200)
    for _ in range(count):
        core.produce()
    log.config = wanted
    assert len(log.segments) >= count


CASES: dict[str, Callable[[Core, int], None]] = {
    "partitions": _partitions,
    "connections": _connections,
    "transactional ids": _transactional_ids,
    "open transactions": _open_transactions,
    "producer ids": _producer_ids,
    "committed offsets": _offsets,
    "idle polls": _idle_polls,
    "segments of the log": _segments,
}


# --- measuring ----------------------------------------------------------------------------------


@dataclass
class Result:
    """The result for one size of one case: the best time of each part, and the longest call."""

    case: str
    size: int
    rounds: list[Work] = field(default_factory=list)
    longest_ms: float = 0.0

    @property
    def best(self) -> Work:
        return Work(*(min(times) for times in zip(*self.rounds, strict=True)))


def measured(case: str, sizes: tuple[int, ...], *, watches: bool = False) -> list[Result]:
    """Measure brokers of all sizes by turns. With `watches`, their clocks are advanced
    afterwards.
    """
    results, cores = [Result(case, size) for size in sizes], []
    with tempfile.TemporaryDirectory() as directory:
        for size in sizes:
            core = Core(f"{directory}/{size}")
            CASES[case](core, size)
            cores.append(core)
        gc.collect()
        gc.freeze()  # as the daemon does after its start
        for turn in range(ROUNDS):
            for result, core in zip(results, cores, strict=True):
                core.longest_ns = 0
                times = work(core)
                if turn:  # the first round warms up
                    result.rounds.append(times)
                    longest_ms = core.longest_ns / 1e6
                    result.longest_ms = min(result.longest_ms or longest_ms, longest_ms)
        if watches:
            for core in cores:
                core.pass_time(WATCHED_MS)
        gc.unfreeze()
        cores.clear()
    return results


def table(results: list[Result]) -> str:
    """A Markdown table. The numbers in brackets are the differences from the smallest size of the
    case.
    """
    rows = [
        "| held | how many | Produce, us | Fetch, us | transaction, us | longest call, ms |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    first = {result.case: result.best for result in reversed(results)}
    for result in results:
        cells = [
            f"{now:.0f} ({(now / then - 1) * 100:+.0f} %)"
            for now, then in zip(result.best, first[result.case], strict=True)
        ]
        rows.append(
            f"| {result.case} | {result.size:,} | {' | '.join(cells)} | {result.longest_ms:.1f} |"
        )
    return "\n".join(rows)


def plot(results: list[Result], path: Path) -> None:
    """Plot cost against size, both logarithmic, with a line for each case."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(
        1, 3, figsize=(12, 4), layout="constrained", sharex=True, sharey=True
    )
    for part, axis in enumerate(axes):
        for case in dict.fromkeys(result.case for result in results):
            own = [result for result in results if result.case == case]
            sizes = [result.size for result in own]
            axis.loglog(sizes, [result.best[part] for result in own], marker="o", label=case)
        axis.set_title(("Produce", "Fetch", "transaction")[part] + ", us of CPU")
        axis.set_xlabel("how many are held")
        axis.set_ylim(10, 1000)  # a fixed range, so that the plot shows growth rather than noise
    axes[0].legend(fontsize=8)
    figure.savefig(path)
    pyplot.close(figure)


def main(faults: list[str] | None = None) -> int:
    """Measure, print the table, and publish the plot if --publish is given.

    Takes: faults, a list to which the watch adds faults; None to measure without a watch.
    Gives: 1 if the watch found faults.
    """
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=__doc__)
    parser.add_argument("cases", nargs="*", default=list(CASES), help=f"of {', '.join(CASES)}")
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of the sizes above 10")
    parser.add_argument("--publish", type=Path, help="where scale.svg is written")
    options = parser.parse_args()
    watches = faults is not None
    faults = [] if faults is None else faults
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # each partition needs an open file
    sizes = (SIZES[0], *(max(SIZES[0] + 1, int(size * options.scale)) for size in SIZES[1:]))
    results: list[Result] = []
    is_faulty = False
    for case in options.cases:
        results += measured(case, sizes, watches=watches)
        for fault in faults:
            print(f"{case}: {fault}\n", flush=True)
        is_faulty = is_faulty or bool(faults)
        faults.clear()
        print(f"… {case}", file=sys.stderr, flush=True)
    print(table(results))
    if options.publish:
        plot(results, options.publish / "scale.svg")
    return int(is_faulty)


if __name__ == "__main__":
    sys.exit(main())

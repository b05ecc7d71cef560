"""The end of a transaction: what the pipeline does while the broker decides."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from barnabas.exactly_once import Commit, Hooks, Out, Pipeline, Record, Step
from barnabas.exactly_once.errors import (
    AbortRequired,
    FatalError,
    OffsetsDeletedError,
    StuckError,
)
from barnabas.exactly_once.records import Output, Place
from barnabas.exactly_once.state import PartitionState

PLACE = Place("in", 0)
PATIENCE_S = 30.0


class FakeReader:
    """A reader of one partition, which is assigned and open."""

    def __init__(self) -> None:
        self.log = [Record("in", 0, at, b"k%d" % at, b"v", (), 1) for at in range(100)]
        self.waiting: deque[Record] = deque()
        self.next = 0
        self.assigned = {PLACE}
        self.on_read_ahead: Callable[[], object] = lambda: None

    def poll(self, count: int, timeout_s: float) -> bool:
        if not self.waiting:
            self._fetch(3)
        return bool(self.waiting)

    def read_ahead(self) -> bool:
        self._fetch(1)
        self.on_read_ahead()
        return True

    def _fetch(self, count: int) -> None:
        self.waiting.extend(self.log[self.next : self.next + count])
        self.next += count

    def next_record(self) -> Record | None:
        return self.waiting.popleft() if self.waiting else None

    def rewind(self, begins: Mapping[Place, int]) -> None:
        self.waiting.clear()
        self.next = begins[PLACE]

    def all_read(self) -> bool:
        return not self.waiting and self.next >= len(self.log)

    def membership(self) -> object:
        return "the membership"

    def close(self) -> None:
        pass


class FakeTransaction:
    """A transaction whose calls wait until the test lets them return, or fail."""

    def __init__(self) -> None:
        self.is_open = False
        self.may_return = {"offsets": threading.Event(), "commit": threading.Event()}
        self.failures: dict[str, BaseException] = {}
        self.calls: list[Any] = []

    def begin(self) -> None:
        self.is_open = True
        self.calls.append("begin")

    def produce(self, output: Output, on_delivery: object = None) -> None:
        self.calls.append(output.value)

    def poll(self) -> None:
        pass

    def send_offsets(self, ends: Mapping[Place, int], membership: object) -> None:
        self.calls.append(("offsets", dict(ends), membership))
        self._wait("offsets")

    def commit(self) -> None:
        self.calls.append("commit")
        self._wait("commit")
        self.is_open = False

    def _wait(self, call: str) -> None:
        assert self.may_return[call].wait(PATIENCE_S)
        if call in self.failures:
            raise self.failures[call]

    def abort(self, patience_s: float = 0) -> None:
        if self.is_open:
            self.calls.append("abort")
        self.is_open = False

    def close(self) -> None:
        self.calls.append("close")

    def let(self, *calls: str) -> None:
        for call in calls or self.may_return:
            self.may_return[call].set()


class Steps(Hooks):
    def __init__(self) -> None:
        self.steps: list[Step] = []

    def on_step(self, step: Step) -> None:
        self.steps.append(step)


class Fixture:
    """A pipeline with a state, which commits after three records, on fakes."""

    def __init__(self) -> None:
        self.hooks = Steps()
        self.pipeline = Pipeline(
            "nowhere:1", "app", reads="in", commit=Commit(records=3, seconds=9), hooks=self.hooks
        )
        self.counts = self.pipeline.state("counts", default=int)
        self.reader, self.transaction = FakeReader(), FakeTransaction()
        self.pipeline._reader = self.reader  # type: ignore[assignment]
        self.pipeline._transaction = self.transaction  # type: ignore[assignment]
        self.part = Part(self.counts)
        self.pipeline._parts[0] = [self.part]  # type: ignore[list-item]
        self.handled: list[int] = []

        @self.pipeline.each
        def handle(record: Record, out: Out) -> None:
            self.handled.append(record.offset)
            self.counts[record.key] = record.offset
            out.send("out", b"%d" % record.offset)

    def turn_until(self, condition: Callable[[], bool]) -> None:
        for _ in range(10_000):
            if condition():
                return
            self.pipeline._turn()
        raise AssertionError("this does not happen")

    def end_at_once(self) -> None:
        """As when a partition is revoked."""
        self.pipeline._commit_or_abort()

    def is_ending(self) -> bool:
        return self.pipeline._ending is not None


class Part:
    """The partition of the state, as the pipeline uses it."""

    def __init__(self, state: Any) -> None:
        self.state, self.row = state, self
        self.partition_number = 0
        self.partition = state.partitions[0] = PartitionState()
        self.committed: list[Mapping[bytes, bytes | None]] = []
        self.closed_after = -1

    def on_delivery(self, error: object, message: object) -> None:
        raise AssertionError("no record is sent")

    def commit(self, changes: Mapping[bytes, bytes | None]) -> None:
        self.partition.commit()
        self.committed.append(changes)

    def abort(self) -> None:
        self.partition.abort()

    def close(self) -> None:
        self.closed_after = len(self.committed)


def never() -> bool:
    """A condition for a loop that an exception ends. It lets time pass."""
    time.sleep(0.001)
    return False


@pytest.fixture
def on_fakes() -> Iterator[Fixture]:
    fixture = Fixture()
    yield fixture
    fixture.transaction.let()


def test_records_are_read_ahead_while_the_broker_decides_and_handled_after(
    on_fakes: Fixture,
) -> None:
    on_fakes.turn_until(on_fakes.is_ending)
    assert on_fakes.handled == [0, 1, 2]
    on_fakes.turn_until(lambda: on_fakes.reader.next == 6)
    assert on_fakes.handled == [0, 1, 2], "no record is handled before the transaction has ended"
    assert on_fakes.transaction.calls[-1] == ("offsets", {PLACE: 3}, "the membership")
    on_fakes.transaction.let("offsets")
    on_fakes.turn_until(lambda: "commit" in on_fakes.transaction.calls)
    assert on_fakes.part.committed == []
    on_fakes.transaction.let("commit")
    on_fakes.turn_until(lambda: on_fakes.part.committed != [])
    assert on_fakes.part.committed == [{b"k0": b"0", b"k1": b"1", b"k2": b"2"}]
    on_fakes.turn_until(lambda: len(on_fakes.handled) >= 6)
    assert on_fakes.handled[:6] == [0, 1, 2, 3, 4, 5], "in order, each once"
    of_a_transaction = [
        *(Step.BEFORE_BEGIN, Step.AFTER_BEGIN),
        *(Step.BEFORE_PRODUCE, Step.AFTER_PRODUCE) * 3,
        *(Step.BEFORE_CHANGELOG, Step.AFTER_CHANGELOG, Step.BEFORE_OFFSETS, Step.AFTER_OFFSETS),
        *(Step.BEFORE_COMMIT, Step.AFTER_COMMIT),
    ]
    assert on_fakes.hooks.steps[: len(of_a_transaction)] == of_a_transaction


@pytest.mark.parametrize("is_revoked", [False, True])
@pytest.mark.parametrize("call", ["offsets", "commit"])
def test_a_call_of_the_client_that_never_returns_ends_the_pipeline(
    on_fakes: Fixture, monkeypatch: pytest.MonkeyPatch, call: str, is_revoked: bool
) -> None:
    """Otherwise it would keep its partitions, and read nothing."""
    monkeypatch.setattr("barnabas.exactly_once.pipeline._HANGS_AFTER_S", 0.2)
    monkeypatch.setattr("barnabas.exactly_once.pipeline._LAST_ABORT_S", 0.0)
    on_fakes.pipeline._patience_s = 0.0
    if call == "commit":
        on_fakes.transaction.let("offsets")
    on_fakes.turn_until(on_fakes.is_ending)
    with pytest.raises(StuckError, match=r"has not returned.*Restart the process"):
        on_fakes.end_at_once() if is_revoked else on_fakes.turn_until(never)
    on_fakes.pipeline._close_after_failure()
    assert on_fakes.transaction.calls[-2:] == ["abort", "close"]
    assert on_fakes.part.committed == []


@pytest.mark.parametrize("lost", [False, True], ids=["revoked", "lost"])
@pytest.mark.parametrize("call", ["offsets", "commit"])
def test_partitions_go_when_the_commit_that_was_begun_is_decided(
    on_fakes: Fixture, call: str, lost: bool
) -> None:
    """The callback comes while records are read ahead."""
    if call == "commit":
        on_fakes.transaction.let("offsets")
    on_fakes.turn_until(on_fakes.is_ending)
    on_fakes.turn_until(lambda: call in str(on_fakes.transaction.calls[-1]))
    timer = threading.Timer(0.05, on_fakes.transaction.let)
    timer.start()
    on_fakes.reader.on_read_ahead = lambda: on_fakes.pipeline._on_revoked([PLACE], lost)
    on_fakes.pipeline._turn()
    timer.join()
    assert not on_fakes.is_ending()
    assert on_fakes.part.closed_after == 1, "its checkpoint has what was committed"
    assert "abort" not in on_fakes.transaction.calls


@pytest.mark.parametrize("call", ["offsets", "commit"])
def test_after_a_refusal_what_was_read_ahead_is_read_again(on_fakes: Fixture, call: str) -> None:
    on_fakes.transaction.failures[call] = AbortRequired("another generation", "rebalance")
    on_fakes.turn_until(on_fakes.is_ending)
    on_fakes.turn_until(lambda: on_fakes.reader.next == 6)
    on_fakes.transaction.let()
    on_fakes.turn_until(lambda: "abort" in on_fakes.transaction.calls)
    assert on_fakes.part.partition.entries == {}, "the changes of state are undone"
    on_fakes.transaction.failures.clear()
    on_fakes.turn_until(lambda: on_fakes.part.committed != [])
    assert on_fakes.handled[:6] == [0, 1, 2, 0, 1, 2]


def test_a_refusal_while_partitions_go_is_an_abort_before_they_go(on_fakes: Fixture) -> None:
    on_fakes.transaction.failures["commit"] = AbortRequired("another generation", "rebalance")
    on_fakes.turn_until(on_fakes.is_ending)
    on_fakes.transaction.let()
    on_fakes.reader.on_read_ahead = lambda: on_fakes.pipeline._on_revoked([PLACE], False)
    on_fakes.reader.rewind = lambda begins: None  # type: ignore[method-assign]
    on_fakes.pipeline._turn()
    assert "abort" in on_fakes.transaction.calls
    assert on_fakes.part.partition.entries == {}
    assert on_fakes.part.closed_after == 0


def test_a_fault_of_the_producer_ends_the_pipeline(on_fakes: Fixture) -> None:
    on_fakes.transaction.failures["commit"] = FatalError("fenced")
    on_fakes.transaction.let()
    with pytest.raises(FatalError):
        on_fakes.turn_until(never)
    assert not on_fakes.is_ending()


def test_a_fault_of_the_reader_waits_for_the_call_and_aborts(on_fakes: Fixture) -> None:
    """The client refuses a second call while one is in flight."""

    def fail() -> None:
        raise OffsetsDeletedError("records were deleted")

    on_fakes.turn_until(on_fakes.is_ending)
    on_fakes.reader.on_read_ahead = fail
    with pytest.raises(OffsetsDeletedError):
        on_fakes.pipeline._turn()
    timer = threading.Timer(0.05, on_fakes.transaction.let)
    timer.start()
    on_fakes.pipeline._close_after_failure()
    timer.join()
    assert on_fakes.transaction.calls[-3:] == [
        ("offsets", {PLACE: 3}, "the membership"), "abort", "close",
    ]  # fmt: skip
    assert on_fakes.part.committed == []


def test_a_run_until_the_end_does_not_end_with_an_abort(on_fakes: Fixture) -> None:
    on_fakes.reader.log = on_fakes.reader.log[:3]
    on_fakes.transaction.failures["commit"] = AbortRequired("another generation", "rebalance")
    on_fakes.transaction.let()
    on_fakes.turn_until(on_fakes.is_ending)
    assert not on_fakes.pipeline._is_at_end(), "its records have to be read again"
    assert "abort" in on_fakes.transaction.calls
    on_fakes.transaction.failures.clear()
    on_fakes.turn_until(on_fakes.is_ending)
    assert on_fakes.pipeline._is_at_end()
    assert on_fakes.part.committed == [{b"k0": b"0", b"k1": b"1", b"k2": b"2"}]

"""The parts of barnabas.exactly_once that need no broker."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections import defaultdict
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from hypothesis import given
from hypothesis import strategies as st

from barnabas.exactly_once import (
    Commit,
    ConfigurationError,
    DatabaseSink,
    Ingest,
    Out,
    Pipeline,
    Record,
    Retry,
    State,
    changelog,
)
from barnabas.exactly_once.changelog import Restorer, Topics
from barnabas.exactly_once.checkpoint import Checkpoint
from barnabas.exactly_once.errors import FatalError, StateError, StuckError
from barnabas.exactly_once.handlers import check_result
from barnabas.exactly_once.pipeline import dead_letter_of
from barnabas.exactly_once.progress import Progress
from barnabas.exactly_once.records import Place
from barnabas.exactly_once.settings import Clients
from barnabas.exactly_once.state import PartitionState, current_partition


def record(offset: int = 0, partition: int = 0, value: bytes = b"abc") -> Record:
    return Record("in", partition, offset, b"k", value, [("h", b"1")], 1234)


# --- progress


def test_a_transaction_commits_the_handled_records_and_returns_to_the_begun_ones() -> None:
    progress = Progress(Commit())
    progress.begin(0.0)
    progress.touch(record(5))
    progress.add(record(5), 1, 10)
    progress.add(record(9), 0, 0)
    progress.touch(record(3, partition=1))
    assert progress.ends == {Place("in", 0): 10}
    assert progress.begins == {Place("in", 0): 5, Place("in", 1): 3}
    assert progress.without([Place("in", 0)]) == {Place("in", 1): 3}
    assert (progress.records, progress.outputs, progress.bytes) == (2, 1, 18)


@pytest.mark.parametrize(
    ("commit", "now"),
    [(Commit(seconds=2), 12.0), (Commit(records=2), 10.0), (Commit(bytes=8), 10.0)],
)
def test_a_transaction_is_due_at_its_first_bound(commit: Commit, now: float) -> None:
    progress = Progress(commit)
    progress.begin(10.0)
    progress.add(record(0), 0, 0)
    assert not progress.is_due(10.0)
    progress.add(record(1), 0, 0)
    assert progress.is_due(now)


# --- requests


def test_a_client_that_gives_no_answer_is_a_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """The future's own timeout is no error of Kafka, which callers handle."""
    monkeypatch.setattr(changelog, "_REQUEST_S", 0.0)
    monkeypatch.setattr(changelog, "_SLACK_S", 0.0)
    topics = Topics({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    monkeypatch.setattr(topics, "_admin", Silent())
    with pytest.raises(FatalError, match="asking for topic orders: no answer from"):
        topics.partitions("orders")
    assert topics.ends([Place("orders", 0)]) == {}, "it is asked for again"


class Refusing:
    """An admin client whose answers are an error."""

    def __init__(self, code: int) -> None:
        self.code = code

    def list_offsets(self, asked: Any, **_: object) -> Any:
        futures: Any = defaultdict(Future)
        for partition in asked:
            futures[partition].set_exception(KafkaException(KafkaError(self.code)))
        return futures

    def list_topics(self, topic: str, timeout: float) -> None:
        raise KafkaException(KafkaError(self.code))


def restorer_of(code: int) -> Restorer:
    """A restorer with one partition of which every broker answers with this error."""
    topics = Topics({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    topics._admin = Refusing(code)
    restorer = Restorer({}, topics, lambda what: None)
    restorer.begin("changelog", "id", 0, None)
    return restorer


@pytest.mark.parametrize(
    "code",
    [
        KafkaError._TRANSPORT,
        KafkaError._NOENT,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    ],
)
def test_restoring_waits_while_a_broker_restarts(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    restorer = restorer_of(code)
    for _ in range(3):
        assert not restorer.step()
    monkeypatch.setattr(changelog, "_PATIENCE_S", 0.0)
    with pytest.raises(StuckError, match="the end of changelog-0 is not known"):
        restorer.step()


def test_restoring_ends_where_the_right_is_missing() -> None:
    with pytest.raises(FatalError, match="no right for the topic"):
        restorer_of(KafkaError.TOPIC_AUTHORIZATION_FAILED).step()


class Silent:
    """An admin client whose futures have no result."""

    def __getattr__(self, name: str) -> Any:
        return lambda asked, **_: defaultdict(Future)


# --- state

STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from([b"a", b"b", b"c"]), st.one_of(st.none(), st.binary(max_size=1))),
        st.sampled_from(["keep", "undo", "commit", "abort"]),
    )
)


@given(STEPS)
def test_state_is_as_a_copy_at_each_boundary_would_be(steps: list[Any]) -> None:
    """The model keeps whole copies: at the last commit, and after the last record."""
    state = PartitionState()
    committed: dict[bytes, bytes] = {}
    kept: dict[bytes, bytes] = {}
    now: dict[bytes, bytes] = {}
    for step in steps:
        if step == "keep":
            state.keep_record()
            kept = dict(now)
        elif step == "undo":
            state.undo_record()
            now = dict(kept)
        elif step == "commit":
            state.keep_record()
            changelog = dict(committed)
            for key, value in state.changes().items():
                assert changelog.get(key) != value, "what did not change is not written"
                if value is None:
                    del changelog[key]
                else:
                    changelog[key] = value
            state.commit()
            committed, kept = dict(now), dict(now)
            assert changelog == committed
        elif step == "abort":
            state.abort()
            now, kept = dict(committed), dict(committed)
        else:
            key, value = step
            state.put(key, value)
            now.pop(key, None)
            if value is not None:
                now[key] = value
        assert state.entries == now


@pytest.fixture
def counts() -> State[Any, int]:
    pipeline = Pipeline("localhost:1", "app", reads="in")
    return pipeline.state("counts", default=int)


def test_a_state_is_a_mapping_of_the_partition_whose_record_is_handled(
    counts: State[Any, int],
) -> None:
    counts.partitions |= {0: PartitionState(), 1: PartitionState()}
    for partition, expected in ((0, 1), (1, 1), (0, 2)):
        token = current_partition.set(partition)
        counts["k"] += 1
        assert counts["k"] == counts[b"k"] == expected
        assert list(counts.items()) == [("k", expected)]
        current_partition.reset(token)
    token = current_partition.set(0)
    del counts["k"]
    assert "k" not in counts and counts.get("k") is None and not len(counts)
    with pytest.raises(KeyError):
        del counts["k"]
    current_partition.reset(token)


def test_a_state_outside_of_a_handler_says_where_it_can_be_used(counts: State[Any, int]) -> None:
    with pytest.raises(StateError, match="only while a record is handled"):
        counts["k"] += 1


def test_a_key_that_is_neither_text_nor_bytes_is_refused(counts: State[Any, int]) -> None:
    counts.partitions[0] = PartitionState()
    token = current_partition.set(0)
    with pytest.raises(TypeError, match="key_encoder"):
        counts[3] = 1
    current_partition.reset(token)


@pytest.mark.parametrize("encoder", ["encoder", "key_encoder"])
def test_an_encoder_has_to_return_bytes(encoder: str) -> None:
    """With text as a key, the restored state, whose keys are bytes, would seem to be empty."""
    pipeline = Pipeline("localhost:1", "app", reads="in")
    counts = pipeline.state("counts", **{encoder: str})  # type: ignore[arg-type]
    counts.partitions[0] = PartitionState()
    token = current_partition.set(0)
    with pytest.raises(TypeError, match=rf"counts.*{encoder} returned a str.*has to return bytes"):
        counts["k"] = 1
    current_partition.reset(token)


# --- checkpoints


def test_a_checkpoint_continues_where_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "a" / "counts-0.db"
    first = Checkpoint(path, "id-1")
    assert first.load() == ({}, 0)
    first.add({b"a": b"1", b"b": b"2"})
    first.write(7)
    first.add({b"a": b"3", b"b": None})
    first.close(9)
    assert Checkpoint(path, "id-1").load() == ({b"a": b"3"}, 9)


def test_changes_that_were_not_written_are_not_there(tmp_path: Path) -> None:
    path = tmp_path / "counts-0.db"
    first = Checkpoint(path, "id-1")
    first.load()
    first.add({b"a": b"1"})
    first.close(None)
    assert Checkpoint(path, "id-1").load() == ({}, 0)


def test_a_checkpoint_of_another_topic_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "counts-0.db"
    first = Checkpoint(path, "id-1")
    first.load()
    first.add({b"a": b"1"})
    first.close(5)
    assert Checkpoint(path, "id-2").load() == ({}, 0)


def test_a_checkpoint_older_than_the_changelogs_tombstones_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "counts-0.db"
    first = Checkpoint(path, "id-1")
    first.load()
    first.add({b"a": b"1"})
    first.close(5)
    now = time.time()
    monkeypatch.setattr("barnabas.exactly_once.checkpoint.time.time", lambda: now + 13 * 3600)
    assert Checkpoint(path, "id-1").load() == ({}, 0)


def test_a_damaged_checkpoint_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "counts-0.db"
    path.write_bytes(b"no database" * 1000)
    checkpoint = Checkpoint(path, "id-1")
    assert checkpoint.load() == ({}, 0)
    checkpoint.add({b"a": b"1"})
    checkpoint.close(5)
    assert Checkpoint(path, "id-1").load() == ({b"a": b"1"}, 5)


@pytest.mark.parametrize("column", ["position", "written_s"])
def test_a_checkpoint_with_other_values_is_made_again(tmp_path: Path, column: str) -> None:
    path = tmp_path / "counts-0.db"
    first = Checkpoint(path, "id-1")
    first.load()
    first.close(5)
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"UPDATE state SET {column} = 'text'")
    assert Checkpoint(path, "id-1").load() == ({}, 0)


def test_a_writer_that_lost_its_partition_changes_no_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "counts-0.db"
    zombie = Checkpoint(path, "id-1")
    zombie.load()
    owner = Checkpoint(path, "id-1")
    owner.load()
    owner.add({b"a": b"new"})
    owner.close(9)
    zombie.add({b"a": b"old"})
    zombie.close(5)
    assert Checkpoint(path, "id-1").load() == ({b"a": b"new"}, 9)


def test_a_disk_that_fails_costs_only_the_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    checkpoint = Checkpoint(tmp_path / "file" / "counts-0.db", "id-1")
    assert checkpoint.load() == ({}, 0)
    checkpoint.add({b"a": b"1"})
    checkpoint.close(5)
    with pytest.raises(sqlite3.OperationalError):
        sqlite3.connect(tmp_path / "file" / "counts-0.db")


# --- records and settings


def test_forward_keeps_key_headers_and_timestamp() -> None:
    out = Out(record(partition=3))
    out.forward("out", "text")
    out.forward("out", None, keep_partition=True)
    assert out.outputs[0] == ("out", b"text", b"k", [("h", b"1")], -1, 1234)
    assert out.outputs[1].partition == 3 and out.outputs[1].value is None


def test_forward_needs_a_record() -> None:
    with pytest.raises(TypeError, match="use send"):
        Out().forward("out", b"")


def test_a_dead_letter_says_where_it_is_from_and_why() -> None:
    letter = dead_letter_of("dead", record(7), ValueError("no number"), 3)
    headers = dict(letter.headers)
    assert letter.value == b"abc" and letter.key == b"k" and headers["h"] == b"1"
    assert headers["dead-letter.offset"] == b"7"
    assert headers["dead-letter.message"] == b"ValueError: no number"


def test_waits_double_up_to_their_bound() -> None:
    retry = Retry(attempts=9, backoff_s=1, most_backoff_s=5)
    assert [retry.wait_s(count) for count in (1, 2, 3, 4, 2000)] == [1, 2, 4, 5, 5]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"reads": []}, "one or more topics"),
        ({"reads": ["a", "a"]}, "each once"),
        ({"reads": "^a.*"}, "no pattern"),
        ({"reads": "a", "instance": "a b"}, "instance"),
        ({"reads": "a", "commit": Commit(seconds=20)}, "below transaction_timeout_s"),
        ({"reads": "a", "dead_letter": "a"}, "read by the pipeline itself"),
        ({"reads": "a", "consumer": {"isolation.level": "read_uncommitted"}}, "aborted records"),
        ({"reads": "a", "client": {"group.id": "x"}}, "argument `application`"),
        ({"reads": "a", "group_protocol": "new"}, "KIP-848"),
        ({"reads": "a", "starts": "middle"}, "'earliest' or 'latest'"),
        ({"reads": "a", "concurrency": 0}, "at least 1"),
    ],
)
def test_an_argument_that_does_not_fit_is_refused_at_once(
    arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Pipeline("localhost:1", "app", **arguments)


@pytest.mark.parametrize("values", [{"seconds": -1}, {"records": 0}, {"bytes": 0}])
def test_bounds_of_a_transaction(values: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        Commit(**values)


def of_a_pipeline() -> Any:
    return Pipeline("localhost:1", "app", reads="in").each


def of_an_ingest() -> Any:
    return Ingest("localhost:1", "app", Nothing()).each


def of_a_sink() -> Any:
    return DatabaseSink("localhost:1", "app", reads="in", connect=lambda: None).each_batch


class Nothing:
    """A source without items."""

    def read(self, after: int | None) -> list[tuple[int, int] | None]:
        return []


async def coroutine(content: object, out: object) -> None: ...


async def asynchronous_generator(content: object, out: object) -> Any:
    yield


def generator(content: object, out: object) -> Any:
    yield


@pytest.mark.parametrize("each", [of_a_pipeline, of_an_ingest, of_a_sink])
@pytest.mark.parametrize("handler", [coroutine, asynchronous_generator, generator])
def test_a_handler_that_would_not_run_is_refused(each: Any, handler: Any) -> None:
    """A call of it only makes an object, and its records would be skipped."""
    if (each, handler) == (of_a_pipeline, coroutine):
        each()(handler)
        return
    with pytest.raises(ConfigurationError, match="handler"):
        each()(handler)


def test_what_a_wrapped_handler_returns_shows_that_it_did_not_run() -> None:
    for result in (coroutine(None, None), generator(None, None)):
        with pytest.raises(ConfigurationError, match=f"returned a {type(result).__name__}"):
            check_result(result)
    check_result("anything else")


def test_a_pipeline_without_a_handler_says_how_to_give_one() -> None:
    with pytest.raises(ConfigurationError, match="@each"):
        Pipeline("localhost:1", "app", reads="in").run()


def test_assignors_and_protocols() -> None:
    named = Clients("s", "app", "i-1", "u")
    old = Clients("s", "app", None, "u")
    new = Clients("s", "app", None, "u", "consumer")
    assert named.transactional_id == "app-i-1" and old.transactional_id == "app-u"
    settings = old.consumer(range_assignor=False, until_end=False)
    assert settings["partition.assignment.strategy"] == "cooperative-sticky"
    assert old.is_cooperative(settings)
    for together in (
        old.consumer(range_assignor=True, until_end=False),
        named.consumer(range_assignor=False, until_end=False),
    ):
        assert together["partition.assignment.strategy"] == "range"
        assert not old.is_cooperative(together)
    settings = new.consumer(range_assignor=True, until_end=False)
    assert settings["group.remote.assignor"] == "range" and new.is_cooperative(settings)
    assert "partition.assignment.strategy" not in settings


@pytest.mark.parametrize("argument", ["client", "consumer"])
def test_named_instances_are_not_cooperative(argument: str) -> None:
    """One that is killed while it gives partitions away, and comes back, would leave them to
    nobody.
    """
    strategy = {argument: {"partition.assignment.strategy": "cooperative-sticky"}}
    with pytest.raises(ConfigurationError, match="Use 'range', group_protocol='consumer'"):
        Pipeline("s", "app", reads="in", instance="one", **strategy)  # type: ignore[arg-type]
    Pipeline("s", "app", reads="in", **strategy)  # type: ignore[arg-type]

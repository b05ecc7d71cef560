"""The pipeline of docs/PIPELINE.md in all its forms: revisions, final results, late records, and
exactly-once output when the driver is killed.

Spark takes seconds for the first batch of each query, so these tests run few queries. One run of
the demo serves all assertions about single events. One kill serves all forms; the queries then
continue in this process.
"""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

import psutil

from barnabas import LocalBroker

EXAMPLE = Path(__file__).resolve().parent.parent.parent / "examples" / "page_views"
sys.path.insert(0, str(EXAMPLE))

import demo  # noqa: E402 (the line above makes these importable)
import per_record  # noqa: E402
from amendments import (  # noqa: E402
    STREAMS,
    TABLES,
    counted_pairs,
    events_in,
    suppressed_totals,
)
from count_views import Job, new_session, read, start_appending, start_until_up  # noqa: E402
from page_views import counted, views_in  # noqa: E402
from per_record import Revision, TaskCounts, in_order, require_protobuf  # noqa: E402
from produce_views import Event, an_event, random_events, send  # noqa: E402
from pyspark.sql import Row  # noqa: E402
from view_topics import COMPACTED, committed_in, make_topic  # noqa: E402

from barnabas.spark_connector.session import MissingRequirementError  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
PATIENCE_S = 600.0  # long enough for a busy machine
TIMES = demo.PAPER + demo.TOO_LATE


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    try:
        session = new_session("tests of page views")
    except MissingRequirementError as error:
        pytest.skip(str(error))
    yield session
    session.stop()


@pytest.fixture(scope="module")
def view_servers() -> Iterator[str]:
    with LocalBroker(settings=demo.BROKER) as broker:
        yield broker.bootstrap_servers


def a_job(servers: str, directory: Path, name: str, **more: Any) -> Job:
    return Job(servers, f"{name}-in", f"{name}-out", directory / "checkpoints", **more)


def counts_in(job: Job, form: str) -> list[tuple[str, int | None]]:
    """Return the key and the count of each record in a form's output."""
    return [
        (record.key, record.value.get("count"))
        for record in committed_in(job.servers, job.topic(form))
    ]


# --- without Spark


def new_task(**more: Any) -> TaskCounts:
    """The counts of a task, with windows of 5 ms and a grace of 10 ms."""
    return TaskCounts(
        **{"stream_time_ms": None, "counts": {}, "window_ms": 5, "grace_ms": 10} | more
    )


def test_each_record_gives_a_revision_or_none_if_its_window_is_closed() -> None:
    # contract: paper/grace
    task = new_task()
    revisions = [task.add("news", time_ms) for time_ms in TIMES]
    assert [(each.window_start_ms, each.count) for each in revisions] == [
        (10, 1), (15, 1), (10, 2), (20, 1), (10, 3), (30, 1), (10, None), (10, None),
    ]  # fmt: skip
    assert [each.stream_time_ms for each in revisions] == [12, 16, 16, 23, 23, 31, 31, 31]


def test_a_window_closes_when_stream_time_reaches_its_end_plus_the_grace() -> None:
    # contract: paper/suppress-close
    task = new_task()
    # The window from 10 to 15 closes at stream time 25.
    assert [task.add("news", time_ms).count for time_ms in (12, 24, 12, 25, 12)] == [
        1,
        1,
        2,
        1,
        None,
    ]
    assert task.close() == [Revision("news", 10, 2, None, 25)]
    assert task.counts == {("news", 20): 1, ("news", 25): 1}


def test_stream_time_is_shared_by_the_categories_of_a_task_only() -> None:
    # contract: paper/repartition
    task, other = new_task(), new_task()
    task.add("news", 40)
    assert task.add("sports", 12).count is None
    assert other.add("sports", 12).count == 1


@pytest.mark.parametrize("seed", range(20))
def test_the_final_counts_do_not_depend_on_the_division_into_batches(seed: int) -> None:
    """A window's final count is its last revision, and is emitted once."""
    draw = random.Random(seed)
    times = [(draw.choice("ab"), max(0, number + draw.randrange(-25, 5))) for number in range(60)]
    whole = new_task()
    expected = [whole.add(*each) for each in times]
    closed = whole.close()
    revisions, final, stream_time, counts = [], [], None, {}
    rest = list(times)
    while rest:
        size = draw.randrange(1, 9)
        task = new_task(stream_time_ms=stream_time, counts=counts)
        revisions += [task.add(*each) for each in rest[:size]]
        final += task.close()
        stream_time, counts, rest = task.stream_time_ms, dict(task.counts), rest[size:]
    assert revisions == expected
    assert any(each.count is None for each in revisions)
    last = {each[:2]: each.count for each in revisions if each.count is not None}
    assert {each[:2]: each.count for each in final} == {
        window: last[window] for window in last.keys() - counts.keys()
    }
    assert sorted(each[:3] for each in final) == sorted(each[:3] for each in closed)


def test_partitions_are_merged_by_time_and_each_keeps_its_offset_order() -> None:
    rows = [
        Row(partition=0, offset=offset, time_ms=time_ms)
        for offset, time_ms in enumerate((10, 40, 20, 50))
    ]
    rows += [
        Row(partition=1, offset=offset, time_ms=time_ms)
        for offset, time_ms in enumerate((15, 30, 45))
    ]
    for seed in range(5):
        random.Random(seed).shuffle(rows)
        assert [row.time_ms for row in in_order(rows)] == [10, 15, 30, 40, 20, 45, 50]


def test_an_old_protobuf_is_an_error_with_the_needed_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(per_record.importlib.metadata, "version", lambda name: "5.29.1")
    with pytest.raises(
        SystemExit,
        match=r"needs protobuf 6\.33\.5 or later, found 5\.29\.1: pip install 'protobuf>=6\.33\.5'",
    ):
        require_protobuf()


def test_generated_events_repeat_for_a_seed_and_are_late_by_the_given_time_at_most() -> None:
    events = list(random_events(500, seed=3, start_s=100.0, out_of_order_s=8.0))
    assert events == list(random_events(500, seed=3, start_s=100.0, out_of_order_s=8.0))
    times = [event["time_ms"] for event in events]
    assert 0 < max(itertools.accumulate(times, max)) - min(times) < 60_000
    delays = [
        latest - time_ms
        for time_ms, latest in zip(times, itertools.accumulate(times, max), strict=True)
    ]
    assert 0 < max(delays) <= 8000
    assert 20 < sum(event["dwell_ms"] < 1000 for event in events) < 80


@pytest.mark.parametrize("script", ["produce_views.py", "count_views.py", "demo.py"])
def test_help(script: str) -> None:
    root = str(EXAMPLE.parent.parent)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")])),
    }
    ran = subprocess.run(
        [sys.executable, str(EXAMPLE / script), "--help"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=environment,
    )
    assert ran.returncode == 0, ran.stderr
    assert "usage: " + script in ran.stdout


# --- what each form emits


@pytest.mark.long
def test_each_form_emits_the_table_of_the_guide(
    spark: SparkSession, view_servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # contract: paper/figure-2, paper/revisions, paper/compacted-table
    """With one event in each micro-batch, the output equals the table of docs/PIPELINE.md. With all
    events in one micro-batch, the per-record form still gives the same output.
    """
    monkeypatch.setattr(demo, "COMPACTION_TIMEOUT_S", PATIENCE_S)
    job = a_job(view_servers, tmp_path, "paper", max_events=1)
    steps = list(demo.run(spark, job, TIMES))
    assert [step.time_s for step in steps] == list(TIMES)
    assert [step.emitted["revisions"] for step in steps] == [
        ["[10,15) 1"],
        ["[15,20) 1"],
        ["[10,15) 2"],
        ["[20,25) 1"],
        ["[10,15) 3"],
        ["[30,35) 1"],
        ["[10,15) 4"],
        [],
    ]
    # The event before the last is late, but Spark counts it, because Spark filters a batch by the
    # watermark of two batches earlier.
    assert [step.emitted["final"] for step in steps] == [
        [],
        [],
        [],
        [],
        [],
        [],
        ["[10,15) 4", "[15,20) 1"],
        [],
    ]
    assert [step.emitted["per-record"] for step in steps] == [
        ["[10,15) 1"],
        ["[15,20) 1"],
        ["[10,15) 2"],
        ["[20,25) 1"],
        ["[10,15) 3"],
        ["[30,35) 1"],
        ["[10,15) too late"],
        ["[10,15) too late"],
    ]

    left = demo.compacted(job)
    assert {record.key: record.value["count"] for record in left} == {
        "news@10000": 4,
        "news@15000": 1,
        "news@20000": 1,
        "news@30000": 1,
    }
    assert len(left) <= 5, "seven revisions were not compacted"

    together = a_job(view_servers, tmp_path / "together", "paper", max_events=8, until_now=True)
    together = Job(**{**vars(together), "output": "together"})
    for form in ("per-record", "per-record-final"):
        start_until_up(spark, form, together).awaitTermination()
    one_by_one = [record.value for record in committed_in(view_servers, job.topic("per-record"))]
    assert [
        record.value for record in committed_in(view_servers, together.topic("per-record"))
    ] == one_by_one
    late = [record.value for record in committed_in(view_servers, job.late_topic("per-record"))]
    for form in ("per-record", "per-record-final"):
        assert [
            record.value for record in committed_in(view_servers, together.late_topic(form))
        ] == late
    assert counts_in(together, "per-record-final") == [("news@10000", 3), ("news@15000", 1)]


# --- operators whose results are amended


@pytest.mark.long
def test_spark_emits_what_the_operators_emit(
    spark: SparkSession, view_servers: str, tmp_path: Path
) -> None:
    """Two queries of several operators with different grace, over inputs in wrong order. Each of
    their micro-batches has four events; the state passes from one to the next.
    """
    # contract: paper/stream-stream-join, paper/table-table-join, paper/retraction
    # contract: paper/suppress-time, paper/grace-per-operator
    for name, events, pipeline, expected in (
        ("pairs", STREAMS, counted_pairs, ["15: 1", "10: 1", "20: 1"]),
        ("totals", TABLES, suppressed_totals, ["news+de: 0", "news+null: 0", "news+at: 1"]),
    ):
        job = a_job(view_servers, tmp_path, name, max_events=4, until_now=True)
        for topic in (job.input, job.topic(name)):
            make_topic(view_servers, topic)
        send(view_servers, job.input, [{"user": event.key, **event._asdict()} for event in events])
        results = pipeline(events_in(read(spark, job))).selectExpr(
            "key", "to_json(struct(key, new, offset, part)) AS value"
        )
        start_appending(results, name, job).awaitTermination()
        found = [record.value for record in committed_in(view_servers, job.topic(name))]
        found.sort(key=lambda value: (value["offset"], value["part"]))
        assert [f"{value['key']}: {value['new']}" for value in found] == expected


# --- a driver that is killed


def views(*events: tuple[int, str]) -> list[Event]:
    return [an_event(time_s, category) for time_s, category in events]


BEFORE = views((12, "news"), (13, "sports"), (16, "news"), (14, "news"))
AFTER = [
    *views((21, "sports"), (17, "sports")),
    an_event(22, "news", dwell_ms=300),  # not counted, since the view was too short
    *views((23, "news"), (19, "news")),
    {"user": "ada", "category": "news", "time_ms": 22_500, "dwell_ms": "a while"},  # not an event
    *views((26, "sports"), (24, "news"), (31, "sports"), (28, "news"), (40, "news")),
]
REVISIONS = [
    ("news@10000", 1),
    ("sports@10000", 1),
    ("news@15000", 1),
    ("news@10000", 2),
    ("sports@20000", 1),
    ("sports@15000", 1),
    ("news@20000", 1),
    ("news@15000", 2),
    ("sports@25000", 1),
    ("news@20000", 2),
    ("sports@30000", 1),
    ("news@25000", 1),
    ("news@40000", 1),
]
# not final at stream time 40, which is before their ends plus the grace period of 10
OPEN = {"sports@30000", "news@40000"}
FORMS = ("revisions", "final", "per-record")


def start_driver(job: Job, log: Path) -> subprocess.Popen[bytes]:
    """Start the example's driver as a process that reads one event in each micro-batch. Its output
    goes to `log`.
    """
    root = str(EXAMPLE.parent.parent)
    arguments = [
        "--bootstrap-servers",
        job.servers,
        "--input",
        job.input,
        "--output",
        job.output,
        "--checkpoint",
        str(job.checkpoint),
    ]
    with log.open("wb") as output:
        return subprocess.Popen(
            [
                sys.executable,
                str(EXAMPLE / "count_views.py"),
                "--form",
                *FORMS,
                *arguments,
                "--max-events",
                "1",
            ],
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONPATH": root},
        )


def kill_with_children(process: subprocess.Popen[bytes]) -> None:
    """Send SIGKILL to the driver, to its JVM and to the workers."""
    children = (
        psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
    )
    process.kill()
    for child in children:
        try:
            child.kill()
        except psutil.NoSuchProcess:
            pass
    process.wait(30)
    psutil.wait_procs(children, timeout=30)


def wait_for(
    job: Job, count: int, *, every: bool, driver: subprocess.Popen[bytes], log: Path
) -> None:
    """Wait until the two forms that emit a revision for each event have emitted `count` records. If
    `every` is false, one of the two forms is enough.
    """
    deadline = time.monotonic() + PATIENCE_S
    while True:
        assert driver.poll() is None, f"the driver has ended:\n{log.read_text()[-4000:]}"
        reached = [len(counts_in(job, form)) >= count for form in ("revisions", "per-record")]
        if all(reached) if every else any(reached):
            return
        assert time.monotonic() < deadline, (
            f"{reached} after {PATIENCE_S} s:\n{log.read_text()[-4000:]}"
        )
        time.sleep(0.02)


def check_that_the_state_is_in_changelogs(job: Job, form: str) -> None:
    """Check that the last micro-batch wrote only changelogs and no snapshots, so that a restarted
    query must read changelogs.
    """
    last = max(int(path.name) for path in (job.checkpoint / form / "commits").glob("[0-9]*"))
    stores = [
        path for path in (job.checkpoint / form / "state" / "0").glob("[0-9]*") if path.is_dir()
    ]
    assert stores
    for store in stores:
        assert (store / f"{last + 1}.changelog").exists(), sorted(
            path.name for path in store.iterdir()
        )
        assert not (store / f"{last + 1}.zip").exists()


@pytest.mark.long
def test_a_new_driver_continues_exactly_once_after_the_first_was_killed(
    spark: SparkSession, view_servers: str, tmp_path: Path
) -> None:
    # contract: paper/state-store
    """The driver runs all forms and is killed between the events; a new one continues from the
    forms' checkpoints.
    """
    job = a_job(view_servers, tmp_path, "killed", max_events=1)
    log = tmp_path / "driver.log"
    make_topic(view_servers, job.input)
    for form in FORMS:
        make_topic(
            view_servers,
            job.topic(form),
            config=COMPACTED if form == "revisions" else {"retention.ms": "-1"},
        )
    make_topic(view_servers, job.late_topic("per-record"))
    send(view_servers, job.input, BEFORE)
    driver = start_driver(job, log)
    try:
        wait_for(job, len(BEFORE), every=True, driver=driver, log=log)
        send(
            view_servers, job.input, AFTER[:4]
        )  # the other events are sent later, so that the query cannot finish before the kill
        wait_for(job, len(BEFORE) + 1, every=False, driver=driver, log=log)
        while not list((job.checkpoint / "final" / "commits").glob("[0-9]*")):
            wait_for(job, len(BEFORE) + 1, every=False, driver=driver, log=log)
    finally:
        kill_with_children(driver)
    send(view_servers, job.input, AFTER[4:])
    for form in ("revisions", "per-record"):
        assert counts_in(job, form) == REVISIONS[: len(counts_in(job, form))]
        assert len(counts_in(job, form)) < len(REVISIONS), "it was not killed in the middle"
    for form in FORMS:
        check_that_the_state_is_in_changelogs(job, form)

    go_on = Job(**{**vars(job), "until_now": True})
    for form in FORMS:
        start_until_up(spark, form, go_on).awaitTermination()

    assert counts_in(job, "revisions") == REVISIONS
    assert counts_in(job, "per-record") == REVISIONS
    assert committed_in(view_servers, job.late_topic("per-record")) == []
    records = (
        spark.read.format("barnabas")
        .option("kafka.bootstrap.servers", view_servers)
        .option("subscribe", job.input)
        .load()
    )
    at_once = {
        f"{row.category}@{row.window_start_ms}": row["count"]
        for row in counted(views_in(records)).collect()
    }
    assert dict(counts_in(job, "revisions")) == at_once
    final = counts_in(job, "final")
    assert dict(final) == {window: count for window, count in at_once.items() if window not in OPEN}
    assert len(final) == len(at_once) - len(OPEN), f"a window is there twice: {final}"

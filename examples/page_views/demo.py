"""Sends the events of the paper through all three forms, each event in its own micro-batch. Shows
the output of each form after each event, and the records that remain in the compacted topic.

It starts a broker and runs Spark in this process, with all files in a temporary directory. It takes
a minute, most of which passes before Spark has run its first batches.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from count_views import Job, new_session, start_all
from page_views import WINDOW_MS
from produce_views import an_event, send
from view_topics import COMPACTED, INPUT, Found, committed_in, make_topic

from barnabas import LocalBroker
from barnabas.spark_connector.session import MissingRequirementError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAPER = (12, 16, 14, 23, 12)
TOO_LATE = (31, 12, 12)  # at 31 the window [10, 15) is closed: its grace period ended at 25
FORMS = ("revisions", "final", "per-record")
# The broker compacts at once. A segment holds one revision, so that all but the last are inactive
# and can be compacted.
BROKER = {
    "log.cleaner.backoff.ms": "100",
    "log.initial.task.delay.ms": "100",
    "log.segment.delete.delay.ms": "100",
}
COMPACTED_AT_ONCE = {**COMPACTED, "min.cleanable.dirty.ratio": "0.01", "segment.bytes": "300"}
COMPACTION_TIMEOUT_S = 30.0


class Step(NamedTuple):
    """An event, and the output of each form after it."""

    time_s: int
    emitted: dict[str, list[str]]


def run(spark: SparkSession, job: Job, times: Iterable[int]) -> Iterator[Step]:
    """Send one event after the other. Yield a step after each, when all forms have processed it."""
    make_topic(job.servers, job.input)
    make_topic(job.servers, job.topic("revisions"), config=COMPACTED_AT_ONCE)
    # Spark would also run batches without data, some time after the watermark has advanced. With
    # this setting each event is one batch, and the output does not depend on the speed of the
    # machine.
    spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
    queries = start_all(spark, FORMS, job)
    try:
        outputs = {topic: 0 for form in FORMS for topic in topics_of(job, form)}
        for time_s in times:
            send(job.servers, job.input, [an_event(time_s)])
            for query in queries:
                query.processAllAvailable()
            yield Step(
                time_s,
                {
                    form: [
                        text
                        for topic in topics_of(job, form)
                        for text in new_in(job, topic, outputs)
                    ]
                    for form in FORMS
                },
            )
    finally:
        for query in queries:
            query.stop()
        spark.conf.unset("spark.sql.streaming.noDataMicroBatches.enabled")


def topics_of(job: Job, form: str) -> list[str]:
    """The topics that a form writes."""
    return [job.topic(form)] + ([job.late_topic(form)] if form.startswith("per-record") else [])


def new_in(job: Job, topic: str, read_up_to: dict[str, int]) -> list[str]:
    """Return the records added to the topic since the last call, sorted by window."""
    found = committed_in(job.servers, topic, read_up_to[topic])
    if found:
        read_up_to[topic] = found[-1].offset + 1
    return [
        text_of(record)
        for record in sorted(found, key=lambda record: record.value["window_start_ms"])
    ]


def text_of(record: Found) -> str:
    """A count as text: its window in seconds, and the number of views."""
    start, count = record.value["window_start_ms"], record.value.get("count")
    return (
        f"[{start // 1000},{(start + WINDOW_MS) // 1000}) {'too late' if count is None else count}"
    )


def compacted(job: Job) -> list[Found]:
    """Return the records of the topic of revisions, after the broker has compacted it.

    The last segment is never compacted, so older revisions of its keys may remain.
    """
    deadline = time.monotonic() + COMPACTION_TIMEOUT_S
    while True:
        found = committed_in(job.servers, job.topic("revisions"))
        if len(found) <= len({record.key for record in found}) + 1 or time.monotonic() > deadline:
            return found
        time.sleep(0.2)


def print_table(steps: Sequence[Step]) -> None:
    """Print which counts each form emitted after each event."""
    print(f"\n{'event at':10}" + "".join(f"{form:24}" for form in FORMS))
    for step in steps:
        cells = [", ".join(step.emitted[form]) or "-" for form in FORMS]
        print(f"{step.time_s:<10}" + "".join(f"{cell:24}" for cell in cells))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo. Gives: the exit code."""
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args(arguments)
    try:
        spark = new_session()
    except MissingRequirementError as error:
        print(f"the demo cannot run here: {error}", file=sys.stderr)
        return 1
    with (
        tempfile.TemporaryDirectory(prefix="page-views-") as directory,
        LocalBroker(settings=BROKER) as broker,
    ):
        job = Job(broker.bootstrap_servers, INPUT, "views", Path(directory), max_events=1)
        try:
            steps = []
            for step in run(spark, job, PAPER + TOO_LATE):
                print(f"* event at {step.time_s} s counted", flush=True)
                steps.append(step)
            print_table(steps)
            left = compacted(job)
            print(f"\nThe compacted topic holds {len(left)} records; the last of each key:")
            for key, text in {record.key: text_of(record) for record in left}.items():
                print(f"  {key:12} {text}")
        finally:
            spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())

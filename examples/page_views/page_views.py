"""The pipeline itself, as functions from DataFrame to DataFrame. It parses and filters events,
changes their keys, and counts them. This module does not use topics.

    records of the input topic -> parsed -> stayed -> by_category -> counted -> as_records ->
    records of an output topic

The same functions serve streams and batch reads: the final result of a stream must equal their
result for the whole topic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

EVENT = "user string, page string, category string, time_ms long, dwell_ms long"
WINDOW_MS = 5_000
GRACE_MS = 10_000
SHORTEST_STAY_MS = 1_000


def parsed(records: DataFrame) -> DataFrame:
    """Read the events from the values of records, together with the position of each record.

    If a value is not an event, its columns are null.
    """
    event = F.from_json(F.col("value").cast("string"), EVENT)
    return records.select(event.alias("event"), "partition", "offset").select(
        "event.*", "partition", "offset"
    )


def stayed(events: DataFrame) -> DataFrame:
    """Keep the views that lasted at least a second: in a shorter view the page was not read.

    Values that are not events are also left out.
    """
    return events.where(
        (F.col("dwell_ms") >= SHORTEST_STAY_MS)
        & F.col("category").isNotNull()
        & F.col("time_ms").isNotNull()
    )


def by_category(views: DataFrame) -> DataFrame:
    """Change the key from the user, which is the key of the input records, to the category, by
    which the views are counted.

    Only the columns for counting are shuffled.
    """
    return views.select("category", "time_ms", "partition", "offset")


def views_in(records: DataFrame) -> DataFrame:
    """Apply all steps before the counting."""
    return by_category(stayed(parsed(records)))


def counted(views: DataFrame) -> DataFrame:
    """Count the views of each category in each window: columns category, window_start_ms, count.

    In a stream the watermark closes a window when the latest event time minus the grace period
    reaches the end of the window.
    """
    with_time = views.withColumn("time", F.timestamp_millis("time_ms")).withWatermark(
        "time", f"{GRACE_MS} milliseconds"
    )
    counts = with_time.groupBy("category", F.window("time", f"{WINDOW_MS} milliseconds")).count()
    return counts.select(
        "category", F.unix_millis("window.start").alias("window_start_ms"), "count"
    )


def as_records(counts: DataFrame) -> DataFrame:
    """Convert the counts to keys and values of records.

    The key consists of category and window, so that a compacted topic keeps the last count of each
    window. Other columns are kept.
    """
    window_end = (F.col("window_start_ms") + WINDOW_MS).alias("window_end_ms")
    own = ("category", "window_start_ms", "count")
    more = [name for name in counts.columns if name not in (*own, "topic")]
    return counts.select(
        F.concat("category", F.lit("@"), F.col("window_start_ms").cast("string")).alias("key"),
        F.to_json(F.struct("category", "window_start_ms", window_end, "count", *more)).alias(
            "value"
        ),
        *[name for name in counts.columns if name == "topic"],
    )

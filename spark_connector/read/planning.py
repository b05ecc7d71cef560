"""The plan of a batch read, which the driver makes: the partitions that exist, and where the range
of each partition begins and ends.
"""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.client.cluster_reader import ClusterReader
from barnabas.client.notices import logger
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.spark_connector.option_error import OptionError
from barnabas.spark_connector.read.cuts import CutReader
from barnabas.spark_connector.read.filters import Narrowing
from barnabas.spark_connector.read.offsets import (
    EARLIEST,
    LATEST,
    OffsetRange,
    Offsets,
    OffsetSpec,
    divide,
)
from barnabas.spark_connector.read.open_transactions import OpenTransactionWait, UndecidedRange
from barnabas.spark_connector.read.options import (
    CutOptions,
    OpenTransactions,
    SourceOptions,
    Subscription,
)
from barnabas.spark_connector.read.reading import NEVER_THERE, DataLossError, not_read

EVERYTHING = Narrowing()


def plan(
    client: ClusterReader, options: SourceOptions, narrowing: Narrowing = EVERYTHING
) -> list[OffsetRange]:
    """Make the ranges of a batch read, one for each task. They do not have the offsets that filters
    exclude.

    Raises: OptionError, OpenTransactionError, ClientError; DataLossError if the log ends before a
            given starting offset.
    """
    if options.cuts is not None:
        partitions, starts, ends = _bounds_of_cuts(client, options, options.cuts)
    else:
        partitions = partitions_to_read(client, options.subscription)
        starts = resolve(
            client, options.starting, partitions, read_committed=options.read_committed
        )
        ends = resolve_ends(client, options, partitions)
        _check_order(client, options, starts, ends)
    ranges = [
        narrowing.cut(OffsetRange(*name, starts[name], ends[name]))
        for name in partitions
        if narrowing.keeps(name)
    ]
    ranges = [each for each in ranges if each.size > 0]
    if options.read_committed and options.ending.everywhere is None:
        decided = wait_for_open_transactions(
            client, {each.name: each.end_offset for each in ranges}, options.open_transactions
        )
        ranges = [each._replace(end_offset=decided[each.name]) for each in ranges]
    if narrowing.from_timestamp_ms is not None:
        ranges = _from_timestamp(client, ranges, narrowing.from_timestamp_ms)
    return divide(
        ranges, min_partitions=options.min_partitions, max_records=options.max_records_per_partition
    )


def _bounds_of_cuts(
    client: ClusterReader, options: SourceOptions, cuts: CutOptions
) -> tuple[list[TopicPartition], Offsets, Offsets]:
    """Find the partitions of a batch read of whole transactions, and the cuts where it begins and
    ends.

    Raises: OptionError if a topic does not have the setting, or if no cut of a given time is
            recorded; ClientError.
    """
    reader = CutReader(client)
    partitions = partitions_to_read(client, options.subscription)
    while cuts.ending_ms is None:
        ends = reader.newest(partitions, {})
        # A transaction below the ends may also have written to a partition that was created
        # since the partitions were requested.
        before, partitions = partitions, partitions_to_read(client, options.subscription)
        if partitions == before:
            break
    reader.check(partitions)
    if cuts.ending_ms is not None:
        ends = reader.as_of(partitions, cuts.ending_ms, cuts.ending_option)
    if cuts.starting_ms is not None:
        starts = reader.as_of(partitions, cuts.starting_ms, "startingCut")
    else:
        starts = resolve(client, options.starting, partitions, read_committed=True)
    return partitions, starts, ends


def _check_order(
    client: ClusterReader, options: SourceOptions, starts: Offsets, ends: Offsets
) -> None:
    """Reject starting offsets that are beyond the end.

    The offset of a timestamp is not checked, since it may be beyond the end.
    """
    behind = [name for name in sorted(options.starting.offsets) if starts[name] > ends[name]]
    if not behind:
        return
    for name in behind:
        if options.ending.offsets:
            raise OptionError(
                f"option startingOffsets: {starts[name]} for {name} is behind the {ends[name]} of "
                "endingOffsets"
            )
    if options.ending.everywhere is None:
        return
    marks = client.offsets_at(dict.fromkeys(behind, LATEST), read_committed=False)
    for name in behind:
        mark = marks[name] or 0
        if mark >= starts[name]:
            continue  # the log reaches the offset, but a transaction is open before the end
        what = f"the log of {name} ends at {mark}, before startingOffsets, {starts[name]}"
        if options.fail_on_data_loss:
            raise DataLossError(not_read(what, NEVER_THERE))
        logger.warning("barnabas: %s: no record of it is read (failOnDataLoss=false)", what)


def _from_timestamp(
    client: ClusterReader, ranges: list[OffsetRange], timestamp_ms: int
) -> list[OffsetRange]:
    """Let each range begin at its first record whose timestamp is late enough. Without such a
    record, the range is empty.
    """
    # The ends are requested first: records written between the two requests may be late enough, and
    # must not be skipped.
    ends = client.offsets_at({each.name: LATEST for each in ranges}, read_committed=False)
    firsts = client.offsets_at({each.name: timestamp_ms for each in ranges}, read_committed=False)
    narrowed = []
    for each in ranges:
        first = firsts[each.name]
        start = ends[each.name] or 0 if first is None else first
        narrowed.append(
            each._replace(start_offset=min(max(each.start_offset, start), each.end_offset))
        )
    return narrowed


def partitions_to_read(client: ClusterReader, subscription: Subscription) -> list[TopicPartition]:
    """Return all subscribed partitions, in order.

    Raises: OptionError if an assigned partition does not exist.
    """
    if subscription.pattern is not None:
        topics = client.topics_matching(subscription.pattern)
        if not topics:
            logger.warning(
                "barnabas: subscribePattern=%s matches no topic: no record is read yet",
                subscription.pattern,
            )
        return client.partitions_of(topics) if topics else []
    if subscription.topics:
        return client.partitions_of(subscription.topics)
    existing = set(client.partitions_of({name.topic for name in subscription.partitions}))
    missing = [str(name) for name in subscription.partitions if name not in existing]
    if missing:
        raise OptionError(f"option assign names partitions that do not exist: {', '.join(missing)}")
    return list(subscription.partitions)


def resolve(
    client: ClusterReader,
    spec: OffsetSpec,
    partitions: list[TopicPartition],
    *,
    read_committed: bool,
) -> dict[TopicPartition, int]:
    """Find the offset that `spec` denotes in each partition.

    Raises: OptionError if `spec` lists other partitions, or if no record is late enough.
    """
    named = spec.partitions
    if named is not None and named != set(partitions):
        raise OptionError(
            f"option {spec.option} has to name every partition that is read and no other: "
            f"{_difference(named, partitions)}"
        )
    if spec.offsets:
        offsets: dict[TopicPartition, int | None] = {
            name: spec.offsets[name] for name in partitions
        }
        log_edges = {
            name: spec.offsets[name]
            for name in partitions
            if spec.offsets[name] in (EARLIEST, LATEST)
        }
        offsets.update(client.offsets_at(log_edges, read_committed=read_committed))
        return {name: offsets[name] or 0 for name in partitions}
    if spec.everywhere is not None:
        timestamps = dict.fromkeys(partitions, spec.everywhere)
    elif spec.timestamp_ms is not None:
        timestamps = dict.fromkeys(partitions, spec.timestamp_ms)
    else:
        timestamps = {name: spec.timestamps_ms[name] for name in partitions}
    offsets = client.offsets_at(timestamps, read_committed=read_committed)
    too_late = [name for name in partitions if offsets[name] is None]
    if too_late and not spec.or_latest:
        raise OptionError(
            f"option {spec.option}: no record has this time or a later one in "
            f"{', '.join(map(str, too_late))}; startingOffsetsByTimestampStrategy=latest begins "
            "at the end there"
        )
    latest = client.offsets_at(dict.fromkeys(too_late, LATEST), read_committed=read_committed)
    offsets.update(latest)
    return {name: offsets[name] or 0 for name in partitions}


def resolve_ends(
    client: ClusterReader, options: SourceOptions, partitions: list[TopicPartition]
) -> Offsets:
    """Find the end offsets of a batch read.

    If the end is given by a timestamp, it may be beyond the last stable offset, since the first
    record that is late enough may be in an open transaction. If there is no such record, the end is
    the last stable offset, as for `latest`.
    """
    ends = resolve(client, options.ending, partitions, read_committed=options.read_committed)
    if options.ending.everywhere is None and not options.ending.offsets:
        timestamps = options.ending.timestamps_ms or dict.fromkeys(
            partitions, options.ending.timestamp_ms or 0
        )
        offsets = client.offsets_at(timestamps, read_committed=False)
        ends.update({name: offset for name, offset in offsets.items() if offset is not None})
    return ends


def wait_for_open_transactions(
    client: ClusterReader, ends: Mapping[TopicPartition, int], policy: OpenTransactions
) -> Offsets:
    """Wait until all transactions before the ends are decided. Gives: the ends.

    If the policy is not to wait, an end beyond the last stable offset is replaced by this offset.
    An end beyond the whole log is unchanged, since transactions are not the reason.
    """
    wait = OpenTransactionWait(policy)
    while True:
        stable = client.offsets_at(dict.fromkeys(ends, LATEST), read_committed=True)
        beyond_stable = [name for name, end in ends.items() if end > (stable[name] or 0)]
        if not beyond_stable:
            return dict(ends)
        log_ends = client.offsets_at(dict.fromkeys(beyond_stable, LATEST), read_committed=False)
        # The last stable offset is requested again, after the end of the log. Otherwise records
        # written in between would look like an open transaction.
        stable = client.offsets_at(dict.fromkeys(beyond_stable, LATEST), read_committed=True)
        undecided = {
            name: UndecidedRange(ends[name], stable[name] or 0)
            for name in beyond_stable
            if (stable[name] or 0) < min(ends[name], log_ends[name] or 0)
        }
        if not undecided:
            return dict(ends)
        if not wait.look_again(undecided):
            return {**ends, **{name: each.transaction_start for name, each in undecided.items()}}


def _difference(named: set[TopicPartition], partitions: list[TopicPartition]) -> str:
    """Which partitions are missing in an option, and which are superfluous, as words for a
    message.
    """
    missing = sorted(set(partitions) - named)
    unknown = sorted(named - set(partitions))
    parts = []
    if missing:
        parts.append(f"{', '.join(map(str, missing))} is missing")
    if unknown:
        parts.append(f"{', '.join(map(str, unknown))} is not read")
    return ", ".join(parts)

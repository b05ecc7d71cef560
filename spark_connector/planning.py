"""From options to offset ranges: which partitions there are, and where each one's range begins and ends. What the driver does."""

from __future__ import annotations

from spark_connector.client import Client
from spark_connector.offsets import EARLIEST, LATEST, OffsetRange, OffsetSpec, PartitionName, divide
from spark_connector.options import OptionError, SourceOptions, Subscription


def plan(client: Client, options: SourceOptions) -> list[OffsetRange]:
    """One range for each task of a batch read. Raises OptionError, ClientError."""
    partitions = partitions_to_read(client, options.subscription)
    starts = resolve(client, options.starting, partitions, read_committed=options.read_committed)
    ends = resolve(client, options.ending, partitions, read_committed=options.read_committed)
    ranges = [OffsetRange(*name, starts[name], ends[name]) for name in partitions]
    return divide(ranges, min_partitions=options.min_partitions, max_records=options.max_records_per_partition)


def partitions_to_read(client: Client, subscription: Subscription) -> list[PartitionName]:
    """All partitions that were subscribed to, in order. Raises OptionError where an assigned one does not exist."""
    if subscription.pattern is not None:
        return client.partitions_of(topics) if (topics := client.topics_matching(subscription.pattern)) else []
    if subscription.topics:
        return client.partitions_of(subscription.topics)
    existing = set(client.partitions_of({name.topic for name in subscription.partitions}))
    missing = [str(name) for name in subscription.partitions if name not in existing]
    if missing:
        raise OptionError(f"option assign names partitions that do not exist: {', '.join(missing)}")
    return list(subscription.partitions)


def resolve(client: Client, spec: OffsetSpec, partitions: list[PartitionName], *, read_committed: bool) -> dict[PartitionName, int]:
    """The offset that `spec` means, for each partition. Raises OptionError where it names others, or no record is late enough."""
    named = spec.partitions
    if named is not None and named != set(partitions):
        raise OptionError(f"option {spec.option} has to name every partition that is read and no other: {_difference(named, partitions)}")
    if spec.offsets:
        given = {name: spec.offsets[name] for name in partitions}
        asked = {name: offset for name, offset in given.items() if offset in (EARLIEST, LATEST)}
        known = client.offsets_at(asked, read_committed=read_committed)
        return {name: given[name] if name not in asked else known[name] or 0 for name in partitions}
    if spec.everywhere is not None:
        asked = dict.fromkeys(partitions, spec.everywhere)
    elif spec.timestamp_ms is not None:
        asked = dict.fromkeys(partitions, spec.timestamp_ms)
    else:
        asked = {name: spec.timestamps_ms[name] for name in partitions}
    found = client.offsets_at(asked, read_committed=read_committed)
    too_late = [name for name in partitions if found[name] is None]
    if too_late and not spec.or_latest:
        raise OptionError(
            f"option {spec.option}: no record is that late in {', '.join(map(str, too_late))}; "
            "startingOffsetsByTimestampStrategy=latest would begin at the end there"
        )
    found.update(client.offsets_at(dict.fromkeys(too_late, LATEST), read_committed=read_committed))
    return {name: found[name] or 0 for name in partitions}


def _difference(named: set[PartitionName], partitions: list[PartitionName]) -> str:
    missing = sorted(set(partitions) - named)
    unknown = sorted(named - set(partitions))
    parts = []
    if missing:
        parts.append(f"{', '.join(map(str, missing))} is missing")
    if unknown:
        parts.append(f"{', '.join(map(str, unknown))} is not read")
    return ", ".join(parts)

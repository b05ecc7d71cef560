"""Cuts: ends of partitions that divide no transaction (`wholeTransactions`).

Barnabas keeps the last stable offsets of the topics with `barnabas.transactions.whole` on a cut, at
every moment: of each transaction that was committed in these topics, all records are below them or
none. And it records such cuts, at most one in each `barnabas.transactions.whole.cut.interval.ms`
in which something was committed.

    the present cut   one ListOffsets (read_committed) of all partitions
    a recorded cut    ListOffsets with a time in a range of its own (protocol/cut_times.py)

A broker answers more than 200 partitions in parts, each of which is from a cut of its own, and
several brokers answer at different moments. There the ends are requested twice: if nothing has
changed between the two, they are the cut of that moment. Otherwise the newest recorded cut is used.

Cuts form a lattice: the lower ends of two cuts, partition by partition, are a cut, and so are the
higher ends. So a batch can end at a recorded cut or at the end of the run, whichever comes first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from barnabas.client.cluster_reader import ClientError, ClusterReader, RefusedError, TimedOffset
from barnabas.protocol.cut_times import AT_OR_AFTER, AT_OR_BEFORE, CUT_TIMES_END
from barnabas.protocol.errors import Code
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.spark_connector.option_error import OptionError
from barnabas.spark_connector.read.offsets import LATEST, Offsets

SETTING = "barnabas.transactions.whole"
OPTION = "option wholeTransactions=true"
MOST_IN_ONE_ANSWER = 200
TRIES = 20  # of an answer that changes while it is given in parts
FIRST_STEP_MS = 60_000  # the first step back in a search without an earlier batch


@dataclass(frozen=True)
class Cut:
    """A recorded cut: its time, and the end of each partition that is read.

    absent: the partitions that do not belong to it, since their topics did not have the setting.
    """

    time_ms: int
    offsets: Offsets
    absent: tuple[TopicPartition, ...] = ()


class CutReader:
    """Requests cuts of the partitions of one read."""

    def __init__(self, client: ClusterReader) -> None:
        self._client = client
        self._known: set[str] = set()  # topics that have the setting, by DescribeConfigs
        # the time of the recorded cut at which the last batch ended, and the time that it took
        self._last_ms: int | None = None
        self._span_ms = 1000

    def check(self, partitions: Iterable[TopicPartition]) -> None:
        """Check that all topics have the setting.

        Raises: OptionError with what to do; ClientError.
        """
        one_of_each = {name.topic: name for name in sorted(partitions, reverse=True)}
        if not one_of_each:
            return
        try:
            rows = self._client.timed_offsets_at(
                dict.fromkeys(one_of_each.values(), AT_OR_BEFORE + CUT_TIMES_END - 1),
                read_committed=True,
            )
        except RefusedError as error:
            if error.code != Code.UNSUPPORTED_FOR_MESSAGE_FORMAT:
                raise
            raise self._refusal(one_of_each) from None
        # No cut is recorded yet, or the broker does not record any.
        unknown = {name.topic for name, row in rows.items() if row.time_ms < 0} - self._known
        if unknown:
            values = self._client.topic_setting(unknown, SETTING)
            if set(values.values()) != {"true"}:
                raise _refused(values)
            self._known |= unknown

    def newest(
        self, partitions: Iterable[TopicPartition], floor: Mapping[TopicPartition, int]
    ) -> Offsets:
        """The present cut; or, if that changes while several answers are received, the newest
        recorded one.

        Takes:  floor, a cut that is not undercut by a recorded one.
        Raises: ClientError.
        """
        names = list(partitions)
        ends = self._ends(names)
        if len(names) <= MOST_IN_ONE_ANSWER and self._client.leader_count(names) <= 1:
            return ends
        for _ in range(TRIES):
            before, ends = ends, self._ends(names)
            if ends == before:
                return ends
            cut = self.at_or_before(names, CUT_TIMES_END - 1)
            if cut is not None and not cut.absent:
                return {name: max(cut.offsets[name], floor.get(name, 0)) for name in names}
        raise ClientError(
            f"{OPTION}: {len(names)} partitions are answered in several parts, their ends change "
            "all the time, and no cut is recorded: wait a second, or set "
            f"{SETTING}.cut.interval.ms above 0 at the broker"
        )

    def at_or_before(self, partitions: Iterable[TopicPartition], time_ms: int) -> Cut | None:
        """The newest recorded cut whose time is at or before the given one."""
        return self._recorded(partitions, AT_OR_BEFORE + time_ms)

    def at_or_after(self, partitions: Iterable[TopicPartition], time_ms: int) -> Cut | None:
        """The first recorded cut whose time is at or after the given one."""
        return self._recorded(partitions, AT_OR_AFTER + time_ms)

    def as_of(self, partitions: Iterable[TopicPartition], time_ms: int, option: str) -> Offsets:
        """The ends of the partitions as they were at a time.

        Raises: OptionError if no cut of that time is recorded, if it does not have all topics, or
                if the time is to come.
        """
        names = list(partitions)
        if not names:
            return {}
        if time_ms > time.time() * 1000:
            raise OptionError(
                f"option {option}: {shown_time(time_ms)} is to come by this machine's clock: what "
                "is committed until then is not known"
            )
        cut = self.at_or_before(names, time_ms)
        if cut is None:
            first = self.at_or_after(names, 0)
            hint = (
                f"no cut is recorded yet ({SETTING}.cut.interval.ms at the broker)"
                if first is None
                else f"the oldest recorded one is of {shown_time(first.time_ms)}"
            )
            raise OptionError(f"option {option}: no cut of {shown_time(time_ms)}: {hint}")
        if cut.absent:
            topics = ", ".join(sorted({repr(name.topic) for name in cut.absent}))
            raise OptionError(
                f"option {option}: the cut of {shown_time(cut.time_ms)} does not have {topics}: "
                f"without {SETTING}=true at that time its ends are not recorded; give a later "
                "time, or leave it out"
            )
        return cut.offsets

    def within(self, starts: Offsets, newest: Offsets, limit: int) -> tuple[Offsets, int]:
        """The end of a batch that begins at `starts`: the last recorded cut with at most `limit`
        offsets, or else the first one after these.

        Takes:  newest, a cut with more offsets, at which the batch ends if none is recorded before.
        Gives:  the ends, and the number of offsets up to them.
        """
        names = list(newest)

        def ends(cut: Cut) -> Offsets:
            return {
                name: min(end, max(starts[name], cut.offsets.get(name, 0)))
                for name, end in newest.items()
            }

        def size(cut: Cut | None) -> int:
            if cut is None or cut.absent:
                return 0
            return sum(end - starts[name] for name, end in ends(cut).items() if end > starts[name])

        low, high = between(
            lambda time_ms: self.at_or_before(names, time_ms),
            lambda time_ms: self.at_or_after(names, time_ms),
            lambda cut: size(cut) <= limit,
            since_ms=self._last_ms,
            step_ms=self._span_ms,
        )
        chosen = low if low is not None and size(low) else high
        if chosen is None or not size(chosen):
            whole = {name: max(end, starts[name]) for name, end in newest.items()}
            return whole, sum(end - starts[name] for name, end in whole.items())
        if self._last_ms is not None:
            self._span_ms = max(1, chosen.time_ms - self._last_ms)
        self._last_ms = chosen.time_ms
        return ends(chosen), size(chosen)

    def _refusal(self, topics: Iterable[str]) -> OptionError:
        """The error for topics of which at least one does not have the setting."""
        try:
            return _refused(self._client.topic_setting(topics, SETTING))
        except RefusedError as error:
            return OptionError(
                f"{OPTION}: at least one of the topics {', '.join(sorted(topics))} does not have "
                f"{SETTING}=true ({error})"
            )

    def _ends(self, names: list[TopicPartition]) -> Offsets:
        ends = self._client.offsets_at(dict.fromkeys(names, LATEST), read_committed=True)
        return {name: end or 0 for name, end in ends.items()}

    def _recorded(self, partitions: Iterable[TopicPartition], timestamp: int) -> Cut | None:
        """Request a recorded cut. Answers in parts, or of several brokers, may be of different
        cuts; then the lowest is requested.
        """
        names = list(partitions)
        for _ in range(TRIES):
            rows = self._client.timed_offsets_at(
                dict.fromkeys(names, timestamp), read_committed=True
            )
            times = {row.time_ms for row in rows.values()}
            if times <= {-1}:
                return None
            if len(times) == 1:
                return _cut_of(times.pop(), rows)
            timestamp = AT_OR_BEFORE + min(time_ms for time_ms in times if time_ms >= 0)
        raise ClientError(f"{OPTION}: the brokers do not agree on a recorded cut: try again")


def _cut_of(time_ms: int, rows: Mapping[TopicPartition, TimedOffset]) -> Cut:
    offsets = {name: row.offset for name, row in rows.items() if row.offset is not None}
    return Cut(time_ms, offsets, tuple(sorted(rows.keys() - offsets.keys())))


def between(
    at_or_before: Callable[[int], Cut | None],
    at_or_after: Callable[[int], Cut | None],
    is_low: Callable[[Cut | None], bool],
    *,
    since_ms: int | None,
    step_ms: int,
) -> tuple[Cut | None, Cut | None]:
    """Find two neighbours among the recorded cuts: the last one that is low, and the next one.

    Each step asks for one or two cuts; about as many steps are needed as the number of cuts in
    question has binary digits.

    Takes:  is_low, which is true for cuts up to some time, and for None; since_ms, a time whose cut
            is low, if one is known; step_ms, how far beyond it the search begins.
    Gives:  None in place of a cut that there is not.
    """
    high = at_or_before(CUT_TIMES_END - 1)
    if high is None or is_low(high):
        return high, None
    low: Cut | None = None
    if since_ms is None:
        step_ms, low_ms = FIRST_STEP_MS, high.time_ms - FIRST_STEP_MS
        while not is_low(cut := at_or_before(max(0, low_ms))):
            assert cut is not None
            high, step_ms = cut, 4 * step_ms
            low_ms = high.time_ms - step_ms
        low, low_ms = cut, max(0, low_ms)
    else:
        low_ms, probe_ms = since_ms, since_ms + step_ms
        while probe_ms < high.time_ms:
            cut = at_or_before(probe_ms)
            if not is_low(cut):
                assert cut is not None
                high = cut
                break
            low, low_ms, step_ms = cut, probe_ms, 2 * step_ms
            probe_ms += step_ms
    while True:
        # The cut at low_ms is low. Is the next one the first that is not?
        following = at_or_after(low_ms + 1)
        if following is None or not is_low(following):
            return low, high if following is None else following
        low, low_ms = following, following.time_ms
        middle_ms = (low_ms + high.time_ms) // 2
        cut = at_or_before(middle_ms)
        if is_low(cut):
            low, low_ms = cut, middle_ms
        else:
            assert cut is not None
            high = cut


def shown_time(time_ms: int) -> str:
    """A time for a message, in UTC."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(" ", "milliseconds")


def _refused(values: Mapping[str, str | None]) -> OptionError:
    """The error for topics without the setting, or for a broker that does not have it."""
    if all(value is None for value in values.values()):
        return OptionError(
            f"{OPTION}: this broker has no topic setting {SETTING}. Only Barnabas keeps the ends "
            "of partitions on cuts; on another broker a batch may end between the two halves of a "
            "transaction, and nothing that a reader can ask for prevents it. Leave the option out"
        )
    lacking = sorted(topic for topic, value in values.items() if value != "true")
    return OptionError(
        f"{OPTION}: {SETTING} is not true for {', '.join(map(repr, lacking))}, so the ends of "
        "its partitions belong to no cut. Set it (barnabas config set topic "
        f"{lacking[0] if lacking else 'TOPIC'} {SETTING}=true), or leave the topic out"
    )

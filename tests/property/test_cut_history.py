"""The history of recorded cuts against a model that keeps every cut with all its offsets."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

from helpers.examples import drawn
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.broker.transactions.cut_history import (
    ALL_KEPT_MS,
    DAY_MS,
    NOT_IN_CUT,
    PERIODS,
    Cut,
    CutHistory,
    HistoryReader,
    Track,
    encode_cut,
    encode_part,
)

KEYS = [(bytes([number]) * 16, number) for number in range(4)]
Offsets = dict[int, int]


@dataclass
class Model:
    """All cuts in their order, each with the offset of each partition; and the bytes of a file."""

    history: CutHistory = field(default_factory=CutHistory)
    cuts: list[tuple[Cut, Offsets]] = field(default_factory=list)
    now: Offsets = field(default_factory=dict)
    before: Offsets = field(default_factory=dict)
    data: bytes = field(default_factory=lambda: encoded(CutHistory()))

    def record(self, time_ms: int, epoch: int, changes: Offsets, before: int) -> None:
        """Record a cut, unless it is equal to the last one."""
        new: list[Track] = []
        rows: list[tuple[Track, int]] = []
        for number, offset in changes.items():
            track = self.history.tracks.get(KEYS[number])
            if track is None:
                track = Track(self.history.next_index + len(new), KEYS[number], before)
                new.append(track)
                self.before[number] = before
            if track.last != offset:
                rows.append((track, offset))
        cut = Cut(self.history.next_number, time_ms, epoch)
        parts = (
            [rows[: number % 3], rows[number % 3 :]] if (number := len(self.cuts)) % 2 else [rows]
        )
        for part in parts[:-1]:
            self.data += encode_part(new, part)
        self.data += encode_cut(cut, new if len(parts) == 1 else (), parts[-1])
        self.history.add(cut, new, rows)
        self.now = self.now | changes
        self.cuts.append((cut, self.now))

    def thin(self, kept: list[Cut]) -> None:
        up_to = self.history.next_number - 1
        numbers = [cut.number for cut in kept]
        self.history.keep_cuts(numbers, up_to)
        for track in self.history.tracks.values():
            self.history.keep_rows(track, numbers, up_to)
            for number, following in itertools.pairwise(track.numbers):
                assert any(number <= each < following for each in numbers), "no cut needs the row"
        self.cuts = [row for row in self.cuts if row[0] in kept]

    def check(self, history: CutHistory) -> None:
        """Compare each cut, and what is found for each time, with the model."""
        assert list(history) == [cut for cut, _ in self.cuts]
        for cut, offsets in self.cuts:
            for number, key in enumerate(KEYS):
                track = history.tracks.get(key)
                if track is not None:
                    assert track.at(cut.number) == offsets.get(number, self.before[number])
        assert history.row_count == sum(len(track.numbers) for track in history.tracks.values())
        for time in {cut.time_ms + more for cut, _ in self.cuts for more in (-1, 0, 1)}:
            earlier = [cut for cut, _ in self.cuts if cut.time_ms <= time]
            later = [cut for cut, _ in self.cuts if cut.time_ms >= time]
            assert history.at_or_before(time) == (earlier[-1] if earlier else None)
            assert history.at_or_after(time) == (later[0] if later else None)


# What a crash may leave at the end of a file: a part of a frame, or zeros.
TAILS = [*(b"\x00\x00\x00\x05torn!"[:size] for size in range(10)), bytes(9), bytes(40)]


def encoded(history: CutHistory) -> bytes:
    return b"".join(history.frames())


def decoded(data: bytes) -> tuple[CutHistory, int]:
    """The history in a file, and the size of the file's undamaged part."""
    reader = HistoryReader(lambda size, at: data[at : at + size], len(data))
    while reader.read_some():
        pass
    return reader.history, reader.size_bytes


CHANGES = st.dictionaries(st.integers(0, 3), st.integers(-1, 9), min_size=1)
STEP = st.one_of(
    st.tuples(
        st.just("record"),
        st.sampled_from([1, 1000, 60_000, ALL_KEPT_MS, DAY_MS, -5000]),
        CHANGES,
        st.sampled_from([0, NOT_IN_CUT]),
    ),
    st.tuples(st.just("thin"), st.integers(0, 40)),
    st.tuples(st.just("keep"), st.sets(st.integers(0, 30))),
    st.tuples(st.just("reload"), st.sampled_from(TAILS)),
)


@settings(max_examples=drawn(150), deadline=None)
@given(st.lists(STEP, max_size=30))
def test_thinned_and_reloaded_histories_are_those_of_the_model(
    steps: list[tuple[object, ...]],
) -> None:
    model, time_ms = Model(), 10 * DAY_MS
    for kind, *rest in steps:
        match kind, rest:
            case "record", [int(more), dict(changes), int(before)]:
                time_ms += more
                model.record(time_ms, len(model.cuts), changes, before)
            case "thin", [int(level)]:
                if model.cuts:
                    kept = model.history.thinned(time_ms, level)
                    assert kept[-1] == model.cuts[-1][0], "the newest one stays"
                    model.thin(kept)
                    model.data = encoded(model.history)
            case "keep", [set(which)]:
                newest = model.history.next_number - 1  # it always stays
                model.thin([cut for cut, _ in model.cuts if cut.number in {*which, newest}])
                model.data = encoded(model.history)
            case "reload", [bytes(tail)]:
                history, size = decoded(model.data + tail)
                assert size == len(model.data)
                model.history = history
        model.check(model.history)
        model.check(decoded(model.data)[0])


@settings(max_examples=drawn(100), deadline=None)
@given(st.lists(st.integers(1, 2 * DAY_MS), min_size=1, max_size=80))
def test_of_each_period_the_last_cut_is_kept(gaps: list[int]) -> None:
    history, time_ms = CutHistory(), 100 * DAY_MS
    for number, gap in enumerate(gaps):
        time_ms += gap
        history.add(Cut(number, time_ms, 0), (), ())
    kept = {cut.number for cut in history.thinned(time_ms, 0)}
    for cut in history:
        age_ms = time_ms - cut.time_ms
        if age_ms <= ALL_KEPT_MS:
            assert cut.number in kept
            continue
        period_ms = next((period for age, period in PERIODS if age_ms <= age), DAY_MS)
        following = [
            other.time_ms // period_ms for other in history if other.number == cut.number + 1
        ]
        if following and following[0] != cut.time_ms // period_ms:
            assert cut.number in kept, "nothing else is kept of this period"

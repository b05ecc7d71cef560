"""Each checker finds what it is for, and nothing in a sound history."""

from __future__ import annotations

from checkers import Ending, FinalLog, History, Source, Span, Watermarks, check, kinds_of

LOG = ("t", 0)


def final(rows: list[tuple[int, bytes]], committed: list[tuple[int, bytes]] | None = None, start: int = 0) -> FinalLog:
    end = max((offset for offset, _ in rows), default=start - 1) + 1
    return FinalLog(start, end, end, rows if committed is None else committed, rows)


def plain(values: str = "abc") -> History:
    """Records of one session, acknowledged at 0, 1, 2 … at the times 10, 20, 30 …"""
    history = History()
    for offset, letter in enumerate(values):
        history.write(letter.encode(), LOG, session="s").ok(offset, 10 * (offset + 1))
    history.final[LOG] = final([(offset, letter.encode()) for offset, letter in enumerate(values)])
    return history


def transactional(ending: Ending, visible: bytes) -> History:
    """One transaction of the records a and b, of which readers of committed records see `visible` at the end."""
    history = History()
    transaction = history.begin("t1", session="s")
    for offset, letter in enumerate(b"ab"):
        history.write(bytes([letter]), LOG, session="s", transaction=transaction).ok(offset, 10)
    if ending is not Ending.ABORTED:
        transaction.commit_asked_ms = 20
    transaction.end(ending, 30)
    rows = [(0, b"a"), (1, b"b")]
    history.final[LOG] = final(rows, [row for row in rows if row[1] in [bytes([letter]) for letter in visible]])
    return history


def found(history: History) -> list[str]:
    return kinds_of(check(history))


def test_a_sound_history_gives_nothing() -> None:
    history = plain()
    for offset, letter in enumerate("abc"):
        history.read("r", LOG, offset, letter.encode(), committed_only=True, now_ms=50)
    history.spans.append(Span("r", LOG, True, 0, 3, 0))
    history.watermarks += [Watermarks("r", LOG, 2, 2, 0, 10), Watermarks("r", LOG, 3, 3, 0, 20)]
    assert found(history) == []
    assert found(transactional(Ending.COMMITTED, b"ab")) == []
    assert found(transactional(Ending.ABORTED, b"")) == []
    assert found(transactional(Ending.UNKNOWN, b"ab")) == []
    assert found(transactional(Ending.UNKNOWN, b"")) == []


def test_lost_records() -> None:
    history = plain()
    history.final[LOG] = final([(0, b"a"), (1, b"b")])
    assert found(history) == ["lost"]


def test_retention_may_take_the_oldest() -> None:
    history = plain()
    history.final[LOG] = final([(2, b"c")], start=2)
    assert found(history) == []


def test_a_power_loss_may_take_the_end_and_nothing_else() -> None:
    history = plain()
    history.power_losses.append(100)
    history.final[LOG] = final([(0, b"a")])
    assert found(history) == []
    history.final[LOG] = final([(0, b"a"), (2, b"c")])
    assert found(history) == ["lost"]


def test_a_power_loss_may_not_take_what_is_durable() -> None:
    history = plain()
    history.power_losses.append(100)
    history.final[LOG] = final([(0, b"a")])
    history.writes[2].durable = True
    assert found(history) == ["lost"]
    history = transactional(Ending.COMMITTED, b"")
    history.power_losses.append(100)
    assert found(history) == ["lost"]


def test_what_was_acknowledged_after_the_power_loss_counts() -> None:
    history = plain()
    history.power_losses.append(15)
    history.final[LOG] = final([(1, b"b"), (2, b"c")])
    assert found(history) == []
    history.final[LOG] = final([(1, b"b")])
    assert found(history) == ["lost"]


def test_duplicates() -> None:
    history = plain()
    history.final[LOG] = final([(0, b"a"), (1, b"b"), (2, b"c"), (3, b"c")])
    assert "duplicate" in found(history)


def test_records_that_nobody_wrote_or_that_were_refused() -> None:
    history = plain()
    history.final[LOG].everything.append((9, b"z"))
    assert found(history) == ["unwritten"]
    history = plain()
    history.writes[1].failed()
    assert found(history) == ["unwritten"]


def test_aborted_reads() -> None:
    history = transactional(Ending.ABORTED, b"")
    history.read("r", LOG, 0, b"a", committed_only=False, now_ms=25)
    assert found(history) == []
    history.read("r", LOG, 0, b"a", committed_only=True, now_ms=25)
    assert "aborted-read" in found(history)
    assert "aborted-read" in found(transactional(Ending.ABORTED, b"a"))


def test_precommitted_reads() -> None:
    history = transactional(Ending.COMMITTED, b"ab")
    history.read("r", LOG, 0, b"a", committed_only=True, now_ms=20)
    assert found(history) == []
    history.read("r", LOG, 0, b"a", committed_only=True, now_ms=19)
    assert found(history) == ["precommitted-read"]


def test_torn_transactions() -> None:
    assert found(transactional(Ending.UNKNOWN, b"a")) == ["torn"]


def test_order() -> None:
    history = plain()
    history.final[LOG] = final([(0, b"b"), (1, b"a"), (2, b"c")])
    for write in history.writes:
        write.offset = -1
    assert found(history) == ["order"]


def test_offsets_that_hold_something_else_later() -> None:
    history = plain()
    history.read("r1", LOG, 1, b"b", committed_only=False, now_ms=50)
    history.read("r2", LOG, 1, b"c", committed_only=False, now_ms=60)
    assert found(history) == ["moved"]
    history = plain()
    history.writes[0].offset = 2
    assert "moved" in found(history)


def test_what_a_reader_saw_is_kept() -> None:
    history = plain()
    history.writes[2].outcome = history.writes[2].outcome.UNKNOWN
    history.final[LOG] = final([(0, b"a"), (1, b"b")])
    assert found(history) == []
    history.read("r", LOG, 2, b"c", committed_only=True, now_ms=50)
    assert found(history) == ["lost"]


def test_skipped_records() -> None:
    history = plain()
    history.read("r", LOG, 0, b"a", committed_only=True, now_ms=50)
    history.read("r", LOG, 2, b"c", committed_only=True, now_ms=50)
    history.spans.append(Span("r", LOG, True, 0, 3, 0))
    assert found(history) == ["skipped"]


def test_watermarks() -> None:
    history = plain()
    history.watermarks += [Watermarks("r", LOG, 3, 2, 0, 10), Watermarks("r", LOG, 3, 1, 0, 20)]
    assert found(history) == ["watermark"]
    history = plain()
    history.watermarks += [Watermarks("r", LOG, 3, 2, 0, 10), Watermarks("r", LOG, 3, 1, 0, 20)]
    history.power_losses.append(15)
    assert found(history) == []
    history = plain()
    history.watermarks.append(Watermarks("r", LOG, 3, 4, 0, 10))
    assert found(history) == ["watermark"]


def offsets(committed_offset: int, sources: tuple[int, ...]) -> History:
    """Input a, b, c at 0, 1, 2; an output for each of `sources`."""
    history = plain()
    for number, source in enumerate(sources):
        history.write(b"o%d" % number, ("out", 0), session="w", source=Source("g", LOG, source)).ok(number, 10)
    history.final["out", 0] = final([(number, b"o%d" % number) for number in range(len(sources))])
    history.final_offsets["g", LOG] = committed_offset
    return history


def test_offsets_and_outputs() -> None:
    assert found(offsets(3, (0, 1, 2))) == []
    assert found(offsets(1, (0,))) == []
    assert found(offsets(2, (0,))) == ["offsets"], "an offset without its output"
    assert found(offsets(1, (0, 1))) == ["offsets"], "an output without its offset"
    assert found(offsets(1, (0, 0))) == ["offsets"], "an output twice"
    assert found(offsets(9, (0, 1, 2, 7))) == ["offsets"], "an output of nothing"


def test_compacted_topics_keep_each_key_s_last_record() -> None:
    history = History(compacted=frozenset({"t"}))
    for offset, value in enumerate((b"k-1", b"l-2", b"k-3")):
        history.write(value, LOG, session="s").ok(offset, 10)
    history.final[LOG] = final([(1, b"l-2"), (2, b"k-3")])
    assert found(history) == []
    history.final[LOG] = final([(0, b"k-1"), (1, b"l-2")])
    assert found(history) == ["lost"]

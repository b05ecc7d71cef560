"""ListTransactions with very many ids, and with costly patterns. Permissions are checked first, in
slices; the worker's thread does the rest. Times are CPU time (`thread_time`), the shortest of
several attempts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from helpers.core_host import CoreHost
from helpers.slowness import least_desk_s

from barnabas.broker.security.stored import Acl
from barnabas.coordinator.transactions import transaction_listing
from barnabas.coordinator.transactions.transaction_listing import (
    LONGEST_PATTERN_BYTES,
    ROWS_AT_ONCE,
)
from barnabas.coordinator.transactions.transaction_state import (
    TransactionMetadata,
    TransactionState,
)
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.list_transactions import ListTransactionsRequest

VERSION = 2
MANY = 20_000
MOST_S = 0.05
DESCRIBE_IDS_OF_X = Acl(5, "x-", 4, "User:ANONYMOUS", "*", 8, 3)


def put(host: CoreHost, names: list[str], state: TransactionState = TransactionState.EMPTY) -> None:
    """Add these ids to the coordinator, as if their records had been replayed."""
    for number, name in enumerate(names):
        host.broker.transactions._transactions[name] = TransactionMetadata(
            name, 1000 + number, 0, 60_000, state
        )


def host_with(directory: Path, *names: str, **settings: str) -> CoreHost:
    host = CoreHost(directory, **settings)
    put(host, list(names))
    host.connect(1)
    return host


def asked(host: CoreHost, version: int = VERSION, **filters: Any) -> Any:
    """The response, and the longest time during which the core was busy without a pause."""
    longest = 0.0

    def timed(call: Callable[[], object]) -> None:
        nonlocal longest
        before = time.thread_time()
        call()
        longest = max(longest, time.thread_time() - before)

    before = len(host.answers[1])
    request = ListTransactionsRequest(**filters)
    timed(lambda: host.ask(1, request, version))
    while len(host.answers[1]) == before:
        if host.work:
            work = host.work.pop()
            result = work.run()
            timed(partial(host.broker.on_worked, work, result, None, host.now_ms))
            host.carry_out()
        else:
            timed(lambda: host.broker.on_tick(host.event_ms()))
            host.carry_out()
    return host.answers[1][-1], longest


def ids(answer: Any) -> list[str]:
    assert answer.error_code == Code.NONE
    return [row.transactional_id for row in answer.transaction_states]


@pytest.mark.parametrize("count", [0, 1, ROWS_AT_ONCE, ROWS_AT_ONCE + 1, 3000])
@pytest.mark.parametrize("pattern", [None, "", "id-.*7"])
@pytest.mark.parametrize("version", [0, 2])
def test_each_id_is_listed_once_however_many_there_are(
    count: int, pattern: str | None, version: int, tmp_path: Path
) -> None:
    names = [f"id-{number}" for number in range(count)]
    host = host_with(tmp_path, *names)
    filters = {} if version < 2 else {"transactional_id_pattern": pattern}
    wanted = names if version < 2 or not pattern else [name for name in names if name[-1] == "7"]
    answer, _ = asked(host, version, **filters)
    assert ids(answer) == wanted
    numbers = [row.producer_id - 1000 for row in answer.transaction_states]
    assert [names[number] for number in numbers] == wanted
    assert {row.transaction_state for row in answer.transaction_states} <= {"Empty"}
    assert host.broker.connections[1].parked_ticket == -1 and not host.broker.requests._parked


def test_repeated_filters_count_once_and_an_unknown_state_is_reported_once(tmp_path: Path) -> None:
    host = host_with(tmp_path, "a", "b")
    put(host, ["c"], TransactionState.ONGOING)
    answer, _ = asked(host, state_filters=["Ongoing", "Nonsense"] * 3)
    assert (ids(answer), answer.unknown_state_filters) == (["c"], ["Nonsense"])
    assert ids(asked(host, state_filters=["Nonsense"])[0]) == []
    assert ids(asked(host, producer_id_filters=[1001, 1001, 9])[0]) == ["b"]


def test_ids_removed_or_added_during_a_listing_are_not_listed(tmp_path: Path) -> None:
    names = [f"id-{number}" for number in range(3 * ROWS_AT_ONCE)]
    host = host_with(tmp_path, *names)
    host.ask(1, ListTransactionsRequest(), VERSION)
    del host.broker.transactions._transactions[names[-1]]
    put(host, ["late"])
    host.connect(2)
    for _ in range(5):
        host.tick(0)
    host.finish_work()
    assert ids(host.answers[1][0]) == names[:-1]


def test_a_listing_ends_when_its_client_disconnects(tmp_path: Path) -> None:
    host = host_with(tmp_path, *(f"id-{number}" for number in range(3 * ROWS_AT_ONCE)))
    host.ask(1, ListTransactionsRequest(), VERSION)
    host.broker.on_closed(1)
    for _ in range(5):
        host.tick(0)
    host.finish_work()
    assert host.answers[1] == [] and not host.work


@pytest.mark.parametrize(
    ("pattern", "code"),
    [
        ("a" * LONGEST_PATTERN_BYTES, Code.INVALID_REGULAR_EXPRESSION),  # too many states
        ("a|" * 9000, Code.NONE),
        ("[a]" * 6000 + "|a", Code.NONE),
        ("a" * (LONGEST_PATTERN_BYTES + 1), Code.INVALID_REGULAR_EXPRESSION),
        ("ä" * (LONGEST_PATTERN_BYTES // 2 + 1), Code.INVALID_REGULAR_EXPRESSION),
        ("(" * 2_000_000, Code.INVALID_REGULAR_EXPRESSION),
        ("(?=a)", Code.INVALID_REGULAR_EXPRESSION),
        # matching the long id takes too much work
        ("(.*[ab].{0,999}){9}", Code.INVALID_REGULAR_EXPRESSION),
    ],
    ids=range(8),
)
def test_no_pattern_blocks_the_core_for_long(pattern: str, code: Code, tmp_path: Path) -> None:
    host = host_with(tmp_path, "a", "b", "a" * 1000)

    def attempts() -> Iterator[float]:
        for _ in range(4):
            answer, spent_s = asked(host, transactional_id_pattern=pattern)
            assert answer.error_code == code
            yield spent_s

    assert least_desk_s(attempts(), MOST_S) < MOST_S


def test_a_pattern_that_takes_too_long_to_run_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each letter of an id leads to a different set of thousands of states."""
    monkeypatch.setattr(transaction_listing, "MOST_PAUSES", 3)
    host = host_with(tmp_path, *(f"{number:b}".replace("1", "a") * 20 for number in range(50)))
    answer, _ = asked(host, transactional_id_pattern="(.*[a0].{0,999}){9}")
    assert answer.error_code == Code.INVALID_REGULAR_EXPRESSION
    assert len(ids(asked(host, transactional_id_pattern=".*")[0])) == 50


@pytest.mark.parametrize("user", ["absent", "without rights", "of some", "with all rights"])
def test_many_ids_block_the_core_only_for_a_short_time(user: str, tmp_path: Path) -> None:
    settings = {} if user == "absent" else {"authorizer_class_name": "StandardAuthorizer"}
    if user == "with all rights":
        settings["super_users"] = "User:ANONYMOUS"
    names = [f"{'x' if number % 4 == 0 else 'y'}-{number}" for number in range(MANY)]
    host = host_with(tmp_path, *names, **settings)
    if user == "of some":
        assert host.parts.access.authorizer is not None
        host.parts.access.authorizer.add({host.parts.ids.uuid(): DESCRIBE_IDS_OF_X})
    visible = {"without rights": 0, "of some": MANY // 4}.get(user, MANY)
    spent_s = []
    for pattern in (None, None, "[xy]-.*", "[xy]-[0-9]{1,6}"):
        answer, one_s = asked(host, transactional_id_pattern=pattern)
        assert len(ids(answer)) == visible
        spent_s.append(one_s)
    assert least_desk_s(spent_s, MOST_S) < MOST_S


def test_a_pattern_is_matched_only_against_visible_ids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[str]] = []

    def matching(rows: Any, pattern: str | None) -> Any:
        seen.append([row.transactional_id for row in rows])
        return rows

    monkeypatch.setattr(transaction_listing, "matching", matching)
    host = host_with(tmp_path, "a", "b", authorizer_class_name="StandardAuthorizer")
    assert ids(asked(host, transactional_id_pattern="a")[0]) == []
    assert seen == [[]]

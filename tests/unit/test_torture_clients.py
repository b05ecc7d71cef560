"""The judge of torture/clients.py excuses an abort that is refused only where the broker may not
know of the transaction.
"""

from __future__ import annotations

import pytest
from checkers import History
from torture.clients import may_not_have_begun


@pytest.mark.parametrize(
    ("is_commit_asked", "aborting", "is_acknowledged", "may_not"),
    [
        (False, "", True, True),
        (True, "last", False, True),
        (True, "last", True, False),
        (True, "one before", False, False),
        (True, "", False, False),
    ],
)
def test_a_transaction_that_may_not_have_begun(
    is_commit_asked: bool, aborting: str, is_acknowledged: bool, may_not: bool
) -> None:
    history = History()
    other = history.begin("one before", session="s", now_ms=0)
    history.write(b"v0", ("t", 0), session="s", transaction=other).ok(0, 1)
    last = history.begin("last", session="s", now_ms=2)
    write = history.write(b"v1", ("t", 0), session="s", transaction=last)
    if is_commit_asked:
        last.commit_asked_ms = 3
    if is_acknowledged:
        write.ok(2, 3)
    assert may_not_have_begun(last, history.writes, aborting) is may_not

"""Sessions of the page's users: their end, their number, and the limit on failed logins."""

from __future__ import annotations

import pytest

from barnabas.console import sessions as module
from barnabas.console.sessions import (
    FAILURES_MS,
    IDLE_MS,
    LONGEST_MS,
    MOST_ATTEMPTS,
    MOST_FAILURES,
    MOST_FAILURES_OF_ALL,
    Sessions,
)


def begun(*tokens: str) -> Sessions:
    """Begin a session for each token, at intervals of one millisecond."""
    sessions = Sessions()
    for now_ms, token in enumerate(tokens):
        sessions.begin(token, f"user of {token}", "PLAIN", None, now_ms)
    return sessions


def test_a_token_is_its_session_s_alone() -> None:
    sessions = begun("a", "b")
    session = sessions.use("a", 5)
    assert session is not None and (session.user, session.used_ms) == ("user of a", 5)
    assert sessions.use("", 5) is None and sessions.use("c", 5) is None
    sessions.end("a")
    sessions.end("never begun")
    assert sessions.use("a", 6) is None and sessions.use("b", 6) is not None


def test_a_session_ends_when_it_is_not_used_for_the_idle_time() -> None:
    sessions = begun("a")
    assert sessions.use("a", IDLE_MS - 1) is not None
    assert sessions.use("a", 2 * IDLE_MS - 2) is not None
    assert sessions.use("a", 3 * IDLE_MS - 2) is None and len(sessions) == 0


def test_a_session_ends_after_its_longest_time_however_much_it_is_used() -> None:
    sessions = begun("a")
    for now_ms in range(0, LONGEST_MS, IDLE_MS - 1):
        assert sessions.use("a", now_ms) is not None
    assert sessions.use("a", LONGEST_MS) is None


def test_one_more_session_ends_the_one_that_was_used_longest_ago(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MOST_SESSIONS", 2)
    sessions = begun("a", "b")
    sessions.use("a", 10)
    sessions.begin("c", "user of c", "PLAIN", None, 11)
    assert sessions.use("b", 12) is None
    assert sessions.use("a", 12) is not None and sessions.use("c", 12) is not None


def test_a_user_that_failed_often_from_an_address_has_to_wait() -> None:
    """Others behind the same proxy, and the same user elsewhere, need not."""
    sessions = Sessions()
    for now_ms in range(MOST_FAILURES):
        assert sessions.may_try("10.0.0.1", "anna", now_ms)
        sessions.failed("10.0.0.1", "anna", now_ms)
    assert not sessions.may_try("10.0.0.1", "anna", FAILURES_MS - 1)
    assert sessions.may_try("10.0.0.1", "ben", FAILURES_MS - 1)
    assert sessions.may_try("10.0.0.2", "anna", FAILURES_MS - 1)
    assert sessions.may_try("10.0.0.1", "anna", FAILURES_MS), "the first is a minute old"


def test_a_login_that_succeeds_is_no_failure() -> None:
    """Each attempt is counted as a failure until its success is known, and a success then reduces
    the count. A success without an attempt changes nothing.
    """
    sessions = Sessions()
    for now_ms in range(100):
        assert sessions.may_try("10.0.0.1", "anna", now_ms)
        sessions.failed("10.0.0.1", "anna", now_ms)
        sessions.succeeded("10.0.0.1", "anna", now_ms)
    sessions.succeeded("10.0.0.1", "anna", 1)


def test_after_many_failures_only_a_user_without_one_may_try() -> None:
    """So guesses are bounded together, from any number of addresses, and who did not fail can log
    in while others guess.
    """
    sessions = Sessions()
    for number in range(MOST_FAILURES_OF_ALL):
        assert sessions.may_try(f"10.0.0.{number}", "anna", 0)
        sessions.failed(f"10.0.0.{number}", "anna", 0)
    assert not sessions.may_try("10.0.1.1", "anna", 0)
    assert sessions.may_try("10.0.0.1", "ben", 0)
    for number in range(MOST_ATTEMPTS - MOST_FAILURES_OF_ALL):
        assert sessions.may_try("10.0.0.1", f"guess {number}", 0)
        sessions.failed("10.0.0.1", f"guess {number}", 0)
        assert not sessions.may_try("10.0.0.1", f"guess {number}", 0)
    assert not sessions.may_try("10.0.0.1", "ben", 0)
    assert sessions.may_try("10.0.0.1", "ben", FAILURES_MS)

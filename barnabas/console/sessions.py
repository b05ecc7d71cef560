"""The sessions of the page's users, and their attempts to log in. The module does no I/O: times and
tokens are arguments.

| limit | |
|---|---|
| IDLE_MS, LONGEST_MS | a session ends this long after its last request, or after its login |
| MOST_SESSIONS | a further login ends the least recently used session |
| MOST_FAILURES | failed logins of a user from an address in FAILURES_MS; then it may not try |
| MOST_FAILURES_OF_ALL | failed logins of all; then only a user without a failed one may try |
| MOST_ATTEMPTS | failed logins of all; then no user may try |

An address alone has no limit: it may be that of a proxy, and five wrong passwords of one user would
lock out all others behind it.

Only the hash of a token is stored, so that the time of a look-up does not depend on the token.
"""

from __future__ import annotations

import hashlib
from collections import deque
from typing import Any, NamedTuple

IDLE_MS, LONGEST_MS = 30 * 60_000, 12 * 3_600_000
MOST_SESSIONS = 100
MOST_FAILURES, MOST_FAILURES_OF_ALL, MOST_ATTEMPTS, FAILURES_MS = 5, 50, 1000, 60_000


class Session(NamedTuple):
    """A user that has logged in. credential: the credential that verified the password. The session
    ends when this credential changes.
    """

    user: str
    mechanism: str
    credential: Any
    began_ms: int
    used_ms: int


class Sessions:
    """Sessions by the hash of their tokens, the least recently used first."""

    def __init__(self) -> None:
        self._sessions: dict[bytes, Session] = {}
        self._failures: deque[tuple[int, str, str]] = deque()  # times, addresses and users

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, token: str, user: str, mechanism: str, credential: Any, now_ms: int) -> None:
        """Begin the session of a user that has logged in."""
        self._expire(now_ms)
        while len(self._sessions) >= MOST_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        self._sessions[_hash(token)] = Session(user, mechanism, credential, now_ms, now_ms)

    def use(self, token: str, now_ms: int) -> Session | None:
        """The session of a request's token; None if the token is unknown or the session has
        ended.
        """
        self._expire(now_ms)
        session = self._sessions.pop(_hash(token), None)
        if session is not None:
            session = self._sessions[_hash(token)] = session._replace(used_ms=now_ms)
        return session

    def end(self, token: str) -> None:
        """End the session of a token, if there is one."""
        self._sessions.pop(_hash(token), None)

    def _expire(self, now_ms: int) -> None:
        ended = [
            name
            for name, session in self._sessions.items()
            if now_ms >= min(session.used_ms + IDLE_MS, session.began_ms + LONGEST_MS)
        ]
        for name in ended:
            del self._sessions[name]

    # --- attempts --------------------------------------------------------------------------------

    def may_try(self, host: str, user: str, now_ms: int) -> bool:
        """Whether a user may try to log in from an address."""
        failures = self._failures
        while failures and failures[0][0] + FAILURES_MS <= now_ms:
            failures.popleft()
        if len(failures) >= MOST_FAILURES_OF_ALL:
            is_new = all(failed != user for _, _, failed in failures)
            return is_new and len(failures) < MOST_ATTEMPTS
        return sum(failed[1:] == (host, user) for failed in failures) < MOST_FAILURES

    def failed(self, host: str, user: str, now_ms: int) -> None:
        """Count a login as failed. The caller does so before the outcome is known, and calls
        `succeeded` if the login succeeds.
        """
        self._failures.append((now_ms, host, user))

    def succeeded(self, host: str, user: str, now_ms: int) -> None:
        """Remove the failure that `failed` counted at `now_ms`, since the login succeeded."""
        if (now_ms, host, user) in self._failures:
            self._failures.remove((now_ms, host, user))


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()

"""What the log says while a client waits or repeats a request.

The logger has the name `barnabas.spark`, which users of the connector have configured.
"""

from __future__ import annotations

import logging
import time

logger = logging.getLogger("barnabas.spark")
NOTICE_S = 3  # after which the log says why a request takes so long


class RetryNotice:
    """Says once in the log that a request has been failing for some seconds and is repeated, so
    that nobody waits for a minute without a word.
    """

    def __init__(self, limit_ms: float) -> None:
        """Takes: limit_ms, how long the request is repeated."""
        self._limit_s = limit_ms / 1000
        self._first_failure: float | None = None
        self._is_said = False

    def failed(self, what: str, *, since: float | None = None) -> None:
        """Call this after each failure. Takes: since, when the request was first sent, if it is
        known, by time.monotonic().
        """
        now = time.monotonic()
        if self._first_failure is None:
            self._first_failure = now if since is None else since
        if not self._is_said and now - self._first_failure >= NOTICE_S:
            self._is_said = True
            logger.warning("barnabas: %s; it is tried again for %.0f s", what, self._limit_s)

"""Counts requests and errors while a page is shown."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from barnabas.broker.observe import Look
from barnabas.broker.seams.host import Host
from barnabas.console.request_counts import RequestCounts
from barnabas.protocol.api_table import BY_KEY
from barnabas.protocol.errors import Code

WATCHED_S = 15.0


class Watch:
    """Counts requests and errors while a page is shown, and for WATCHED_S after the page's last
    request.
    """

    def __init__(self, server: Host) -> None:
        self._server = server
        self._counts = RequestCounts()
        self._since = 0.0
        self._last_look = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def touch(self) -> Look[None]:
        """Record that a page has requested data, so that the counting continues. Runs in the loop's
        thread.
        """
        yield
        self._last_look = time.monotonic()
        if self._timer is None:
            self._begin()

    def _begin(self) -> None:
        """Begin to count: wrap the server's on_frame, and count errors. The counting ends by itself
        when no page has read the counts for WATCHED_S.
        """
        server = self._server
        self._counts, self._since = RequestCounts(), time.monotonic()
        on_frame = server.on_frame
        server.on_frame = self._counts.around(on_frame)
        has_own_errors = server.state.count_errors()

        def end_after_the_last_look() -> None:
            left = self._last_look + WATCHED_S - time.monotonic()
            if left > 0:
                self._timer = server.loop.call_later(left, end_after_the_last_look)
                return
            self._timer = None
            server.on_frame = on_frame
            if has_own_errors:
                server.state.stop_counting_errors()

        self._timer = server.loop.call_later(WATCHED_S, end_after_the_last_look)

    def totals(self) -> dict[str, Any]:
        """The numbers of requests and errors since the counting began. After a pause, the counts
        start from zero.
        """
        return {
            "counted_for_ms": round((time.monotonic() - self._since) * 1000),
            "requests": sum(self._counts.by_api().values()),
            "errors": sum(self._server.state.errors.values()),
        }

    def by_api(self) -> dict[str, int]:
        """The number of requests of each API, by the API's name."""
        return self._counts.by_api()

    def errors(self) -> list[dict[str, Any]]:
        """The number of errors for each API and error code."""
        return [
            {
                "api": BY_KEY[key].name,
                "error": Code(code).name if code in Code._value2member_map_ else str(code),
                "count": count,
            }
            for (key, code), count in sorted(
                self._server.state.errors.items(), key=lambda row: -row[1]
            )
        ]

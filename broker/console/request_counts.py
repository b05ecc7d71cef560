"""Requests counted by API, between the connections and the core, while somebody looks."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.protocol.api_table import BY_KEY

OnFrame = Callable[[int, memoryview, int], None]


class RequestCounts:
    """How many requests of each API came since the counting began.

    A request counts by the second byte of its API key alone: all keys are below 256.
    """

    def __init__(self) -> None:
        self._counts = [0] * 256

    def around(self, on_frame: OnFrame) -> OnFrame:
        """What takes a connection's frames, with the counting before it."""
        counts = self._counts

        def counted(connection_id: int, frame: memoryview, now_ms: int) -> None:
            if len(frame) > 1:
                counts[frame[1]] += 1
            on_frame(connection_id, frame, now_ms)

        return counted

    def by_api(self) -> dict[str, int]:
        """Those that came at all, by the API's name."""
        return {api.name: self._counts[key] for key, api in BY_KEY.items() if self._counts[key]}

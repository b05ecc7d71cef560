"""Counts the requests of each API while the page is shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from barnabas.protocol.api_table import BY_KEY

Answered = TypeVar("Answered")


class RequestCounts:
    """Counts how many requests of each API have been received since it was made.

    Only the second byte of the API key is read, since all keys are below 256.
    """

    def __init__(self) -> None:
        self._counts = [0] * 256

    def around(
        self, on_frame: Callable[[int, memoryview, int], Answered]
    ) -> Callable[[int, memoryview, int], Answered]:
        """Wrap on_frame in a function that counts each frame and passes it on."""
        counts = self._counts

        def counted(connection_id: int, frame: memoryview, now_ms: int) -> Answered:
            if len(frame) > 1:
                counts[frame[1]] += 1
            return on_frame(connection_id, frame, now_ms)

        return counted

    def by_api(self) -> dict[str, int]:
        """The counts that are not 0, by the API's name."""
        return {api.name: self._counts[key] for key, api in BY_KEY.items() if self._counts[key]}

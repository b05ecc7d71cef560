"""The number of bytes that clients may still write. Writes are refused before a full disk stops the
broker.

A log line says when refusals begin and when they end. `usable_bytes` and `problem` describe the
room now, for `barnabas check`, the console and the metrics; they may be called in any thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from barnabas.texts import count_text, duration_text, size_text

logger = logging.getLogger("barnabas.broker")

MEASURED_EVERY_BYTES = 16 << 20
LOOK_EVERY_MS = 1_000
QUIET_MS = 5_000
"""Writes count as accepted again after this time without a refusal. A disk that is almost full
would otherwise cause a log line for each retry.
"""
RESERVE = "barnabas.disk.reserve.bytes"
ADVICE = "free some space, or shorten retention"


class DiskSpace:
    """The bytes that clients may write, counted against the free space at the last measurement.

    The last `reserve_bytes` of the disk are kept for markers, offsets and checkpoints, so that
    transactions can still be ended and readers can continue. The free space is measured again after
    every 16 MB, and whenever it seems too small. left_bytes: what may be written until then.
    is_full: whether the last reservation was refused. refused_count: the number of refused writes
    since the start. refusals: the writes that are being refused now; None if there are none.
    """

    def __init__(
        self, free_bytes: Callable[[], int], reserve_bytes: int, directory: str = "the data"
    ) -> None:
        self._free_bytes, self._reserve_bytes = free_bytes, reserve_bytes
        self._directory = directory
        self.left_bytes = 0
        self.is_full = False
        self.refused_count = 0
        self.refusals: Refusals | None = None

    # --- writes ----------------------------------------------------------------------------------

    def reserve(self, count: int) -> bool:
        """Reserve bytes. Gives: whether they may be written; if so they count as written."""
        # The free space is measured again only after MEASURED_EVERY_BYTES, since each measurement
        # is a system call.
        if self.left_bytes < count:
            free = self._free_bytes()
            self.left_bytes = min(free - self._reserve_bytes, max(MEASURED_EVERY_BYTES, count))
            self.is_full = self.left_bytes < count
            if self.is_full:
                left, self.left_bytes = self.left_bytes, 0
                # a topic of very many partitions may be too large for a disk that is not full
                if left < MEASURED_EVERY_BYTES:
                    self._on_refused(self._shortage(free), min(count, MEASURED_EVERY_BYTES))
                return False
        self.left_bytes -= count
        return True

    def on_not_written(self, error: OSError) -> None:
        """A write has failed for lack of space, inodes or a quota, or for a limit on files."""
        self._on_refused(error.strerror or str(error), 1, is_error=True)

    def _on_refused(self, why: str, needed_bytes: int, *, is_error: bool = False) -> None:
        self.refused_count += 1
        refusals = self.refusals
        if refusals is None:
            refusals = self.refusals = Refusals()
            logger.error(
                "There is no room for writes in %s: %s. Clients' writes are refused until there "
                "is; %s.",
                self._directory,
                why,
                ADVICE,
            )
        refusals.count += 1
        refusals.is_new = True
        refusals.is_error |= is_error
        refusals.needed_bytes = max(refusals.needed_bytes, needed_bytes)

    # --- the room now ----------------------------------------------------------------------------

    def look(self) -> None:
        """Log at a start that there is no room for writes."""
        free = self._free_bytes()
        if free <= self._reserve_bytes:
            self.refusals = Refusals()
            self.refusals.needed_bytes = 1
            logger.error(
                "The disk of %s is too small for writes: %s. Clients' writes are refused; %s.",
                self._directory,
                self._shortage(free),
                ADVICE,
            )

    def usable_bytes(self) -> int:
        """The bytes that clients may write now; 0 also while writes fail for another reason."""
        refusals = self.refusals
        if refusals is not None and refusals.is_error:
            return 0
        return max(0, self._free_bytes() - self._reserve_bytes)

    def problem(self) -> str | None:
        """Why clients' writes are refused now, as a sentence; None if they are accepted."""
        refusals, free = self.refusals, self._free_bytes()
        if free <= self._reserve_bytes:
            return f"Clients' writes are refused: {self._shortage(free)}."
        if refusals is None:
            return None
        if refusals.is_error:
            return "Clients' writes fail: the disk, its inodes or a quota is used up."
        if free - self._reserve_bytes < refusals.needed_bytes:
            return f"Some of the clients' writes are refused: {self._shortage(free)}."
        return None

    def shortage(self) -> str:
        """How much room there is, in words."""
        return self._shortage(self._free_bytes())

    def _shortage(self, free: int) -> str:
        reserve = size_text(self._reserve_bytes)
        return (
            f"{size_text(free)} are free, and {RESERVE} keeps {reserve} for transactions and "
            "offsets"
        )

    # --- time ------------------------------------------------------------------------------------

    def next_deadline_ms(self) -> int | None:
        """The time at which the room is measured again; None while no writes are refused."""
        return None if self.refusals is None else self.refusals.due_ms

    def on_tick(self, now_ms: int) -> None:
        """Log that writes are accepted again, once there is room and nothing was refused for
        QUIET_MS.
        """
        refusals = self.refusals
        if refusals is None or refusals.due_ms > now_ms:
            return
        refusals.due_ms = now_ms + LOOK_EVERY_MS
        if refusals.since_ms < 0:
            refusals.since_ms = now_ms
        if refusals.is_new:
            refusals.is_new, refusals.quiet_since_ms = False, now_ms
        free = self._free_bytes()
        has_room = free - self._reserve_bytes >= refusals.needed_bytes
        if has_room and now_ms - refusals.quiet_since_ms >= QUIET_MS:
            self.refusals = None
            logger.warning(
                "There is room for writes in %s again: %s. %s refused in %s.",
                self._directory,
                self._shortage(free),
                count_text(refusals.count, "write was", "writes were"),
                duration_text(now_ms - refusals.since_ms),
            )


class Refusals:
    """Writes that were refused for lack of room, from the first one on.

    needed_bytes: the largest of them. is_new: whether there was one since the last tick. is_error:
    whether a write failed although the free space seemed large enough.
    """

    def __init__(self) -> None:
        self.count = self.needed_bytes = 0
        self.is_new = self.is_error = False
        self.since_ms = self.quiet_since_ms = -1
        self.due_ms = 0

"""Decides which bytes are sent to the standby, and when. The module does no IO."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import NamedTuple

from barnabas.replication.leading import Leading

logger = logging.getLogger("barnabas.replication")


class Turn(NamedTuple):
    """What to do in one turn.

    data: the bytes to send now. again_s: the time until there may be more data; 0 means soon, None
    means after the next event. end: why the connection has to be closed; empty if it stays open.
    """

    data: bytes = b""
    again_s: float | None = None
    end: str = ""


class StandbyFeed:
    """Yields the bytes for one connection of a standby, in turns.

    Takes: peer, the name of the standby in the log; timeout_s, after which the standby treats a
           silent leader as disconnected; catch_up_rate, the maximum bytes per second until the
           standby follows, 0 for no limit.
    """

    def __init__(self, leading: Leading, peer: str, timeout_s: float, catch_up_rate: int) -> None:
        self._leading, self._peer = leading, peer
        self._timeout_s, self._rate = timeout_s, catch_up_rate
        self._has_followed = False

    def next_turn(self, *, may_write: bool) -> Turn:
        """The next turn. may_write: whether the connection accepts more bytes."""
        leading = self._leading
        if leading.link is None:
            return Turn()
        if leading.lost is not None:
            return Turn(end=leading.lost)
        if not may_write:
            return Turn()
        try:
            output = leading.take_output()
        except OSError as error:
            return Turn(end=str(error))
        if leading.follows and not self._has_followed:
            self._has_followed = True
            logger.warning("the standby %s has caught up and follows", self._peer)
        return Turn(output, self._pause_s(len(output)) if leading.link.is_behind else None)

    def _pause_s(self, sent_bytes: int) -> float:
        """The pause before the next part. It lets the loop serve clients, and keeps to the maximum
        rate.
        """
        if self._has_followed or not self._rate or not sent_bytes:
            return 0
        # after a longer pause the standby would treat the leader as disconnected
        return min(sent_bytes / self._rate, self._timeout_s / 2)

    def rest(self) -> Iterator[bytes]:
        """The bytes that remain to be sent when the broker has stopped. Raises: OSError.

        A standby that does not follow gets no bytes, since its copy is not whole in any case.
        """
        leading = self._leading
        if leading.link is not None and leading.lost is None and leading.follows:
            while output := leading.take_output():
                yield output

"""What goes to the standby and when; sans-IO."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import NamedTuple

from barnabas.broker.replication.leading import Leading

logger = logging.getLogger("barnabas.replication")


class Turn(NamedTuple):
    """data: what is sent now. again_s: when there may be more, 0 soon, None when something is done.
    end: why the connection has to end; empty where it goes on.
    """

    data: bytes = b""
    again_s: float | None = None
    end: str = ""


class StandbyFeed:
    """The bytes for one connection of a standby, a turn at a time.

    Takes: peer, for the log; timeout_s, after which the standby takes a silent leader for gone;
           catch_up_rate, the most bytes a second until the standby follows, or 0.
    """

    def __init__(self, leading: Leading, peer: str, timeout_s: float, catch_up_rate: int) -> None:
        self._leading, self._peer = leading, peer
        self._timeout_s, self._rate = timeout_s, catch_up_rate
        self._has_followed = False

    def next_turn(self, *, may_write: bool) -> Turn:
        """What is to be done now. may_write: whether the connection takes more bytes."""
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
            logger.warning("the standby %s has caught up, and follows", self._peer)
        return Turn(output, self._pause_s(len(output)) if leading.link.is_behind else None)

    def _pause_s(self, sent_bytes: int) -> float:
        """Until the next part is sent: others have their turn, and the bound is kept."""
        if self._has_followed or not self._rate or not sent_bytes:
            return 0
        # later, and the standby would take the leader for gone
        return min(sent_bytes / self._rate, self._timeout_s / 2)

    def rest(self) -> Iterator[bytes]:
        """What is left when the broker has stopped; nothing for a standby that does not follow: its
        copy is not whole anyway. Raises: OSError.
        """
        leading = self._leading
        if leading.link is not None and leading.lost is None and leading.follows:
            while output := leading.take_output():
                yield output

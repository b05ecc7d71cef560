"""In which order a leader ends: one that is asked to, one whose disk failed, and one that another
node has taken over from; sans-IO.

    it ends                  what it does, in this order
    another node leads       hangs up: no word of it may go out, and the directory stays as it is
    its disk has failed      closes its logs; the lease ends by itself
    it is asked to           closes its logs; sends the rest to the standby; gives the lease up

The lease is given up last: from then on the standby may claim, and takes no more of the stream.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, auto
from typing import Protocol

from barnabas.broker.replication.leased_lead import Keeper


class Until(Enum):
    """What the rim waits for before the next step; for a time at most."""

    REST_IS_SENT = auto()
    RELEASED = auto()


class Ending(Protocol):
    """The server that ends."""

    @property
    def is_deposed(self) -> bool:
        """Whether another node leads."""

    @property
    def failed(self) -> bool:
        """Whether its disk has, or an assertion."""

    def close(self) -> None:
        """Hang up, and close the logs; the standby is sent what is written until then."""

    def abandon(self) -> None:
        """Hang up without a word; the directory stays as after a kill."""


def steps_of_end(server: Ending, keeper: Keeper | None) -> Iterator[Until]:
    """What is waited for; each step is done when the one before has been waited for.

    Takes: keeper, of the lease; None where a standby is made a leader by hand.
    """
    if server.is_deposed:
        server.abandon()
        return
    server.close()
    if keeper is not None and server.failed:
        return
    yield Until.REST_IS_SENT
    if keeper is not None:
        keeper.begin_release()
        yield Until.RELEASED
        keeper.stop()

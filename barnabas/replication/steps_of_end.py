"""The steps by which a leader ends, in their order. The module does no IO.

    reason                   steps, in order
    another node leads       close all connections without responses; the directory is not changed
    its disk has failed      close the logs; the lease expires by itself
    a stop was requested     close the logs; send the remaining data; release the lease

The lease is released last, since after that the standby may claim the leadership and no longer
reads the leader's stream.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, auto
from typing import Protocol

from barnabas.replication.leased_lead import Keeper


class Until(Enum):
    """A condition for which the rim waits before the next step, up to a time limit."""

    REST_IS_SENT = auto()
    RELEASED = auto()


class Ending(Protocol):
    """The server that ends."""

    @property
    def is_deposed(self) -> bool:
        """Whether another node leads."""

    @property
    def failed(self) -> bool:
        """Whether a write to the disk or an assertion has failed."""

    def close(self) -> None:
        """Close connections and logs. Everything written until then is sent to the standby."""

    def abandon(self) -> None:
        """Close all connections without responses. The directory is left as a kill would leave
        it.
        """


def steps_of_end(server: Ending, keeper: Keeper | None) -> Iterator[Until]:
    """Carry out the steps. Yields the conditions to wait for. After each wait the next step is
    done.

    Takes: keeper, the keeper of the lease; None without a lease.
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

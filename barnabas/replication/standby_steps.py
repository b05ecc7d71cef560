"""The steps of a standby. The module does no IO.

A generator yields each step to the rim and gets its result:

    step                        result                  exceptions
    Connect(address, seconds)                           OSError, LinkError
    Send(bytes)                                         OSError, LinkError
    Receive(seconds)            bytes, empty at the end TimeoutError, OSError, LinkError
    HangUp()
    Wait(seconds)

A wait may end early, so the next step depends on the state at that time.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Generator
from typing import Any, NamedTuple, Protocol

from barnabas.replication.following import Following
from barnabas.replication.operations import DivergedError
from barnabas.replication.wire import WireError
from barnabas.storage.disk import Disk, is_out_of_resources

logger = logging.getLogger("barnabas.replication")

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0
OF_THE_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO})
SILENT = (
    "it closed the connection: its log says why; both sides need the same "
    "barnabas.replication.security.protocol and barnabas.replication.secret"
)
Address = tuple[str, int]


class LinkError(Exception):
    """The connection is not protected, or its protection has failed; the text says what to do."""


class Connect(NamedTuple):
    """Connect to a leader."""

    address: Address
    timeout_s: float


class Send(NamedTuple):
    """Send all bytes to the leader."""

    data: bytes


class Receive(NamedTuple):
    """Receive the leader's next bytes."""

    timeout_s: float


class HangUp(NamedTuple):
    """Close the connection, if there is one."""


class Wait(NamedTuple):
    """Wait for a time, or until the state has changed."""

    seconds: float


Step = Connect | Send | Receive | HangUp | Wait
Steps = Generator[Step, Any, Any]


class Sync(Protocol):
    """The part of `early_sync.EarlySync` that a standby uses. It flushes the copy to the disk."""

    def on_written(self) -> None: ...

    def begin(self) -> None: ...

    def finish(self) -> None: ...


class Copy(NamedTuple):
    """A standby's directory.

    new_following: a function that makes the state of a connection. Its argument is a function that
    makes the copy durable.
    """

    disk: Disk
    data_dir: str
    sync: Sync
    new_following: Callable[[Callable[[], None]], Following]


class StandbySteps:
    """A standby of one leader, for as long as its process runs.

    Takes: timeout_s, after which a silent leader counts as disconnected.
    """

    def __init__(self, copy: Copy, timeout_s: float, leader: Address = ("", 0)) -> None:
        self.copy, self.leader = copy, leader
        self.timeout_s = self.connect_timeout_s = timeout_s
        self._last_reason = ""

    def run(self) -> Steps:
        """Follow the leader, and connect again whenever the connection ends."""
        pause_s = FIRST_PAUSE_S
        while True:
            if (yield from self.follow()):
                pause_s = FIRST_PAUSE_S
            yield Wait(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def follow(self) -> Steps:
        """Follow the leader over one connection. Gives: whether the copy was whole at some time.

        Raises: LogDirectoryError; OSError of this node's disk.
        """
        following, reason = self.copy.new_following(self.on_caught_up), SILENT
        try:
            yield Connect(self.leader, self.connect_timeout_s)
            yield Send(following.greeting())
            while data := (yield from self.receive()):
                reason = "it closed the connection"
                for answer in following.on_bytes(data):
                    yield Send(answer)
                self.copy.sync.on_written()
        except (WireError, DivergedError, LinkError) as error:
            reason = str(error)
        except OSError as error:
            if error.filename is not None and not is_out_of_resources(error):
                raise  # this is an error of this node's disk, not of the connection
            reason = error.strerror or str(error)
            # the standby tries again, since there may be space later
            if error.errno in OF_THE_DISK:
                reason = f"{self.copy.data_dir} cannot be written to: {reason}"
        finally:
            following.close()
            self.copy.sync.on_written()
        yield HangUp()
        self._tell(reason)
        return following.has_caught_up

    def receive(self) -> Steps:
        """The leader's next bytes; empty at the end of the stream."""
        return (yield Receive(self.timeout_s))

    def on_caught_up(self) -> None:
        """Flush the copy to the disk, since it is whole."""
        self.copy.sync.on_written()
        self.copy.sync.finish()
        self._last_reason = ""
        logger.warning("caught up with the leader %s:%d, and follows it", *self.leader)

    def _tell(self, reason: str) -> None:
        """Log why the leader is not followed, once for each reason."""
        if reason != self._last_reason:
            self._last_reason = reason
            logger.warning("the leader %s:%d is not followed: %s", *self.leader, reason)

"""Decides which connection to a leader's replication port belongs to the standby. The module does
no IO.

    event                           effect on the connection
    it connects                     it is greeting; it does not take the standby's place
    too many are greeting           the oldest one of the host with the most of them is closed
    it sends unexpected bytes       it is closed without an error: it may not be a standby
    it proves that it knows the     it becomes the standby's connection, or is refused with an error
      common secret                 and closed
    GREETING_MS have passed         it is closed, if it is still greeting (the rim has the timer)
    it is closed                    its place is free

Without these bounds hosts that do not know the secret could block the standby by opening many
connections.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Hashable
from typing import Generic, NamedTuple, TypeVar

from barnabas.replication.leading import Leading, StandbyLink, State
from barnabas.replication.wire import WireError, frame

# the maximum number of connections that have not proved that they know the secret
MOST_GREETING = 128

Peer = TypeVar("Peer", bound=Hashable)


class Reply(NamedTuple):
    """What to do after bytes were received.

    data: the bytes to send back. end: the reason why the connection is closed afterwards; empty if
    it stays open. is_admitted: whether the connection belongs to the standby from now on.
    """

    data: bytes = b""
    end: str = ""
    is_admitted: bool = False


class MadeRoom(NamedTuple, Generic[Peer]):
    """A connection that is closed because another one arrived. reason: the text for the log."""

    peer: Peer
    reason: str


class _Greeting(NamedTuple):
    """A connection that has not proved that it knows the secret. host: the address of its peer.
    link: None until the TLS handshake is done.
    """

    host: str
    link: StandbyLink | None


class Admission(Generic[Peer]):
    """The connections of one leader. Each is identified by a value that the rim chooses.

    standby: the standby's connection; None if there is none.

    Takes: most_greeting, how many connections may be greeting at a time, if this is less than
           MOST_GREETING.
    """

    def __init__(self, leading: Leading, most_greeting: int = sys.maxsize) -> None:
        self._leading = leading
        self._most_greeting = min(MOST_GREETING, most_greeting)
        self._greeting: dict[Peer, _Greeting] = {}  # the oldest first
        self.standby: Peer | None = None

    @property
    def greeting(self) -> list[Peer]:
        """The connections that have not proved that they know the secret, the oldest first."""
        return list(self._greeting)

    def on_accepted(self, peer: Peer, host: str) -> MadeRoom[Peer] | None:
        """Add a connection, before its TLS handshake.

        Gives: the connection that has to be closed to make room for it, or None.
        """
        made_room = self._make_room() if len(self._greeting) >= self._most_greeting else None
        self._greeting[peer] = _Greeting(host, None)
        return made_room

    def _make_room(self) -> MadeRoom[Peer]:
        """Drop the oldest greeting connection of the host that has the most of them, so that a host
        that floods the port loses only its own connections.
        """
        counts = Counter(greeting.host for greeting in self._greeting.values())
        ((host, _),) = counts.most_common(1)
        eldest = next(peer for peer, one in self._greeting.items() if one.host == host)
        del self._greeting[eldest]
        reason = f"{self._most_greeting} connections had not shown yet that they know the secret"
        return MadeRoom(eldest, reason)

    def on_connected(self, peer: Peer, nonce: bytes, now_ms: int) -> None:
        """Handle the end of a connection's TLS handshake. Bytes may arrive from now on."""
        greeting = self._greeting.get(peer)
        if greeting is not None:  # None if the connection was closed to make room for another one
            self._greeting[peer] = greeting._replace(link=self._leading.new_link(nonce, now_ms))

    def on_bytes(self, peer: Peer, data: bytes, now_ms: int) -> Reply:
        """Process bytes that a connection has received."""
        try:
            if peer == self.standby:
                self._leading.on_bytes(data, now_ms)
                return Reply()
            greeting = self._greeting.get(peer)
            if greeting is None or greeting.link is None:
                return Reply()  # the connection is being closed
            greeting.link.on_bytes(data, now_ms)
        except (OSError, WireError) as error:
            return Reply(end=str(error))
        if greeting.link.state is State.GREETING:
            return Reply(greeting.link.take_output(0))
        return self._admit(peer, greeting.link)

    def _admit(self, peer: Peer, link: StandbyLink) -> Reply:
        """Make a connection that has proved the secret the standby's connection, or refuse it with
        an error.
        """
        try:
            self._leading.admit(link)
        except WireError as error:
            return Reply(frame(["refused", str(error)]), str(error))
        del self._greeting[peer]
        self.standby = peer
        return Reply(is_admitted=True)

    def on_closed(self, peer: Peer) -> bool:
        """Remove a closed connection. Gives: whether it was the standby's."""
        self._greeting.pop(peer, None)
        if peer != self.standby:
            return False
        self.standby = None
        return True

"""The server as an annex sees it: its loop and clock, its connections, and the seams."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from barnabas.broker.seams.nodes import Nodes
from barnabas.broker.seams.state import BrokerState

if TYPE_CHECKING:
    from barnabas.broker.outbox import Encoded

    # loaded with the first annex that takes snapshots
    from barnabas.broker.seams.snapshots import Snapshots

HandleFrame = Callable[[int, memoryview, int], "Encoded | None"]
"""The function that handles a request: it takes the connection's id, the frame, and the steady time
in ms. It gives the response that can be sent now, unless that is in the core's outbox.
"""


class Clock(NamedTuple):
    """The sources of time: a steady clock and the wall clock, in nanoseconds."""

    steady_ns: Callable[[], int]
    wall_ns: Callable[[], int]


class ClientConnection(Protocol):
    """One client's connection.

    in_flight: whether its request has no response yet, or the next request is not allowed yet.
    is_held: whether the response is held back. peer: the client's address.
    """

    connection_id: int
    peer: str
    closed: bool
    in_flight: bool
    is_held: bool

    def send(self, pieces: Any) -> None:
        """Send a response."""

    def hold(self) -> None:
        """Read no further request, since the response is held back."""

    def release(self) -> None:
        """The response is held back no longer."""

    def wake(self) -> None:
        """Pass on the next request, after the response was sent."""

    def socket_option(self, level: int, option: int, size: int) -> bytes:
        """An option of its socket. Raises: OSError if the connection has none."""


class Host(Protocol):
    """The server. All methods are called in the loop's thread, except where they say otherwise.

    on_frame: the function that gets each request; an annex may wrap it. event_ns: the steady time
    of the core's latest event. is_closed: whether sending and writing have ended.
    """

    loop: asyncio.AbstractEventLoop
    on_frame: HandleFrame
    event_ns: int
    is_closed: bool

    @property
    def state(self) -> BrokerState:
        """The broker's state, to be read: single values."""

    @property
    def snapshots(self) -> Snapshots:
        """Snapshots of the whole state."""

    @property
    def nodes(self) -> Nodes:
        """The brokers of the process, and their ports."""

    @property
    def failed(self) -> bool:
        """Whether the disk failed, or an invariant does not hold."""

    @property
    def addresses(self) -> Sequence[tuple[str, int]]:
        """The address of each broker's first listener. Any thread may read it."""

    @property
    def request_memory_bytes(self) -> int:
        """The bytes of requests that are incomplete, or wait for the worker."""

    def now_ms(self) -> int:
        """The steady time, for an event that is passed to the core now."""

    def steady_ms(self) -> int:
        """The time of the steady clock. Any thread may call it."""

    @property
    def has_machine_clock(self) -> bool:
        """Whether the clock is the machine's own."""

    def connections(self) -> Sequence[ClientConnection]:
        """The open connections."""

    def connection(self, connection_id: int) -> ClientConnection | None:
        """The open connection with an id; None if it has ended."""

    def disconnect(self, connection: ClientConnection, reason: str | None) -> None:
        """End a connection. If there is a reason, it is written to the log."""

    def carry_out(self) -> None:
        """Carry out what the core has put into its outbox."""

    def close(self) -> None:
        """Close the server and the logs cleanly."""

    def abandon(self) -> None:
        """Close all connections at once. The directory stays as after a kill."""

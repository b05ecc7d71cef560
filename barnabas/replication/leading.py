"""The leader's side of the link to a standby: the data that are sent to it, and the responses that
wait for it.

The module does no IO: it gets the standby's bytes, the operations of the disk and the time
(`now_ms`), and `take_output` returns the bytes to send.

    state         entered by                     the leader sends
    GREETING      a connection                   a challenge; the standby's place is not taken
    PROVEN        a proof of the secret          nothing, until the standby's copy may be changed
    COMPARING     the standby is not in the      a welcome; the standby sends its inventory
                  in-sync set (any more)
    CATCHING_UP   the end of the inventory       missing data, and operations (`catch_up`)
    FOLLOWING     the copy lacks nothing         each operation

With `sync` a response to a client waits until the standby has applied everything that was done
before the response was ready (`position`). Responses begin to wait when the standby has applied
everything for the first time (`is_awaited`). If there is no standby, or if it has sent nothing for
the timeout, responses are sent at once if the leader may continue alone. Otherwise they wait.

With a lease (`leadership`) the nodes that may take over are in the lease's in-sync set. A standby
is added when it has applied everything that was done before responses began to wait for it. It is
removed before its copy is changed, and when it has disconnected, unless responses wait for its
return. As long as a node that does not follow may be in the set, responses wait.
"""

from __future__ import annotations

import contextlib
import hmac
from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import Any, NamedTuple, Protocol

from barnabas.replication.catch_up import CatchUp, Held, add_to_inventory
from barnabas.replication.lease_record import NodeAddresses
from barnabas.replication.operations import FilePiece, Kind, Operation
from barnabas.replication.wire import (
    MOST_BYTES,
    NONCE_BYTES,
    VERSION,
    AnswersWait,
    Frames,
    WireError,
    frame,
    pack,
    proof,
)
from barnabas.storage.disk import Disk
from barnabas.storage.files.checkpoints import NOT_SENT_NAME

MOST_WAITING_BYTES = 64 << 20  # maximum bytes of operations that wait to be sent to a standby
OPERATION_BYTES = 400  # the memory that an operation needs besides its data
FRAME_BYTES = 1 << 20
GREETING_MS = 5_000  # time limit for all messages until the proof of the secret
PING_PARTS = 4  # the number of pings that are sent per timeout


class ReplicationSettings(NamedTuple):
    """The settings of a leader.

    is_sync: whether responses wait for the standby. may_be_alone: whether responses are sent while
    there is no standby. timeout_ms: how long a standby may be silent. secret: the common secret.
    """

    is_sync: bool
    may_be_alone: bool
    timeout_ms: int
    secret: str


class InSyncSet(Protocol):
    """The part of `leadership.Leadership` that a leader uses: the lease's in-sync set."""

    node_id: int

    def may_be_in_sync(self) -> frozenset[int]:
        """The nodes that are in the in-sync set, or may be in it because of a write that is not
        finished.
        """

    def want_in_sync(self, node_ids: Iterable[int]) -> None:
        """Set the other nodes that the leader wants in the in-sync set."""

    def add_node(self, node_id: int, addresses: NodeAddresses) -> None:
        """Add a standby's addresses."""


class State(Enum):
    """The state of a standby; see the module's table."""

    GREETING = auto()
    PROVEN = auto()
    COMPARING = auto()
    CATCHING_UP = auto()
    FOLLOWING = auto()


class StandbyLink:
    """One connection of a standby.

    node_id, addresses: the standby's id and addresses, known once it is PROVEN. is_awaited: whether
    responses wait for the standby. awaited_from: the position from which they wait. answers_wait:
    the mode that is sent to the standby. not_sent: directories that no standby had before, each
    with the position from which this standby has it.
    """

    def __init__(self, disk: Disk, data_dir: str, secret: str, nonce: bytes, now_ms: int) -> None:
        self._disk, self._data_dir = disk, data_dir
        self._secret, self._nonce = secret, nonce
        self.state, self._has_greeted = State.GREETING, False
        self.heard_ms = now_ms
        self.applied = -1
        self.node_id, self.addresses = -1, NodeAddresses("", {})
        self.caught_up_at = self.awaited_from = 0
        self.answers_wait = AnswersWait.NEVER
        self.is_awaited = self.is_wanted = False
        self._frames = Frames()
        self._inventory: dict[str, Held] = {}
        self._catch_up: CatchUp | None = None
        self._operations: deque[Operation] = deque()
        self._waiting_bytes = 0
        self._control: list[bytes] = []
        self.not_sent: dict[str, int] = {}

    def on_bytes(self, data: bytes, now_ms: int) -> None:
        """Process bytes received from a standby. Raises: WireError, OSError."""
        # Bytes that arrive during GREETING do not extend the time limit. Otherwise a connection
        # could stay open without a proof by sending bytes.
        if self.state is not State.GREETING:
            self.heard_ms = now_ms
        for message in self._frames.feed(data):
            self._on_message(message, now_ms)

    def _on_message(self, message: list[Any], now_ms: int) -> None:
        """Process a message of the standby, as its state allows. Raises: WireError."""
        name, *values = message
        if self.state is State.GREETING:
            self._on_greeting(name, values, now_ms)
        elif self.state is State.COMPARING and name == "have":
            self._take_inventory(values)
        elif self.state is State.COMPARING and name == "end":
            self._catch_up = CatchUp(self._disk, self._data_dir, self._inventory)
            self._inventory = {}
            self.state = State.CATCHING_UP
        elif name == "applied" and len(values) == 1 and isinstance(values[0], int):
            self.applied = max(self.applied, values[0])
        else:
            raise WireError(f"a standby that is {self.state.name} says {name[:20]!r}")

    def _on_greeting(self, name: str, values: list[Any], now_ms: int) -> None:
        """Process a message of a connection that has not proved the secret. Raises: WireError."""
        if name == "hello" and len(values) == 2 and not self._has_greeted:
            version, nonce = values
            if version != VERSION:
                raise WireError(f"the standby speaks version {version!r}, and this is {VERSION}")
            if not isinstance(nonce, bytes) or len(nonce) != NONCE_BYTES:
                raise WireError("the standby's nonce is of another length")
            shown = proof(self._secret, "leader", nonce)
            self._has_greeted = True
            self._control.append(frame(["challenge", self._nonce, shown]))
        elif name == "proof" and len(values) == 4 and self._has_greeted:
            self._take_proof(values, now_ms)
        else:
            raise WireError(f"a standby begins with {name[:20]!r}")

    def _take_proof(self, values: list[Any], now_ms: int) -> None:
        """Check the standby's proof of the secret, and note its node id and addresses. Raises:
        WireError.
        """
        shown, node_id, address, listeners = values
        known = proof(self._secret, "standby", self._nonce)
        if not isinstance(shown, bytes) or not hmac.compare_digest(shown, known):
            raise WireError(
                "the standby has another barnabas.replication.secret: set the same on both"
            )
        try:
            its = {str(name): str(where) for name, where in listeners.items()}
            self.node_id, self.addresses = int(node_id), NodeAddresses(str(address), its)
        except (AttributeError, TypeError, ValueError) as error:
            raise WireError(f"the standby's position cannot be read: {error}") from error
        self.state, self.heard_ms = State.PROVEN, now_ms

    def welcome(self, cluster_id: str) -> None:
        """Request the standby's inventory. From now on its copy may be changed."""
        assert self.state is State.PROVEN, f"a standby that is {self.state.name} is welcome"
        self._control.append(frame(["welcome", cluster_id]))
        self._frames.most_bytes = MOST_BYTES
        self.state = State.COMPARING

    def _take_inventory(self, values: list[Any]) -> None:
        """Add a part of the standby's list of files. Raises: WireError."""
        try:
            for path, size, checksums in values[0]:
                part = Held(int(size), tuple(map(int, checksums)))
                add_to_inventory(self._inventory, str(path), part)
        except (IndexError, TypeError, ValueError) as error:
            raise WireError(f"the standby's list of files cannot be read: {error}") from error

    # --- operations ------------------------------------------------------------------------------

    def on_operation(self, operation: Operation) -> None:
        """Queue an operation of the directory. Raises: WireError if too much is queued."""
        if self.state is State.FOLLOWING:
            self._add(operation)
        elif self._catch_up is not None:
            for one in self._catch_up.on_operation(operation):
                self._add(one)

    def _add(self, operation: Operation) -> None:
        """Queue an operation for the standby. Raises: WireError if it is too far behind."""
        # Check before the operation is added, since a single operation may be larger than the
        # limit.
        if self._waiting_bytes > MOST_WAITING_BYTES:
            raise WireError(f"it is more than {MOST_WAITING_BYTES >> 20} MiB behind")
        self._operations.append(operation)
        self._waiting_bytes += _memory_of(operation)

    @property
    def waiting_bytes(self) -> int:
        """The size of the operations that are not sent yet."""
        return self._waiting_bytes

    @property
    def is_behind(self) -> bool:
        """Whether there are more bytes to send."""
        return bool(self._operations or self._control) or self._catch_up is not None

    def ping(self) -> None:
        """Send a ping, which the standby answers, so that both sides see that the other one is
        alive.

        Pings are also sent during a catch-up, since nothing else is sent while equal data are
        compared.
        """
        if self.state in (State.CATCHING_UP, State.FOLLOWING) and not self._operations:
            self._control.append(frame(["ping"]))

    def take_output(self, position: int) -> bytes:
        """The next bytes to send, about FRAME_BYTES; empty if there is nothing to send.

        Takes: position, the position of the last operation. Raises: OSError.
        """
        if self._control:
            control, self._control = b"".join(self._control), []
            return control
        rows, size = [], 0
        while size < FRAME_BYTES:
            if not self._operations and not self._look_further():
                break
            if self._operations:
                operation = self._operations.popleft()
                row = pack(operation)
                self._waiting_bytes -= _memory_of(operation)
                size += len(row[3]) + 64
                rows.append(row)
            else:
                # A compared piece that is not sent counts as a quarter of a frame, since reading it
                # delays clients.
                size += FRAME_BYTES // 4
        if rows:
            # All operations after those in `rows` are still queued, so the last row has the
            # position `position` minus their number.
            if self.state is State.FOLLOWING:
                return frame(["do", rows, position - len(self._operations)])
            return frame(["do", rows])
        if self._catch_up is not None and self._catch_up.is_done:
            self.not_sent = dict.fromkeys(self._catch_up.not_sent, position) | self.not_sent
            self._catch_up = None
            self.state, self.caught_up_at = State.FOLLOWING, position
            return frame(["caught up", position, self.answers_wait.value])
        return b""

    def _look_further(self) -> bool:
        """Continue the catch-up. Gives: False if the copy is complete."""
        if self._catch_up is None or self._catch_up.is_done:
            return False
        for operation in self._catch_up.next_operations():
            self._add(operation)
        return True


def _memory_of(operation: Operation) -> int:
    data = operation.data
    return OPERATION_BYTES + (0 if isinstance(data, FilePiece) else len(data))


class Leading:
    """Publishes the operations of a leader's disk to the standby that follows them.

    position: the number of operations while a standby was connected. release: a function that is
    called when the standby has applied more, or responses no longer have to wait for it.
    cluster_id: the id that is sent to the standby. level_ms: the last time at which the standby had
    applied everything.
    """

    def __init__(
        self,
        disk: Disk,
        data_dir: str,
        settings: ReplicationSettings,
        release: Callable[[], None],
        leadership: InSyncSet | None = None,
        cluster_id: str = "",
    ) -> None:
        self._disk, self._data_dir = disk, data_dir
        self.settings, self._release = settings, release
        self._leadership, self.cluster_id = leadership, cluster_id
        self.position = self.level_ms = 0
        self.link: StandbyLink | None = None
        self._pinged_ms = 0
        self.lost: str | None = None  # the reason why the link has to be closed

    @property
    def follows(self) -> bool:
        """Whether there is a standby that has everything except the operations in transit."""
        return self.link is not None and self.link.state is State.FOLLOWING

    def lag_ms(self, now_ms: int) -> int | None:
        """The time in ms since a standby last had everything; None if no standby ever had
        everything.
        """
        if self.follows and self.link is not None and self.link.applied >= self.position:
            return 0
        return None if not self.level_ms else max(0, now_ms - self.level_ms)

    def is_applied(self, position: int) -> bool:
        """Whether a response that was ready at a position may be sent."""
        link, others = self.link, self._others_in_sync()
        # Without `sync` responses do not wait for the standby, but every node that may take over
        # has to follow.
        if not self.settings.is_sync:
            return others <= ({link.node_id} if link is not None and self.follows else set())
        if link is not None and link.is_awaited:
            return link.applied >= position and others <= {link.node_id}
        return self.settings.may_be_alone and not others

    def _others_in_sync(self) -> frozenset[int]:
        """The other nodes that may take over now, or after a write that is not finished."""
        leadership = self._leadership
        if leadership is None:
            return frozenset()
        return leadership.may_be_in_sync() - {leadership.node_id}

    def _answers_wait(self) -> AnswersWait:
        """Which responses wait for a standby, even after it has disconnected."""
        if not self.settings.is_sync:
            return AnswersWait.NEVER
        if not self.settings.may_be_alone:
            return AnswersWait.ALWAYS
        return AnswersWait.NEVER if self._leadership is None else AnswersWait.WHILE_IN_SYNC

    def on_start(self) -> None:
        """Handle the start of the broker's service.

        A node of the in-sync set that does not follow is removed from the set, unless responses
        wait for it.
        """
        if self._leadership is not None and (
            self.settings.may_be_alone or not self.settings.is_sync
        ):
            self._leadership.want_in_sync(())

    def on_in_sync_changed(self) -> None:
        """Handle a change of the in-sync set, or the start or end of a write that changes it."""
        self._welcome_if_out()
        self._release()

    def new_link(self, nonce: bytes, now_ms: int) -> StandbyLink:
        """Create the link of a new connection. `admit` makes it the standby's link once the
        connection has proved the secret.

        Before that the connection does not take the standby's place, and gets only a challenge.
        """
        link = StandbyLink(self._disk, self._data_dir, self.settings.secret, nonce, now_ms)
        link.answers_wait = self._answers_wait()
        return link

    def admit(self, link: StandbyLink) -> None:
        """Make a connection that has proved the secret the standby's connection. Raises: WireError
        if there already is a standby.
        """
        assert link.state is State.PROVEN, f"a link that is {link.state.name} is no standby"
        if self.link is not None:
            raise WireError("another standby is connected, and only one is possible")
        self._check_node_id(link)
        self.link, self.lost = link, None
        self._on_proven(link)

    def on_connected(self, nonce: bytes, now_ms: int) -> StandbyLink:
        """Create the link of the only possible standby. It has the standby's place even before it
        has proved the secret.
        """
        assert self.link is None, "two standbys"
        self.link, self.lost = self.new_link(nonce, now_ms), None
        return self.link

    def on_bytes(self, data: bytes, now_ms: int) -> None:
        """Process bytes received from the standby. Raises: WireError, OSError."""
        link = self.link
        assert link is not None, "bytes without a link"
        state, applied = link.state, link.applied
        link.on_bytes(data, now_ms)
        if state is State.GREETING and link.state is State.PROVEN:
            self._on_proven(link)
        if link.applied != applied:
            self._on_applied(link, now_ms)

    def _on_proven(self, link: StandbyLink) -> None:
        """Let an admitted standby compare its copy, as soon as it is certain that the standby
        cannot take over.
        """
        self._check_node_id(link)
        leadership = self._leadership
        if leadership is not None:
            leadership.add_node(link.node_id, link.addresses)
            leadership.want_in_sync(())
        self._welcome_if_out()

    def _check_node_id(self, link: StandbyLink) -> None:
        """Raise WireError if the standby has the same node id as this node."""
        leadership = self._leadership
        if leadership is not None and link.node_id == leadership.node_id:
            raise WireError(f"the standby has this node's node.id, {link.node_id}: set another")

    def _welcome_if_out(self) -> None:
        """Let a proven standby compare its copy once no other node may take over, since the copy is
        changed from then on.
        """
        link = self.link
        if link is not None and link.state is State.PROVEN and not self._others_in_sync():
            link.welcome(self.cluster_id)

    def _on_applied(self, link: StandbyLink, now_ms: int) -> None:
        """Release the responses that may be sent since the standby has applied more."""
        if link.state is State.FOLLOWING and link.applied >= link.caught_up_at:
            if link.not_sent:
                self._remove_marks(link)
            if not link.is_awaited:
                link.is_awaited, link.awaited_from = True, self.position
            if not link.is_wanted and link.applied >= link.awaited_from:
                link.is_wanted = True
                if self._leadership is not None:
                    self._leadership.want_in_sync((link.node_id,))
        if link.applied >= self.position:
            self.level_ms = now_ms
        self._release()

    def _remove_marks(self, link: StandbyLink) -> None:
        """Remove the marks of directories that the standby now has. If a mark cannot be removed, it
        is removed during a later connection.
        """
        for name in [name for name, at in link.not_sent.items() if at <= link.applied]:
            del link.not_sent[name]
            with contextlib.suppress(OSError):
                self._disk.unlink(f"{self._data_dir}/{name}/{NOT_SENT_NAME}")

    def on_closed(self) -> None:
        """Handle the end of the standby's connection."""
        self.link = None
        self.on_start()
        self._release()

    def publish(self, operation: Operation) -> None:
        """Queue an operation that the disk has completed. An error closes the link and does not
        affect the disk.
        """
        self.position += 1
        if self.link is not None and self.lost is None:
            if operation.kind is Kind.MAKE_DIRECTORY:
                self.link.not_sent[operation.path] = self.position
            try:
                self.link.on_operation(operation)
            except (OSError, WireError) as error:
                self.lost = str(error)

    def take_output(self) -> bytes:
        """The next bytes for the standby. Raises: OSError."""
        return b"" if self.link is None else self.link.take_output(self.position)

    def on_tick(self, now_ms: int) -> None:
        """Drop a standby that has been silent for the timeout, and ping an idle one."""
        link = self.link
        if link is None or self.lost is not None:
            return
        if link.applied >= self.position:
            self.level_ms = now_ms
        timeout_ms = self.settings.timeout_ms
        limit_ms = GREETING_MS if link.state is State.GREETING else timeout_ms
        if now_ms - link.heard_ms > limit_ms:
            self.lost = f"it sent nothing for {limit_ms} ms"
        elif now_ms - self._pinged_ms >= timeout_ms // PING_PARTS:
            self._pinged_ms = now_ms
            link.ping()

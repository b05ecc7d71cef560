"""The requests that exist as objects while they wait, and those that wait as bytes until there are
fewer.

A request of 120 KB may be 3 MB of objects, and waits if it is handled in parts, in slices or by the
worker. So a larger request (above NARROW_BYTES) is decoded at once only while such requests have
less than MOST_OBJECT_BYTES on the wire together. Beyond that, and if the request itself is large,
it is decoded by the worker, and needs one of PLACES places. Without one it waits as bytes, which
count towards the memory of all connections (`queued.max.request.bytes`, where each principal has
its turn). Owners take turns, and the last place is for an owner that has none.

A request ends here when it is answered, when its connection closes, and when only its ticket waits:
for other members of a group, for the disk, or as a fetch (`waiting_memory.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from barnabas.broker.connections.connection_state import ConnectionState
from barnabas.broker.outbox import Outbox

NARROW_BYTES = 1024  # requests up to this size are not counted
MOST_OBJECT_BYTES = 1 << 20
PLACES = 4

Start = Callable[[], None]


class LargeRequests:
    """Larger requests by connection, each of which has one request at a time.

    objects: the size on the wire of each request that exists as objects. held: the bytes of each
    request that count towards the memory of all connections.
    """

    def __init__(self, connections: Mapping[int, ConnectionState], outbox: Outbox) -> None:
        self._connections, self._outbox = connections, outbox
        self.objects: dict[int, int] = {}
        self.held: dict[int, int] = {}
        self._object_bytes = 0
        self._places: dict[int, str] = {}  # the owner of each place
        # the requests that wait as bytes: their owners in the order of turns, with the call that
        # decodes each request
        self._waiting: dict[str, dict[int, Start]] = {}

    @property
    def is_crowded(self) -> bool:
        """Whether a larger request needs a place, whatever its size."""
        return self._object_bytes >= MOST_OBJECT_BYTES

    def keep(self, connection_id: int, size_bytes: int) -> None:
        """Count a request that exists as objects, and waits."""
        if size_bytes > NARROW_BYTES and connection_id not in self.objects:
            self.objects[connection_id] = size_bytes
            self._object_bytes += size_bytes

    def hold(self, connection_id: int, size_bytes: int) -> None:
        """Count bytes of a request towards the memory of all connections until `end`."""
        self.held[connection_id] = size_bytes
        self._outbox.held_bytes += size_bytes

    def decode(self, connection_id: int, size_bytes: int, start: Start) -> None:
        """Decode a request by calling `start`, now or once there is a place.

        After: its bytes count towards the memory of all connections until `end`.
        """
        self.hold(connection_id, size_bytes)
        owner = self._connections[connection_id].owner
        if owner not in self._waiting and self._may_take_place(owner):
            self._take_place(connection_id, owner, start)
        else:
            self._waiting.setdefault(owner, {})[connection_id] = start

    def end(self, connection_id: int) -> None:
        """Forget the request of a connection, if there is one."""
        self._object_bytes -= self.objects.pop(connection_id, 0)
        self._outbox.held_bytes -= self.held.pop(connection_id, 0)
        if self._places.pop(connection_id, None) is not None:
            self._fill_places()
            return
        for owner, waiting in self._waiting.items():
            if waiting.pop(connection_id, None) is not None:
                if not waiting:
                    del self._waiting[owner]
                return

    def _may_take_place(self, owner: str) -> bool:
        free = PLACES - len(self._places)
        return free > 1 or (free == 1 and owner not in self._places.values())

    def _take_place(self, connection_id: int, owner: str, start: Start) -> None:
        self._places[connection_id] = owner
        self.keep(connection_id, self.held[connection_id])
        start()

    def _fill_places(self) -> None:
        """Decode the next request of the owner whose turn it is."""
        for owner, waiting in self._waiting.items():
            if self._may_take_place(owner):
                connection_id = next(iter(waiting))
                start = waiting.pop(connection_id)
                del self._waiting[owner]
                if waiting:  # the owner's next turn is after those of the others
                    self._waiting[owner] = waiting
                self._take_place(connection_id, owner, start)
                return

"""The memory of fetches that wait, with a share for each owner.

A fetch may wait for as long as its client likes, and costs some hundred bytes for each partition,
so a client with a few connections could fill the memory. The bound is
`barnabas.waiting.fetches.max.bytes`. An owner (a principal, or an address if the client is not
authenticated) may hold at most as much as then is unused: one owner at most half of the bound, two
owners a third each, and so on. So an owner that uses all of its share leaves the next one as much.

A fetch that may not wait is answered at once, as if its max_wait_ms were over, and its client is
throttled (KIP-219) for a while, since it would send the request again at once.
"""

from __future__ import annotations

from barnabas.broker.fair_room import FairRoom

WITHOUT_WAIT_MS = 500  # as Kafka's clients wait by default (fetch.max.wait.ms)
FETCH_BYTES = 1500
PARTITION_BYTES = 500


class WaitingMemory:
    """The bytes that waiting fetches hold. refused_count: the number of fetches that could not
    wait.
    """

    def __init__(self, most_bytes: int) -> None:
        self._room = FairRoom(most_bytes)
        self.refused_count = 0

    @property
    def held_bytes(self) -> int:
        """The bytes of all owners."""
        return self._room.total

    def try_take(self, owner: str, size_bytes: int) -> bool:
        """Take memory for one fetch. Gives: whether there is room for it in the owner's share."""
        room = self._room
        if room.held_by(owner) + size_bytes > room.limit - room.total - size_bytes:
            self.refused_count += 1
            return False
        room.change(owner, size_bytes)
        return True

    def give_back(self, owner: str, size_bytes: int) -> None:
        """Give back what `try_take` has taken."""
        self._room.change(owner, -size_bytes)

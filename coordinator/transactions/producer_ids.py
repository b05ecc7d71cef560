"""Producer ids, handed out from blocks that are reserved before use."""

from __future__ import annotations

from collections.abc import Callable

MAX_PRODUCER_ID = 2**63 - 1


class ProducerIdAllocator:
    """Gives each producer id once.

    A block is reserved by `persist(end)`: from its return on, `end` is the first id that a later
    run may reserve. Only then are the block's ids given away. So a crash loses what was left of one
    block, and no id is ever given twice. Source: KIP-730.
    """

    def __init__(
        self, *, block_size: int = 1000, persist: Callable[[int], None], next_id: int = 0
    ) -> None:
        """Begin after the last reserved block.

        Takes:  next_id, the last argument of `persist`, 0 at first: no id at or above it was ever
                given away.
        """
        assert block_size > 0
        assert next_id >= 0
        self._block_size = block_size
        self._persist = persist
        self._next_id = self._block_end = next_id

    def skip_used(self, next_id: int) -> None:
        """Give away no id below `next_id`.

        Another broker gave some of them away, or the note of the reserved block is lost.
        """
        if next_id > self._next_id:
            self._next_id = self._block_end = max(next_id, self._block_end)

    def skip(self, count: int) -> None:
        """Give away none of the next `count` ids that are not reserved, nor will a later run: a
        broker of which this directory has not heard may have done so.
        """
        self._next_id = self._block_end
        end = self._block_end + count
        assert end <= MAX_PRODUCER_ID, "producer ids are exhausted"
        self._persist(end)
        self._next_id = self._block_end = end

    def allocate(self) -> int:
        """An id that nobody has.

        Raises: what `persist` raises; nothing is given away then.
        """
        if self._next_id == self._block_end:
            self._block_end = self._reserve_after(self._block_end)
        producer_id = self._next_id
        self._next_id += 1
        assert producer_id < self._block_end
        return producer_id

    def reserve_block(self) -> range:
        """A block of ids for one of several brokers; `allocate` gives none of them."""
        first = self._block_end
        self._next_id = self._block_end = self._reserve_after(first)
        return range(first, self._block_end)

    def _reserve_after(self, block_end: int) -> int:
        assert block_end <= MAX_PRODUCER_ID - self._block_size, "producer ids are exhausted"
        self._persist(block_end + self._block_size)
        return block_end + self._block_size

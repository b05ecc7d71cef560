"""Allocates producer ids from blocks that are reserved before use."""

from __future__ import annotations

from collections.abc import Callable

MAX_PRODUCER_ID = 2**63 - 1


class ProducerIdAllocator:
    """Allocates each producer id once.

    `persist(end)` reserves a block: once it has returned, `end` is the first id that a later run
    may reserve. The ids of the block are allocated only after that. A crash therefore wastes the
    rest of one block, and no id is ever allocated twice. Source: KIP-730.
    """

    def __init__(
        self, *, block_size: int = 1000, persist: Callable[[int], None], next_id: int = 0
    ) -> None:
        """Begin after the last reserved block.

        Takes:  next_id, the last argument of `persist`, initially 0. No id at or above it was ever
                allocated.
        """
        assert block_size > 0
        assert next_id >= 0
        self._block_size = block_size
        self._persist = persist
        self._next_id = self._block_end = next_id

    def skip_used(self, next_id: int) -> None:
        """Allocate no id below `next_id`.

        Another broker may have allocated some of these ids, or the record of the reserved block was
        lost.
        """
        if next_id > self._next_id:
            self._next_id = self._block_end = max(next_id, self._block_end)

    def skip(self, count: int) -> None:
        """Skip the next `count` ids that are not reserved, also in later runs.

        A broker that this directory has no record of may have allocated them.
        """
        self._next_id = self._block_end
        end = self._block_end + count
        assert end <= MAX_PRODUCER_ID, "producer ids are exhausted"
        self._persist(end)
        self._next_id = self._block_end = end

    def allocate(self) -> int:
        """Allocate an unused id.

        Raises: the errors of `persist`, after which no id is allocated.
        """
        if self._next_id == self._block_end:
            self._block_end = self._reserve_after(self._block_end)
        producer_id = self._next_id
        self._next_id += 1
        assert producer_id < self._block_end
        return producer_id

    def reserve_block(self) -> range:
        """Reserve a block of ids for one of several brokers; `allocate` skips these ids."""
        first = self._block_end
        self._next_id = self._block_end = self._reserve_after(first)
        return range(first, self._block_end)

    def _reserve_after(self, block_end: int) -> int:
        """Reserve the block after that id, durably. Gives: the end of the block."""
        assert block_end <= MAX_PRODUCER_ID - self._block_size, "producer ids are exhausted"
        self._persist(block_end + self._block_size)
        return block_end + self._block_size

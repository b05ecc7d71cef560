"""Allocates producer ids from blocks that are reserved before use."""

from __future__ import annotations

from collections.abc import Callable

MAX_PRODUCER_ID = 2**63 - 1


class ProducerIdAllocator:
    """Allocates each producer id once.

    `persist(end)` reserves a block. Once it has returned, a later run reserves ids from `end` on.
    The ids of the block are allocated only after that. A crash therefore wastes the rest of one
    block, and no id is ever allocated twice. Source: KIP-730.
    """

    def __init__(
        self, *, block_size: int = 1000, persist: Callable[[int], None], next_id: int = 0
    ) -> None:
        """Start with the first id after the last reserved block.

        Takes:  next_id, the last argument of `persist`, initially 0. Neither this id nor a higher
                one has been allocated.
        """
        assert block_size > 0
        assert next_id >= 0
        self._block_size = block_size
        self._persist = persist
        self._next_id = self._block_end = next_id

    def skip_used(self, next_id: int) -> None:
        """Ensure that no id below `next_id` is allocated.

        Another broker may have allocated some of these ids, or the record of the reserved block was
        lost.
        """
        if next_id > self._next_id:
            self._next_id = self._block_end = max(next_id, self._block_end)

    def skip(self, count: int) -> None:
        """Skip the `count` ids after the last reserved block, in this run and in later ones.

        Another broker may have allocated these ids without a record in this directory.
        """
        self._next_id = self._block_end
        end = self._block_end + count
        assert end <= MAX_PRODUCER_ID, "producer ids are exhausted"
        self._persist(end)
        self._next_id = self._block_end = end

    def allocate(self) -> int:
        """Allocate an unused id.

        Raises: the errors of `persist`. In this case no id is allocated.
        """
        if self._next_id == self._block_end:
            self._block_end = self._reserve_after(self._block_end)
        producer_id = self._next_id
        self._next_id += 1
        assert producer_id < self._block_end
        return producer_id

    def reserve_block(self) -> range:
        """Reserve a block of ids for one of several brokers. `allocate` does not use these ids."""
        first = self._block_end
        self._next_id = self._block_end = self._reserve_after(first)
        return range(first, self._block_end)

    def _reserve_after(self, block_end: int) -> int:
        """Durably reserve the block that begins at `block_end`. Gives: the end of the new block."""
        assert block_end <= MAX_PRODUCER_ID - self._block_size, "producer ids are exhausted"
        self._persist(block_end + self._block_size)
        return block_end + self._block_size

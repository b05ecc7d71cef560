"""Whether a socket or pipe has something to be read, with any number of descriptors open."""

from __future__ import annotations

import select
from typing import Protocol


class HasFileno(Protocol):
    def fileno(self) -> int: ...


def has_input(source: HasFileno, timeout_s: float = 0) -> bool:
    """Whether something can be read from `source` within `timeout_s`, its end included.

    `select.select` refuses descriptors above 1023, which a process that ran many tests may have.
    """
    poll = select.poll()
    poll.register(source, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))

"""A check for readable data in a socket or pipe that works with any number of open descriptors."""

from __future__ import annotations

import select
from typing import Protocol


class HasFileno(Protocol):
    def fileno(self) -> int: ...


def has_input(source: HasFileno, timeout_s: float = 0) -> bool:
    """Whether `source` becomes readable or ends within `timeout_s`.

    This function does not use `select.select`, which refuses descriptors above 1023. A process that
    ran many tests may have such descriptors.
    """
    poll = select.poll()
    poll.register(source, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))

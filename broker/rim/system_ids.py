"""Creates random ids with the operating system's random generator."""

from __future__ import annotations

import random
import uuid


class SystemIds:
    """Random ids from the operating system's generator."""

    def __init__(self) -> None:
        self._random = random.SystemRandom()

    def uuid(self) -> uuid.UUID:
        return uuid.uuid4()

    def random31(self) -> int:
        return self._random.randrange(1, 2**31)

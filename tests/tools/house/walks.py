"""Records which of the product's functions handle an event: what one has to read to follow it.

Calls into the standard library, C functions, and code below the disk's interface (such as the
descriptor pool) are not counted, so the numbers are the same with every Python.
"""

from __future__ import annotations

import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path
from types import FrameType

import barnabas

PACKAGES = ("broker", "coordinator", "protocol", "storage")
BELOW_THE_SEAM = "/pooled_disk.py"
COMPREHENSIONS = ("<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>")


class Walk:
    """A context that records the calls of the product's functions, each as package, file and
    function.
    """

    def __init__(self) -> None:
        root = Path(barnabas.__file__).parent
        self._roots = {
            f"{directory}/": package
            for package in PACKAGES
            for directory in {root / package, (root / package).resolve()}
        }
        self.calls: list[tuple[str, str, str]] = []

    def __enter__(self) -> Walk:
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, _argument: object) -> None:
        """Record a call if the function belongs to the product. This is a hook for
        `sys.setprofile`.
        """
        code = frame.f_code
        # Before Python 3.12, comprehensions are reported as calls.
        if event == "call" and code.co_name not in COMPREHENSIONS:
            path = code.co_filename
            for root, package in self._roots.items():
                if path.startswith(root) and not path.endswith(BELOW_THE_SEAM):
                    name = f"{package}/{path[len(root) :]}"
                    self.calls.append((package, name, code.co_qualname))

    def files(self, *packages: str) -> Counter[str]:
        return Counter(name for package, name, _ in self.calls if package in packages)

    @property
    def changes(self) -> int:
        """How many calls go to another file than the call before them."""
        return sum(after[1] != before[1] for before, after in pairwise(self.calls))

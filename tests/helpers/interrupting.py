"""Child processes that SIGINT ends, as Ctrl-C does."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def sigint_not_ignored() -> Iterator[None]:
    """A child process that is started in this context does not ignore SIGINT.

    If the tests are a shell's background job, they ignore SIGINT, and child processes would inherit
    that.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)

"""What SIGHUP means for the process."""

from __future__ import annotations

import os
import signal


def has_terminal() -> bool:
    """Whether the process has a controlling terminal, which sends SIGHUP when it is closed."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def hangup_reloads() -> bool:
    """Whether SIGHUP asks for a reload, and is not ignored."""
    return signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN and not has_terminal()

"""The daemon without its guard against late requests: `python -P unguarded_daemon.py start …`.

It does what a broker does that knows a producer by id, epoch and sequences alone: a request counts
over whichever connection it comes, and a batch with used sequences is a repetition. So a test can
show that `examples/late_requests` finds what is lost and mixed there.
"""

from __future__ import annotations

import sys
from typing import Any

from barnabas.coordinator.transactions.transaction_coordinator import TransactionCoordinator
from barnabas.daemon.main import main
from barnabas.storage.producers import repetition


def _any_connection(*_: Any, **__: Any) -> None:
    """Accept a request over each connection."""


def _by_sequences_alone(*_: Any, **__: Any) -> bool:
    """Whether a batch with the sequences of a stored one repeats it."""
    return True


if __name__ == "__main__":
    TransactionCoordinator.check_connection = _any_connection  # type: ignore[method-assign]
    repetition.is_repetition = _by_sequences_alone
    sys.exit(main())

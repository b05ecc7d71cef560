"""Measuring under a test's control: metrics show what faults do to requests."""

from __future__ import annotations

from time import monotonic_ns

from barnabas.broker.control.rim.server import ControlledServer
from barnabas.broker.metrics.rim.measured import MeasuredServer


class MeasuredControlledServer(MeasuredServer, ControlledServer):
    """A server under a test's control whose requests are measured."""

    def carry_out(self) -> None:
        """Carry out the core's outbox.

        A request that a fault held back arrives without an event of Server's.
        """
        if self._parked:
            self._note_answers(monotonic_ns())
        super().carry_out()

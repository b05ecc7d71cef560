"""Measuring beside a test's control: what faults do to requests shows in the metrics."""

from __future__ import annotations

from time import monotonic_ns

from barnabas.broker.control.rim.server import ControlledServer
from barnabas.broker.metrics.rim.measured import MeasuredServer


class MeasuredControlledServer(MeasuredServer, ControlledServer):
    """A server under a test's control whose requests are measured."""

    def carry_out(self) -> None:
        """Carry out what the core has put out.

        A request that a fault held back comes by no event of Server's.
        """
        if self._parked:
            self._note_answers(monotonic_ns())
        super().carry_out()

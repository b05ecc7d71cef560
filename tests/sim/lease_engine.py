"""The engine outside that keeps the lease's record: one value with a version, behind a network of
its own.

It is linearizable. What goes amiss is the way to it: a request or its answer is lost or late, and a
write may be carried out long after its node has given it up.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from barnabas.broker.replication.leadership import (
    ABSENT,
    Answer,
    Conflict,
    Found,
    Read,
    Request,
    Unknown,
    Written,
)
from barnabas.broker.replication.lease_record import LeaseRecord, decode_lease_record
from sim.loop import Loop


class LeaseEngine:
    """The record, and how the way to it is at the moment.

    cut_off: the nodes that do not reach it. lost, late: the chances of each request that its answer
    is lost though it was carried out, and that it is carried out only after its node has given up.
    """

    def __init__(self, loop: Loop, rng: random.Random) -> None:
        self._loop, self._rng = loop, rng
        self._version, self._value = 0, b""
        self.cut_off: set[int] = set()
        self.delay_ms, self.lost, self.late = 8, 0.0, 0.0
        self.records: list[tuple[int, LeaseRecord]] = []

    @property
    def record(self) -> LeaseRecord | None:
        """The record as it truly is."""
        return decode_lease_record(self._value) if self._version else None

    def ask(
        self, node_id: int, request: Request, timeout_ms: int, then: Callable[[Answer], None]
    ) -> None:
        """Carry a request there and its answer back; Unknown after the time-out."""
        rng, loop = self._rng, self._loop
        is_answered = False

        def answer(value: Answer) -> None:
            nonlocal is_answered
            if not is_answered:
                is_answered = True
                then(value)

        def arrive(is_lost: bool) -> None:
            value = self._carry_out(request)
            if not is_lost and node_id not in self.cut_off:
                loop.later(rng.randint(0, self.delay_ms), answer, value)

        loop.later(timeout_ms, answer, Unknown())
        fate = rng.random()
        delay_ms = rng.randint(0, self.delay_ms)
        if node_id in self.cut_off:
            if fate < self.late:  # it was on its way when the network was cut
                loop.later(rng.randint(timeout_ms, 4 * timeout_ms), arrive, True)
        elif fate < self.late:
            loop.later(rng.randint(timeout_ms // 2, 4 * timeout_ms), arrive, False)
        else:
            loop.later(delay_ms, arrive, fate < self.late + self.lost)

    def _carry_out(self, request: Request) -> Answer:
        version = str(self._version) if self._version else ABSENT
        if isinstance(request, Read):
            return Found(version, self._value)
        if request.version != version:
            return Conflict()
        self._version, self._value = self._version + 1, request.value
        self.records.append((self._loop.now_ms, decode_lease_record(request.value)))
        return Written(str(self._version))

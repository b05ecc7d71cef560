"""The thread that keeps the lease: it asks the engine what `Leadership` wants, and feeds it back.

A thread of its own, so that the lease is renewed while a broker starts, or its loop is held up.
What others ask of the leadership goes through a lock, so that nothing that may go out is decided
upon a set that a write under way is about to change.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from barnabas.broker.replication.leadership import Answer, Holding, Leadership, Request, Role
from barnabas.broker.replication.lease_engine import LeaseEngine
from barnabas.broker.replication.lease_record import LeaseRecord, LeaseRecordError, NodeAddresses

logger = logging.getLogger("barnabas.lease")

LONGEST_WAIT_S = 1.0
# it goes on while the machine sleeps, and so does the lease
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def lease_ms() -> int:
    """The steady time by which leases go."""
    return time.clock_gettime_ns(_CLOCK) // 1_000_000


class LeaseKeeper:
    """A leadership that is kept up to date.

    on_change: called in the thread after each answer. failure: why it goes on no more.
    """

    def __init__(
        self,
        leadership: Leadership,
        engine: LeaseEngine,
        clock_ms: Callable[[], int] = lease_ms,
    ) -> None:
        self._leadership, self._engine, self._clock_ms = leadership, engine, clock_ms
        self.node_id = leadership.node_id
        self._changed = threading.Condition(threading.RLock())
        self._ends = False
        self.failure: LeaseRecordError | None = None
        self.on_change: Callable[[], None] = lambda: None
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)

    def start(self) -> None:
        """Begin to ask."""
        self._thread.start()

    def _run(self) -> None:
        try:
            self._keep()
        except Exception as error:  # ours; nobody would hear of it, and wait for ever
            logger.exception("the lease is kept no more")
            with self._changed:
                self.failure, self._ends = LeaseRecordError(f"the lease: {error!r}"), True
                self._notify()
            self.on_change()

    def _keep(self) -> None:
        while not self._ends:
            with self._changed:
                request = self.next_request()
                if request is None:
                    self._changed.wait(max(0.001, self.pause_s()))
                    continue
            self.take_answer(self._engine.ask(request))

    def next_request(self) -> Request | None:
        """What the engine is asked now; None: nothing for `pause_s`, if nothing changes before."""
        return None if self._ends else self._leadership.next_request(self._clock_ms())

    def pause_s(self) -> float:
        """How long nothing is asked."""
        now_ms = self._clock_ms()
        next_ms = self._leadership.next_request_ms(now_ms)
        return LONGEST_WAIT_S if next_ms is None else (next_ms - now_ms) / 1000

    def take_answer(self, answer: Answer) -> None:
        """The engine's answer to the request of before."""
        with self._changed:
            try:
                self._leadership.on_answer(answer, self._clock_ms())
            except LeaseRecordError as error:
                self.failure, self._ends = error, True
            self._notify()
        self.on_change()

    def _notify(self) -> None:
        """Something has changed: wake up who waits for that, and ask the engine if need be."""
        self._changed.notify_all()

    # --- what is asked of it, in any thread ------------------------------------------------------

    def may_answer(self) -> bool:
        """Whether this node leads, and certainly no other does."""
        return self._leadership.may_answer(self._clock_ms())

    @property
    def role(self) -> Role:
        """What the node is."""
        return self._leadership.role

    @property
    def record(self) -> LeaseRecord | None:
        """What was read last."""
        return self._leadership.record

    @property
    def nodes(self) -> Mapping[int, NodeAddresses]:
        """Where each node is that was ever told of."""
        with self._changed:
            return self._leadership.nodes

    @property
    def in_sync(self) -> frozenset[int]:
        """The set as it was seen last."""
        return self._leadership.in_sync

    @property
    def leader_epoch(self) -> int:
        """The leader epoch of this node's claim."""
        return self._leadership.leader_epoch

    @property
    def trouble(self) -> str:
        """Why the engine does not answer; empty where it does."""
        return self._engine.last_error

    @property
    def obstacle(self) -> str:
        """Why this node does not lead, though nobody has for a while; empty where it is not so."""
        with self._changed:
            return self._leadership.obstacle(self._clock_ms())

    @property
    def unchanged_ms(self) -> int:
        """For how long nobody has renewed, as far as was seen."""
        with self._changed:
            return self._leadership.unchanged_ms(self._clock_ms())

    def may_be_in_sync(self) -> frozenset[int]:
        """Every node that is in the set, or may come to be."""
        with self._changed:
            return self._leadership.may_be_in_sync()

    def want_in_sync(self, node_ids: Iterable[int]) -> None:
        """Whom the leader wants in the set, beside itself."""
        self._change(self._leadership.want_in_sync, node_ids)

    def add_node(self, node_id: int, addresses: NodeAddresses) -> None:
        """A standby tells where it is."""
        self._change(self._leadership.add_node, node_id, addresses)

    def set_holding(self, holding: Holding) -> None:
        """What the directory is worth from now on."""
        with self._changed:
            self._leadership.holding = holding
            self._notify()

    def set_opened(self, cluster_id: str, leader_epoch: int) -> None:
        """The leader's directory is open, no standby's any more, of that cluster, and led in that
        epoch.
        """
        with self._changed:
            self._leadership.cluster_id = cluster_id
            self._leadership.set_opened(leader_epoch)
            self._notify()

    def begin_release(self) -> None:
        """Give the leadership up. After: `has_released`, once another may have it."""
        with self._changed:
            self._leadership.release()
            self._notify()

    @property
    def has_released(self) -> bool:
        """Whether another node may lead, as far as this one can say."""
        return self.role is not Role.LEADING or self.failure is not None

    def wait_until_released(self, timeout_s: float) -> None:
        """After `begin_release`: wait for its end, or for so long."""
        ends_s = time.monotonic() + timeout_s
        with self._changed:
            while not self.has_released:
                left_s = ends_s - time.monotonic()
                if left_s <= 0:
                    break
                self._changed.wait(left_s)

    def wait(self, timeout_s: float) -> None:
        """Until something has changed, or for so long."""
        with self._changed:
            self._changed.wait(timeout_s)

    def stop(self) -> None:
        """Ask no more."""
        self.on_change = lambda: None
        with self._changed:
            self._ends = True
            self._notify()
        self._thread.join(self._leadership.timeout_ms / 1000)
        self._engine.close()

    def _change(self, call: Callable[..., None], *arguments: Any) -> None:
        with self._changed:
            call(*arguments)
            self._notify()

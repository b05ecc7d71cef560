"""The thread that keeps the lease. It sends the requests of `Leadership`, and passes the engine's
answers to it.

The lease is kept in a thread of its own, so that it is renewed while a broker starts or its loop is
blocked. A lock protects the leadership, so that no response is released on the basis of an in-sync
set that a running write may change.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from barnabas.replication.leadership import Answer, Holding, Leadership, Request, Role
from barnabas.replication.lease_engine import LeaseEngine
from barnabas.replication.lease_record import LeaseRecord, LeaseRecordError, NodeAddresses

logger = logging.getLogger("barnabas.lease")

LONGEST_WAIT_S = 1.0
# this clock also advances while the machine is suspended, as the time of the lease does
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def lease_ms() -> int:
    """The steady time for leases, in ms."""
    return time.clock_gettime_ns(_CLOCK) // 1_000_000


class LeaseKeeper:
    """Keeps a leadership up to date.

    on_change: a function that is called in the thread after each answer. failure: the error that
    ended the thread, or None.
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
        """Start the thread."""
        self._thread.start()

    def _run(self) -> None:
        """The thread's function: keep the lease until `stop`, or until a failure."""
        try:
            self._keep()
        # this is a bug in Barnabas; without this handler, waiting threads would wait for ever
        except Exception as error:
            logger.exception("the lease is no longer renewed")
            with self._changed:
                self.failure, self._ends = LeaseRecordError(f"the lease: {error!r}"), True
                self._notify()
            self.on_change()

    def _keep(self) -> None:
        """Send each request that is due, and wait between them until the next one, or until
        something changes.
        """
        while not self._ends:
            with self._changed:
                request = self.next_request()
                if request is None:
                    self._changed.wait(max(0.001, self.pause_s()))
                    continue
            self.take_answer(self._engine.ask(request))

    def next_request(self) -> Request | None:
        """The next request to the engine; None if no request is due. Then the next one is due after
        `pause_s`, or when something changes.
        """
        return None if self._ends else self._leadership.next_request(self._clock_ms())

    def pause_s(self) -> float:
        """The time in seconds until the next request is due."""
        now_ms = self._clock_ms()
        next_ms = self._leadership.next_request_ms(now_ms)
        return LONGEST_WAIT_S if next_ms is None else (next_ms - now_ms) / 1000

    def take_answer(self, answer: Answer) -> None:
        """Process the engine's answer."""
        with self._changed:
            try:
                self._leadership.on_answer(answer, self._clock_ms())
            except LeaseRecordError as error:
                self.failure, self._ends = error, True
            self._notify()
        self.on_change()

    def _notify(self) -> None:
        """Wake up the waiting threads after a change, so that a request is sent if one is due."""
        self._changed.notify_all()

    # --- reading its state, in any thread --------------------------------------------------------

    def may_answer(self) -> bool:
        """Whether this node leads, and certainly no other node does."""
        return self._leadership.may_answer(self._clock_ms())

    @property
    def role(self) -> Role:
        """The node's role."""
        return self._leadership.role

    @property
    def record(self) -> LeaseRecord | None:
        """The record that was read last."""
        return self._leadership.record

    @property
    def nodes(self) -> Mapping[int, NodeAddresses]:
        """The addresses of all known nodes."""
        with self._changed:
            return self._leadership.nodes

    @property
    def in_sync(self) -> frozenset[int]:
        """The in-sync set of the record that was last seen; empty if no record was seen."""
        return self._leadership.in_sync

    @property
    def leader_epoch(self) -> int:
        """The leader epoch of this node's claim."""
        return self._leadership.leader_epoch

    @property
    def trouble(self) -> str:
        """The reason why the engine does not answer; empty if it does."""
        return self._engine.last_error

    @property
    def obstacle(self) -> str:
        """Why this node does not lead although no other node has led for a while; empty if nothing
        prevents it.
        """
        with self._changed:
            return self._leadership.obstacle(self._clock_ms())

    @property
    def unchanged_ms(self) -> int:
        """The time in ms since the record was last seen to change."""
        with self._changed:
            return self._leadership.unchanged_ms(self._clock_ms())

    def may_be_in_sync(self) -> frozenset[int]:
        """The nodes that are in the in-sync set, or may be in it because of a write that is not
        finished.
        """
        with self._changed:
            return self._leadership.may_be_in_sync()

    def want_in_sync(self, node_ids: Iterable[int]) -> None:
        """Set the other nodes that the leader wants in the in-sync set."""
        self._change(self._leadership.want_in_sync, node_ids)

    def add_node(self, node_id: int, addresses: NodeAddresses) -> None:
        """Add a standby's addresses."""
        self._change(self._leadership.add_node, node_id, addresses)

    def set_holding(self, holding: Holding) -> None:
        """Set the state of the directory."""
        with self._changed:
            self._leadership.holding = holding
            self._notify()

    def set_opened(self, cluster_id: str, leader_epoch: int) -> None:
        """Record that the leader's directory is open, with its cluster id and leader epoch."""
        with self._changed:
            self._leadership.cluster_id = cluster_id
            self._leadership.set_opened(leader_epoch)
            self._notify()

    def begin_release(self) -> None:
        """Begin to release the leadership. After: `has_released` is True once another node may
        lead.
        """
        with self._changed:
            self._leadership.release()
            self._notify()

    @property
    def has_released(self) -> bool:
        """Whether another node may lead, as far as this node knows."""
        return self.role is not Role.LEADING or self.failure is not None

    def wait_until_released(self, timeout_s: float) -> None:
        """Wait until the leadership is released, for at most `timeout_s` seconds."""
        ends_s = time.monotonic() + timeout_s
        with self._changed:
            while not self.has_released:
                left_s = ends_s - time.monotonic()
                if left_s <= 0:
                    break
                self._changed.wait(left_s)

    def wait(self, timeout_s: float) -> None:
        """Wait for a change, for at most `timeout_s` seconds."""
        with self._changed:
            self._changed.wait(timeout_s)

    def stop(self) -> None:
        """Stop the thread."""
        self.on_change = lambda: None
        with self._changed:
            self._ends = True
            self._notify()
        self._thread.join(min(self._leadership.timeout_ms / 1000, LONGEST_WAIT_S))
        self._engine.close()
        if self._thread.is_alive():  # its request, which waited for an answer, has just failed
            self._thread.join(LONGEST_WAIT_S)

    def _change(self, call: Callable[..., None], *arguments: Any) -> None:
        """Change the leadership under the lock, and wake the thread: a request may be due now."""
        with self._changed:
            call(*arguments)
            self._notify()

"""The Python client of a broker's test control, which causes faults and moves the clock.

    with LocalBroker(control=True) as broker:
        with broker.control.fault("drop_answer", api="EndTxn", nth=1):
            ...
        broker.control.advance(minutes=16)

docs/TESTING.md documents this client, and the HTTP interface for other languages.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

_ANSWER_WITHIN_S = 90.0


class ControlError(Exception):
    """An error that the control endpoint returned, with the reason."""


class Fault:
    """An active fault. met: the number of requests to which it was applied."""

    def __init__(self, control: Control, number: int) -> None:
        self._control, self.number = control, number

    @property
    def met(self) -> int:
        """The number of requests to which the fault was applied so far."""
        for fault in self._control.ask("GET", "/faults"):
            if fault["id"] == self.number:
                return int(fault["met"])
        raise ControlError("the fault was removed")

    def release(self) -> None:
        """Release the requests that the fault holds.

        Raises: ControlError if its action is not `hold`, or if it was removed.
        """
        self._control.ask("POST", f"/faults/{self.number}/release")

    def remove(self) -> None:
        """Remove the fault; the requests that it holds are released."""
        self._control.ask("DELETE", f"/faults/{self.number}")


class Control:
    """The client of a broker's test control. Its methods raise ControlError and OSError.

    url: the address of the endpoint, in the form `http://127.0.0.1:PORT`.
    """

    def __init__(self, url: str) -> None:
        self.url = url

    def ask(self, method: str, path: str, values: dict[str, Any] | None = None) -> Any:
        """Send one request to the endpoint. Gives: the decoded response."""
        request = urllib.request.Request(
            self.url + path,
            method=method,
            data=None if values is None else json.dumps(values).encode(),
            headers={"Content-Type": "application/json"},
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=_ANSWER_WITHIN_S) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                raise ControlError(json.load(error)["error"]) from None

    # --- time ------------------------------------------------------------------------------------

    def advance(
        self,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        ms: float = 0,
    ) -> None:
        """Advance the broker's clock; return when all work due by the new time is done."""
        by = {"days": days, "hours": hours, "minutes": minutes, "seconds": seconds, "ms": ms}
        self.ask("POST", "/time/advance", by)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Freeze the broker's clock within the context. Only `advance` then moves it.

        Long polls end only when data arrive, since their timeouts do not pass.
        """
        self.ask("POST", "/time/freeze")
        try:
            yield
        finally:
            with suppress(OSError):  # the broker may have ended
                self.ask("POST", "/time/unfreeze")

    @property
    def ahead_ms(self) -> int:
        """The milliseconds by which the broker's clock is ahead of the machine's."""
        return int(self.ask("GET", "/time")["ahead_ms"])

    # --- faults ----------------------------------------------------------------------------------

    def add_fault(self, action: str, **rule: Any) -> Fault:
        """Add a fault, which is active until it is removed.

        Takes:  action, one of delay, delay_answer, hold, drop_answer, close_before, close_after,
                cut, error, twice; as filters of the requests: api, version, client_id, connection,
                topic, partition, group, transactional_id, nth, times, chance (and seed); ms, the
                duration of a delay; code, the error code that the action `error` returns.
        """
        added = self.ask("POST", "/faults", {"action": action, **rule})
        return Fault(self, added["id"])

    @contextmanager
    def fault(self, action: str, **rule: Any) -> Iterator[Fault]:
        """A fault that is active within the context; see `add_fault`."""
        fault = self.add_fault(action, **rule)
        try:
            yield fault
        finally:
            # Errors are ignored, since the fault may already be removed, and the broker may have
            # ended.
            with suppress(ControlError, OSError):
                fault.remove()

    def remove_all_faults(self) -> None:
        """Remove all faults."""
        self.ask("DELETE", "/faults")

    # --- connections -----------------------------------------------------------------------------

    def connections(self) -> list[dict[str, Any]]:
        """The open connections. Each row has the fields connection, client (the client's address)
        and client_id.
        """
        connections: list[dict[str, Any]] = self.ask("GET", "/connections")
        return connections

    def close_connections(self, client_id: str | None = None) -> int:
        """Close all connections, or only those with the given client_id.

        Gives:  the number of closed connections.
        """
        values = {} if client_id is None else {"client_id": client_id}
        return int(self.ask("POST", "/connections/close", values)["closed"])

    @contextmanager
    def refusing_connections(self) -> Iterator[None]:
        """Refuse new connections within the context, as if no broker were running."""
        self.ask("POST", "/connections/refuse")
        try:
            yield
        finally:
            with suppress(OSError):  # the broker may have ended
                self.ask("POST", "/connections/accept")

    # --- several brokers -------------------------------------------------------------------------

    def brokers(self) -> list[dict[str, Any]]:
        """The brokers. Each row has the fields id, host, port, is_there, is_controller, and leads.

        `leads` maps each topic to the indexes of the partitions that the broker leads.
        """
        brokers: list[dict[str, Any]] = self.ask("GET", "/brokers")
        return brokers

    def leader(self, topic: str, partition: int = 0) -> int | None:
        """The id of the broker that leads a partition; None if the partition has no leader.

        Raises: ControlError for an unknown partition.
        """
        query = urllib.parse.urlencode({"topic": topic, "partition": partition})
        leader = self.ask("GET", f"/leaders?{query}")["leader"]
        return None if leader is None else int(leader)

    def take_away(self, broker: int) -> None:
        """Stop a broker. Its port and its connections close, and other brokers become the leaders
        of its partitions.
        """
        self.ask("POST", f"/brokers/{broker}/take-away")

    def give_back(self, broker: int) -> None:
        """Start a broker again. It becomes the leader only of partitions that no other broker could
        lead.
        """
        self.ask("POST", f"/brokers/{broker}/give-back")

    @contextmanager
    def without_broker(self, broker: int) -> Iterator[None]:
        """Stop a broker within the context."""
        self.take_away(broker)
        try:
            yield
        finally:
            with suppress(OSError):  # the process may have ended
                self.give_back(broker)

    def move_leader(self, topic: str, partition: int, broker: int) -> None:
        """Make a broker the leader of a partition. The broker has to be an in-sync replica of the
        partition.
        """
        values = {"topic": topic, "partition": partition, "broker": broker}
        self.ask("POST", "/leaders", values)

    def move_coordinator(
        self, broker: int, *, group: str | None = None, transactional_id: str | None = None
    ) -> None:
        """Make a broker the coordinator of a group or of a transactional id.

        All groups or ids in the same partition of the internal topic move with it.
        """
        if (group is None) == (transactional_id is None):
            raise ValueError("give a group or a transactional id")
        key = {"group": group} if group is not None else {"transactional_id": transactional_id}
        self.ask("POST", "/coordinators", {**key, "broker": broker})

    def set_controller(self, broker: int) -> None:
        """Make a broker the controller that Metadata responses name."""
        self.ask("POST", f"/brokers/{broker}/controller")

    def lose_power(self) -> None:
        """Lose all data that the broker has not flushed; its process ends as in a crash."""
        self.ask("POST", "/lose-power")

    # --- the journal -----------------------------------------------------------------------------

    def requests(self, api: str | None = None, **filters: Any) -> list[dict[str, Any]]:
        """The received requests with their responses, in order.

        The journal keeps at most the last 10,000 requests, and at most 64 MiB.

        Takes:  api, the name of an API, None for all; filters: client_id, topic, group,
                transactional_id, outcome, after (the number of a request).
        Raises: ControlError for an unknown API, outcome or filter.
        Gives:  for each request: number, at_ms, connection, client, client_id, api, version,
                request, answer, errors (names), outcome, deliveries and faults.
        """
        wanted = {"api": api, **filters}
        query = urllib.parse.urlencode({name: v for name, v in wanted.items() if v is not None})
        requests: list[dict[str, Any]] = self.ask("GET", f"/requests?{query}")
        return requests

    def forget_requests(self) -> None:
        """Empty the journal."""
        self.ask("DELETE", "/requests")

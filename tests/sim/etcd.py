"""An etcd with several members, behind a simulated network, which answers the product's requests.

Its data are linearizable. Faults affect the network and the members: a request or its response is
lost or late, and a write may be carried out long after its node has given up; a member is down,
silent, slow or partitioned from the others, and a restarted member has lost all logins.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Callable
from typing import Any

from barnabas.replication.lease_exchange import (
    HttpAnswer,
    HttpCall,
    HttpFailure,
    HttpOutcome,
)
from barnabas.replication.lease_record import LeaseRecord, decode_lease_record
from sim.loop import Loop

USER, PASSWORD = "barnabas", "of etcd"
OK, UNAUTHORIZED = 200, 401
Then = Callable[[HttpOutcome], None]


class Member:
    """A member of the etcd. starts: how often its process was started. is_silent: whether it
    accepts requests and never responds. is_apart: whether it is partitioned from the others, so
    that it cannot carry out anything.
    """

    def __init__(self) -> None:
        self.starts = 1
        self.is_down = self.is_silent = self.is_apart = False
        self.slow_ms = 0

    @property
    def answers(self) -> bool:
        """Whether the member carries out requests."""
        return not (self.is_down or self.is_silent or self.is_apart)


class Etcd:
    """The members, and the current state of the network to them.

    cut_off: the nodes that cannot reach it. lost: the probability that a request is carried out and
    its response lost. late: the probability that a request is carried out only after its node has
    given up.
    """

    def __init__(
        self, loop: Loop, rng: random.Random, member_count: int, *, has_users: bool
    ) -> None:
        self.loop, self.rng, self.has_users = loop, rng, has_users
        self.members = [Member() for _ in range(member_count)]
        self.endpoints = tuple(f"http://etcd-{number}:2379" for number in range(member_count))
        self._revision, self._mod_revision, self._value = rng.randint(1, 9), 0, ""
        # by token: the members that know it, each with its number of starts at that time
        self._tokens: dict[str, dict[int, int]] = {}
        self.cut_off: set[int] = set()
        self.delay_ms, self.lost, self.late = 8, 0.0, 0.0
        self.records: list[tuple[int, LeaseRecord]] = []

    @property
    def record(self) -> LeaseRecord | None:
        """The record that is stored now, whatever a node may have read."""
        return self.records[-1][1] if self.records else None

    @property
    def is_well(self) -> bool:
        """Whether each request is carried out and answered quickly."""
        return not (self.lost or self.late or self.cut_off) and all(
            member.answers and not member.slow_ms for member in self.members
        )

    def restart(self, member: Member) -> None:
        """Restart the member's process."""
        member.starts += 1
        member.is_down = False

    def heal(self) -> None:
        """End all faults."""
        self.cut_off.clear()
        self.lost = self.late = 0.0
        for member in self.members:
            if member.is_down:
                self.restart(member)
            member.is_silent, member.is_apart, member.slow_ms = False, False, 0

    def carry_out(self, call: HttpCall, member: Member) -> HttpOutcome:
        """Carry out a request. Gives: the response of etcd's JSON gateway."""
        body: Any = call.body
        if call.path == "/v3/auth/authenticate":
            assert body == {"name": USER, "password": PASSWORD}
            token = f"token {len(self._tokens)}"
            self._tokens[token] = {id_: each.starts for id_, each in enumerate(self.members)}
            return HttpAnswer(OK, {"token": token})
        if self.has_users and not self._is_known(call.headers.get("Authorization", ""), member):
            return HttpAnswer(UNAUTHORIZED, {"message": "etcdserver: invalid auth token"})
        if call.path == "/v3/kv/range":
            pair = {"mod_revision": str(self._mod_revision), "value": self._value}
            return HttpAnswer(OK, {"kvs": [pair]} if self._mod_revision else {})
        assert call.path == "/v3/kv/txn"
        (compare,), (success,) = body["compare"], body["success"]
        if compare["mod_revision"] != str(self._mod_revision):
            return HttpAnswer(OK, {"header": {"revision": str(self._revision)}})
        # other clients also write, so the revision grows by more than one
        self._revision += self.rng.choice((1, 1, 2))
        self._mod_revision, self._value = self._revision, success["request_put"]["value"]
        self.records.append((self.loop.now_ms, decode_lease_record(base64.b64decode(self._value))))
        return HttpAnswer(OK, {"header": {"revision": str(self._revision)}, "succeeded": True})

    def _is_known(self, token: str, member: Member) -> bool:
        """Whether the member knows a token; each member stores simple tokens only in memory."""
        starts = self._tokens.get(token, {})
        return starts.get(self.members.index(member)) == member.starts


class HttpClient:
    """A process's connection to etcd, with a simulated clock, which replaces the product's use of
    `http.client`.
    """

    def __init__(self, etcd: Etcd, node_id: int, timeout_ms: int) -> None:
        self._etcd, self._node_id, self._timeout_ms = etcd, node_id, timeout_ms
        # the endpoint, and the number of its starts when the connection was made
        self._kept: tuple[str, int] | None = None

    def send(self, call: HttpCall, then: Then) -> None:
        """Send a request, and call `then` once: with the response, or with a failure after the
        timeout.
        """
        etcd, rng, loop = self._etcd, self._etcd.rng, self._etcd.loop
        member = etcd.members[etcd.endpoints.index(call.endpoint)]
        is_over = False

        def end(outcome: HttpOutcome) -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                if isinstance(outcome, HttpFailure):
                    self._kept = None
                then(outcome)

        def arrive(is_lost: bool) -> None:
            if member.answers:
                outcome = etcd.carry_out(call, member)
                if not is_lost and self._node_id not in etcd.cut_off:
                    loop.later(self._delay_ms(member), end, outcome)

        # Connecting and waiting for the response each have this timeout.
        timeout_ms = self._timeout_ms * (1 if self._kept else rng.choice((1, 2)))
        loop.later(timeout_ms, end, HttpFailure("timed out"))
        fate, delay_ms = rng.random(), self._delay_ms(member)
        if self._node_id in etcd.cut_off:
            if fate < etcd.late:  # the request was in transit when the network was cut
                loop.later(rng.randint(timeout_ms, 4 * timeout_ms), arrive, True)
            return
        if self._kept is not None and self._kept != (call.endpoint, member.starts):
            was_same = self._kept[0] == call.endpoint
            self._kept = None
            if was_same:
                loop.later(delay_ms, end, HttpFailure("Connection reset by peer"))
                return
        if member.is_down:
            loop.later(delay_ms, end, HttpFailure("Connection refused", is_refused=True))
            return
        self._kept = call.endpoint, member.starts
        if fate < etcd.late:
            loop.later(rng.randint(timeout_ms // 2, 4 * timeout_ms), arrive, False)
        else:
            loop.later(delay_ms, arrive, fate < etcd.late + etcd.lost)

    def _delay_ms(self, member: Member) -> int:
        return self._etcd.rng.randint(0, self._etcd.delay_ms) + member.slow_ms

"""What does a check cost with 100,000 ACLs, and an authorizer a broker's Produce?"""

from __future__ import annotations

import tempfile
import time
import uuid
from collections.abc import Callable

from barnabas import LocalBroker
from barnabas.broker.metadata import Acl, ClusterMetadata
from barnabas.broker.security.acls import Operation, PatternType, Permission, ResourceType
from barnabas.broker.security.authorizer import Authorizer
from barnabas.protocol.request_context import RequestContext
from barnabas.storage.disk import OsDisk
from bench.common import Row, create_topic, metered
from bench.single_records import one_by_one

ACLS, TOPICS, ROUNDS = 100_000, 1000, 4
TOPIC, WRITE = ResourceType.TOPIC, Operation.WRITE
CONTEXT = RequestContext(1, 9, "bench", "/127.0.0.1", connection_id=1, api_key=0)
WITH_ACLS = {
    "authorizer.class.name": "StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


def run(scale: float = 1.0) -> list[Row]:
    """Checks of 1,000 topics with 100,000 ACLs; single Produces with and without an authorizer."""
    return [*_checks(int(ACLS * scale)), *_produces(int(20_000 * scale))]


def _checks(count: int) -> list[Row]:
    with tempfile.TemporaryDirectory() as directory:
        authorizer = Authorizer(ClusterMetadata(OsDisk(), f"{directory}/journal"))
        began = time.perf_counter()
        authorizer.add({uuid.UUID(int=number): _acl(number) for number in range(count)})
        added_s = time.perf_counter() - began
        names = [f"topic-{number}" for number in range(TOPICS)]

        def ask() -> None:
            # as a request does it
            may = authorizer.access("User:u7", "/127.0.0.1", CONTEXT).may
            for name in names:
                may(WRITE, TOPIC, name)

        first_us = _each_us(ask)
        again_us = min(_each_us(ask) for _ in range(20))
        began = time.perf_counter()
        authorizer.add({uuid.uuid4(): _acl(count)})
        change_ms = (time.perf_counter() - began) * 1000
    return [
        _row(f"a check with {count:,} ACLs, remembered", f"{again_us:.2f} us"),
        _row(f"a check with {count:,} ACLs, the first of its kind", f"{first_us:.1f} us"),
        _row(f"{count:,} ACLs added at once", f"{added_s:.2f} s"),
        _row(f"one more ACL, with {count:,} there", f"{change_ms:.1f} ms"),
    ]


def _acl(number: int) -> Acl:
    """A third by the beginning of a name, a tenth denials, of 5,000 users."""
    pattern = PatternType.PREFIXED if number % 3 == 0 else PatternType.LITERAL
    permission = Permission.DENY if number % 10 == 0 else Permission.ALLOW
    name = f"topic-{number % TOPICS}"
    return Acl(TOPIC, name, pattern, f"User:u{number % 5000}", "*", WRITE, permission)


def _each_us(ask: Callable[[], None]) -> float:
    began = time.perf_counter()
    ask()
    return (time.perf_counter() - began) / TOPICS * 1e6


def _produces(count: int) -> list[Row]:
    """Produces in turns on a broker with an authorizer and one without: both are slowed alike."""
    cpu_s: dict[bool, list[float]] = {False: [], True: []}
    with LocalBroker() as without, LocalBroker(settings=WITH_ACLS) as guarded:
        for broker in (without, guarded):
            create_topic(broker, "bench", 1)
        for _ in range(ROUNDS):
            for is_on, broker in ((False, without), (True, guarded)):
                one_by_one(broker, "bench", count // 10)
                with metered(broker) as meter:
                    one_by_one(broker, "bench", count)
                cpu_s[is_on].append(meter.cpu_s / count * 1e6)
    return [
        _row(
            f"{count:,} single records, {'with' if is_on else 'without'} an authorizer",
            f"{min(times):.1f} us each (of {ROUNDS}: to {max(times):.1f})",
        )
        for is_on, times in cpu_s.items()
    ]


def _row(work: str, cpu: str) -> Row:
    return Row(work, cpu, "-", "-", "-")

"""The ordeal: a broker with an authorizer receives giants (see giants.py) from three clients. One
has not logged in, one has no rights, and one has all rights.

For each giant, either the client gets a response, or the broker closes the connection because of an
error of the client. No call of the core uses more than MOST_CALL_S of CPU time, because all other
clients wait for the event loop meanwhile, and the process stays below MOST_MB. Work of the worker
thread is not a call of the core. The CPU limit is for a desktop machine (see helpers/slowness.py).
"""

from __future__ import annotations

import argparse
import functools
import gc
import json
import logging
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from helpers.core_host import CoreHost
from helpers.scratch import IN_MEMORY
from helpers.slowness import at_desk_s

from barnabas.broker.logs.metadata import Topic
from barnabas.broker.security.stored import ScramCredential
from barnabas.broker.slices import run_through
from barnabas.daemon.garbage import GC_THRESHOLDS
from barnabas.protocol.api import Api
from barnabas.protocol.api_table import APIS
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from fuzz.giants import COMMITTED, GROUP, TOPIC, TOPIC_ID, USER, Giant, giants

MOST_CALL_S = 0.06  # the rule is 50 ms; the rest is for what the conversion to a desktop gets wrong
MOST_MB = 350
MOST_ROUNDS = 100_000
METADATA_BYTES = 400_000
STRANGER, NO_RIGHTS, ALL_RIGHTS = "stranger", "without rights", "with all"
CLIENTS = (STRANGER, NO_RIGHTS, ALL_RIGHTS)
PRODUCE, LOGIN = 0, (17, 36)
WAIT_FOR_OTHERS = ("JoinGroup", "SyncGroup")


class Outcome(NamedTuple):
    """What happened to a giant. `answer_bytes` is the size of the response, or -1 if the broker
    closed the connection for `reason`.
    """

    name: str
    call_s: float
    all_s: float
    peak_mb: int
    answer_bytes: int
    reason: str


class Ordeal:
    """A broker that receives each giant over a new connection. `answer` has the bytes of the last
    response.
    """

    def __init__(self, directory: Path) -> None:
        self.host = CoreHost(
            directory,
            users={USER: "secret"},
            listeners="SASL://127.0.0.1:9092",
            listener_security_protocol_map="SASL:SASL_PLAINTEXT",
            sasl_enabled_mechanisms="PLAIN",
            authorizer_class_name="StandardAuthorizer",
            super_users="User:admin",
        )
        self.broker = self.host.broker
        # as in the daemon: the worker imports what a first request needs
        self.host.parts.families.are_loaded_elsewhere = True
        self.answer = b""
        # for a person who reads a finding: the last request of a conversation, the slowest call
        self.request_name = self.slowest = ""
        self._next = 100
        self._worst_s = self._all_s = 0.0
        self._make_world()

    def _connect(self, client: str) -> int:
        """Open a connection as this client. All clients but STRANGER count as logged in."""
        self._next += 1
        self.host.connect(self._next)
        connection = self.broker.connections[self._next]
        if client != STRANGER:
            connection.authentication = None
            connection.principal = "User:admin" if client == ALL_RIGHTS else "User:eve"
        return self._next

    def _make_world(self) -> None:
        """Create the topic, the group with a large description, the offset with metadata, and the
        user that the giants refer to.
        """
        broker, now_ms = self.broker, self.host.now_ms
        run_through(broker.topics.create_topics([Topic(TOPIC, TOPIC_ID, 3, {})], now_ms), now_ms)
        metadata = b"m" * METADATA_BYTES
        one = self._connect(ALL_RIGHTS)
        self.host.ask(
            one,
            JoinGroupRequest(
                group_id=GROUP, session_timeout_ms=600_000, rebalance_timeout_ms=600_000,
                protocol_type="consumer", protocols=[JoinGroupRequestProtocol("range", metadata)],
            ),
            3,
        )  # fmt: skip
        self._await_answer(one)
        joined = self.host.answers[one].pop()
        assignment = SyncGroupRequestAssignment(joined.member_id, metadata)
        self.host.ask(
            one,
            SyncGroupRequest(
                group_id=GROUP, generation_id=joined.generation_id, member_id=joined.member_id,
                assignments=[assignment],
            ),
            3,
        )  # fmt: skip
        self._await_answer(one)
        assert self.host.answers[one].pop().error_code == 0
        offset = OffsetCommitRequestPartition(0, 1, committed_metadata="o" * 4000)
        self.host.ask(
            one,
            OffsetCommitRequest(
                group_id=COMMITTED,
                generation_id_or_member_epoch=-1,
                topics=[OffsetCommitRequestTopic(TOPIC, partitions=[offset])],
            ),
            7,
        )
        self._await_answer(one)
        assert self.host.answers[one].pop().topics[0].partitions[0].error_code == 0
        broker.metadata.set_scram_credentials({(USER, 1): ScramCredential(b"s", b"k", b"v", 4096)})

    def _await_answer(self, connection: int) -> None:
        """Carry out work and flushes, and let time pass, until a response has arrived for the
        connection.
        """
        while not self.host.answers[connection]:
            if self.host.work:
                self.host.finish_work()
            elif self.host.flushes:
                self.host.flush()
            else:
                self.host.tick(1000)

    def offer_from_all(self, giant: Giant) -> list[Outcome]:
        """Send the giant as each client and return the outcomes. A client that has not logged in
        sends no giant above the size limit for such clients.
        """
        most_bytes = self.broker.config.sasl_server_max_receive_size
        return [
            self.offer(giant, client)
            for client in CLIENTS
            if client != STRANGER or len(giant.frame) <= most_bytes
        ]

    # --- one giant -------------------------------------------------------------------------------

    def offer(self, giant: Giant, client: str) -> Outcome:
        """Send one giant as one client, hang up, and return what happened."""
        connection = self.begin(client)
        answer_bytes, reason = self.send(connection, giant.frame)
        self.hang_up(connection)
        return self.outcome(f"{giant.name} ({client})", answer_bytes, reason)

    def begin(self, client: str) -> int:
        """Open a connection, and measure from now on."""
        connection = self._connect(client)
        self._worst_s = self._all_s = 0.0
        _reset_peak()
        return connection

    def send(self, connection: int, frame: bytes) -> tuple[int, str]:
        """Send a request, and carry out work, flushes and ticks until it is answered. Gives: the
        size of the response, or -1, and the reason if the broker closed the connection.
        """
        broker, outbox = self.broker, self.broker.outbox
        self._timed(broker.on_frame, connection, memoryview(bytearray(frame)), self.host.event_ms())
        answer_bytes, reason, patience = -1, "", 0
        for _ in range(MOST_ROUNDS):
            for target, pieces in outbox.sends:
                if target == connection:
                    self.answer = b"".join(bytes(piece) for piece in pieces)
                    answer_bytes = len(self.answer)
            outbox.sends.clear()
            for target, why in outbox.closes:
                if target == connection and not reason:
                    reason = str(why)
            self._take_closes()
            if self._do_work():
                continue
            if answer_bytes >= 0 or reason:
                break
            # A request may wait for a timeout, so let some time pass, but at most ten seconds.
            if broker.next_deadline_ms() == 0 or patience < 5:
                if broker.next_deadline_ms() != 0:
                    patience += 1
                    self.host.now_ms += 2000
                self._timed(broker.on_tick, self.host.event_ms())
            else:
                break
        return answer_bytes, reason

    def hang_up(self, connection: int) -> None:
        """Close a connection. Work that remains after a response, or a connection, is a call of the
        core, too.
        """
        if connection in self.broker.connections:
            self._timed(self.broker.on_closed, connection)
        self.settle()

    def settle(self, ms: int = 0) -> None:
        """Let time pass, and do all work that is due then."""
        self.host.now_ms += ms
        self._timed(self.broker.on_tick, self.host.event_ms())
        for _ in range(MOST_ROUNDS):
            self.broker.outbox.sends.clear()
            self._take_closes()
            if not self._do_work():
                if self.broker.next_deadline_ms() != 0:
                    return
                self._timed(self.broker.on_tick, self.host.event_ms())

    def _do_work(self) -> bool:
        """Do one piece of work or one flush, if there is any. Gives: whether there was."""
        outbox = self.broker.outbox
        if outbox.work:
            work = outbox.work.pop(0)
            result = work.run()
            self._timed(self.broker.on_worked, work, result, None, self.host.event_ms())
        elif outbox.flushes:
            self._timed(self.broker.on_flushed, outbox.flushes.pop(0), self.host.event_ms())
        else:
            return False
        return True

    def _take_closes(self) -> None:
        """Close the connections that the broker has closed, and drop what no client reads."""
        broker, outbox = self.broker, self.broker.outbox
        closes, outbox.closes = outbox.closes, []
        for target, _ in closes:
            if target in broker.connections:
                self._timed(broker.on_closed, target)
        outbox.audit.clear()
        outbox.mutes.clear()

    def outcome(self, name: str, answer_bytes: int, reason: str) -> Outcome:
        """What has happened since `begin`."""
        return Outcome(name, self._worst_s, self._all_s, _peak_mb(), answer_bytes, reason)

    def _timed(self, call: Callable[..., Any], *arguments: Any) -> None:
        """Make the call and record its CPU time. A long time is converted to the time that the
        reference machine would need.
        """
        began = time.thread_time()
        call(*arguments)
        spent_s = time.thread_time() - began
        if spent_s > MOST_CALL_S / 4:
            spent_s = at_desk_s(spent_s)
        if spent_s > self._worst_s:
            self._worst_s, self.slowest = spent_s, f"{call.__name__} after {self.request_name}"
        self._all_s += spent_s


def _reset_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def _peak_mb() -> int:
    """The peak memory of this process in MiB."""
    return _status_mb("VmHWM")


def resident_mb() -> int:
    """The memory of this process in MiB."""
    return _status_mb("VmRSS")


def _status_mb(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) >> 10
    raise AssertionError(f"the kernel gives no {field}")


def findings_of(outcome: Outcome) -> list[str]:
    """The requirements that an outcome violates."""
    found = []
    if outcome.call_s > MOST_CALL_S:
        found.append(f"one call used {outcome.call_s * 1000:.0f} ms of CPU")
    if outcome.peak_mb > MOST_MB:
        found.append(f"the process had {outcome.peak_mb} MB")
    is_open = outcome.answer_bytes < 0 and not outcome.reason
    if is_open and not outcome.name.startswith(WAIT_FOR_OTHERS):
        found.append("it was not answered")
    if "error in the broker" in outcome.reason or "memory" in outcome.reason:
        found.append(outcome.reason)
    return found


def selected(apis: Iterable[Api], options: argparse.Namespace) -> Iterable[Giant]:
    """The giants of these APIs: all of them, or a random share if the options give one."""
    random = Random(options.seed)
    for api in apis:
        versions = range(api.min_version, api.max_version + 1)
        for version in versions[-1:] if options.newest else versions:
            yield from giants(
                api,
                version,
                options.bytes,
                is_wanted=lambda: random.random() < options.share,
            )


def outcomes_of(giant: Giant) -> list[Outcome]:
    """The outcomes of a giant that each client sends to a new broker."""
    with tempfile.TemporaryDirectory(prefix="barnabas-ordeal-", dir=IN_MEMORY) as scratch:
        return Ordeal(Path(scratch)).offer_from_all(giant)


def in_child(name: str, run: Callable[[], list[Outcome]]) -> list[Outcome]:
    """Run something in a child process, and return its outcomes. A process that does only one thing
    makes its memory use measurable.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(reading)
            with os.fdopen(writing, "w") as out:
                json.dump(run(), out)
            code = 0
        finally:
            traceback.print_exc() if code else None
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading) as out:
        text = out.read()
    os.waitpid(child, 0)
    if not text:
        return [Outcome(name, 0, 0, 0, -1, "an error in the broker, or in its test")]
    return [Outcome(*row) for row in json.loads(text)]


def main(given: list[str] | None = None) -> int:
    """Run the ordeal, and return the exit code, which is 0 if all requirements hold."""
    parser = argparse.ArgumentParser(prog="python -m fuzz.ordeal", description=__doc__)
    parser.add_argument("--api", action="append", help="of these alone; by default of all")
    parser.add_argument("--newest", action="store_true", help="the newest version of each alone")
    parser.add_argument("--share", type=float, default=1.0, help="of all giants, by chance")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bytes", type=int, default=(2 << 20) - 64)
    parser.add_argument("--json", action="store_true", help="print the findings as JSON alone")
    options = parser.parse_args(given)
    logging.disable(logging.CRITICAL)
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    apis = [
        api for api in APIS if api.key != PRODUCE and (not options.api or api.name in options.api)
    ]
    findings: dict[str, list[str]] = {}
    outcomes: list[Outcome] = []
    for giant in selected(apis, options):
        for outcome in in_child(giant.name, functools.partial(outcomes_of, giant)):
            outcomes.append(outcome)
            found = findings_of(outcome)
            if found:
                findings[outcome.name] = found
            if not options.json:
                print(line_of(outcome), *found, flush=True)
    summary = {
        "count": len(outcomes),
        "slowest": max((one.call_s, one.name) for one in outcomes),
        "largest": max((one.peak_mb, one.name) for one in outcomes),
        "findings": findings,
    }
    print(json.dumps(summary))
    return bool(findings)


def line_of(outcome: Outcome) -> str:
    """Describe the outcome in one line."""
    return (
        f"{outcome.name}: call {outcome.call_s * 1000:.0f} ms, all {outcome.all_s:.2f} s, "
        f"{outcome.peak_mb} MB, answer {outcome.answer_bytes} {outcome.reason[:60]}"
    )


if __name__ == "__main__":
    sys.exit(main())

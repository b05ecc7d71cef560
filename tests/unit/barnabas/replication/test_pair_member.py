"""The process of a pair's node until it becomes the leader, and its lease: the order of the steps,
changes under the lock, and the notification of waiting threads.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.settings.config import BrokerConfig
from barnabas.replication.leadership import (
    TIMEOUT_PARTS,
    Found,
    Holding,
    LeaseSettings,
    Read,
    Role,
)
from barnabas.replication.lease_record import LeaseRecord, LeaseRecordError, NodeAddresses
from barnabas.replication.rim import lease_keeper, pair_member, standby
from barnabas.replication.rim.lease_keeper import LeaseKeeper
from barnabas.replication.rim.pair_member import PairMember, begin_again
from barnabas.replication.rim.standby import SIGNALS
from barnabas.replication.standby_steps import Steps, Wait

PATIENCE_S = 30.0
LEADERS = NodeAddresses("127.0.0.1:9093", {"PLAINTEXT": "db1:9092"})
OTHERS = NodeAddresses("10.0.0.2:9093", {"PLAINTEXT": "db2:9092"})


# --- a node until it leads -----------------------------------------------------------------------


class Keeper:
    """A fake that replaces the lease's keeper and its thread."""

    node_id, leader_epoch = 1, 3

    def __init__(self, said: list[Any], leadership: Any, engine: Any) -> None:
        """Create a lease keeper that only records the calls in `said`."""
        self.said, self.leadership, self.engine = said, leadership, engine
        self.role, self.failure = Role.WATCHING, None
        self.record: LeaseRecord | None = None
        self.has_lease = False

    def start(self) -> None:
        self.said.append("lease starts")

    def stop(self) -> None:
        self.said.append("lease stops")

    def may_answer(self) -> bool:
        return self.has_lease

    def wait(self, seconds: float) -> None:
        self.said.append(("wait for a change", seconds))

    def set_holding(self, holding: Holding) -> None:
        self.said.append(holding)


class Directory:
    """A fake of the directory's sync and lock, which records the calls of both."""

    def __init__(self, said: list[Any]) -> None:
        self.said = said

    def finish(self) -> None:
        self.said.append("flush")

    def release(self) -> None:
        self.said.append("release directory")


class Node:
    """A node of a pair whose parts are fakes. `made` has the arguments with which each part was
    created.
    """

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Create a pair's node whose collaborators are replaced by recorders. `said` has the order
        of their calls, and `made` the arguments with which they were created.
        """
        self.said: list[Any] = []
        self.made: dict[str, Any] = {}
        said = self.said

        def keeper(leadership: Any, engine: Any) -> Keeper:
            return Keeper(said, leadership, engine)

        def reception(config: Any, listen: Any, leader: Any) -> Any:
            self.made["leader"] = leader
            return SimpleNamespace(
                start=lambda: said.append("reception starts"),
                close=lambda: said.append("reception closes"),
            )

        def leadership(node: Any, settings: Any, holding: Any, now_ms: int) -> Any:
            self.made |= {"node": node, "settings": settings, "holding": holding}
            return SimpleNamespace(node_id=node.node_id)

        def engine(config: BrokerConfig, timeout_ms: int) -> Any:
            self.made["timeout_ms"] = timeout_ms
            return "engine"

        def following(*arguments: Any, **named: Any) -> Any:
            self.made["following"] = (arguments, named)

        def member_steps(copy: Any, timeout_s: float, **named: Any) -> Any:
            self.made["steps"] = (timeout_s, named)
            return steps(copy, timeout_s, **named)

        steps: Any = pair_member.MemberSteps
        monkeypatch.setattr(pair_member, "LeaseKeeper", keeper)
        monkeypatch.setattr(pair_member, "Reception", reception)
        monkeypatch.setattr(pair_member, "Leadership", leadership)
        monkeypatch.setattr(pair_member, "engine_of", engine)
        monkeypatch.setattr(pair_member, "Following", following)
        monkeypatch.setattr(pair_member, "MemberSteps", member_steps)
        config = BrokerConfig.from_properties(
            {
                "log.dirs": str(tmp_path),
                "node.id": "1",
                "listeners": "PLAINTEXT://127.0.0.1:9092",
                "barnabas.replication.port": "9093",
                "barnabas.replication.secret": "of both",
                "barnabas.replication.timeout.ms": "4000",
                "barnabas.lease.url": "etcd://127.0.0.1:2379/pair",
                "barnabas.lease.ttl.ms": "3000",
                "barnabas.lease.margin.ms": "400",
            }
        )
        self.member = PairMember(config, lambda listeners: [])
        self.keeper: Any = self.member.keeper
        self._lock = self.member._lock
        directory: Any = Directory(said)
        self.member._sync = self.member._lock = directory

    def lead(self, *results: Any) -> Callable[[], Steps]:
        """Return steps that wait once, call each of `results`, and end."""

        def steps() -> Steps:
            self.said.append("steps")
            yield Wait(0.25)
            for result in results:
                result()

        return steps

    def close(self) -> None:
        self._lock.release()


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    node = Node(tmp_path, monkeypatch)
    yield node
    node.close()
    for number, before in handlers.items():
        signal.signal(number, before)


BEGINS = ["lease starts", "reception starts", "steps", ("wait for a change", 0.25)]
ENDS = ["flush", "release directory"]


def test_when_a_node_leads_it_keeps_its_lease_and_its_client_connections(node: Node) -> None:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    node.member.steps.run = node.lead(  # type: ignore[method-assign]
        lambda: setattr(node.keeper, "role", Role.LEADING)
    )
    assert node.member.wait_until_leading()
    assert node.said == [*BEGINS, *ENDS]
    assert {number: signal.getsignal(number) for number in SIGNALS} == before


def test_a_stopped_node_closes_client_connections_and_stops_its_lease(node: Node) -> None:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    node.member.steps.run = node.lead(  # type: ignore[method-assign]
        lambda: signal.raise_signal(signal.SIGTERM)
    )
    assert not node.member.wait_until_leading()
    assert node.said == [*BEGINS, *ENDS, "reception closes", "lease stops"]
    assert {number: signal.getsignal(number) for number in SIGNALS} == before


def test_sighup_without_a_terminal_opens_the_log_again_and_does_not_stop_a_standby(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standby, "hangup_reloads", lambda: True)
    log_file = SimpleNamespace(reopen=lambda: node.said.append("reopened"))
    monkeypatch.setattr(standby, "LogFile", lambda: log_file)
    node.member.steps.run = node.lead(  # type: ignore[method-assign]
        lambda: signal.raise_signal(signal.SIGHUP), lambda: signal.raise_signal(signal.SIGTERM)
    )
    assert not node.member.wait_until_leading()
    assert node.said == [*BEGINS, "reopened", *ENDS, "reception closes", "lease stops"]


def test_a_failure_of_the_lease_ends_the_node(node: Node) -> None:
    failure = LeaseRecordError("of another cluster")

    def fail() -> None:
        node.keeper.failure, node.keeper.role = failure, Role.LEADING

    node.member.steps.run = node.lead(fail)  # type: ignore[method-assign]
    with pytest.raises(LeaseRecordError, match="of another cluster"):
        node.member.wait_until_leading()
    assert node.said == [*BEGINS, *ENDS]


def test_the_lease_and_the_steps_of_a_node_get_its_settings(node: Node) -> None:
    made, (timeout_s, named) = node.made, node.made["steps"]
    assert made["settings"] == LeaseSettings(3000, 400)
    assert made["timeout_ms"] == 3000 // TIMEOUT_PARTS
    assert made["holding"] is Holding.NOTHING
    assert made["node"].node_id == 1
    assert made["node"].addresses.replication == "127.0.0.1:9093"
    assert (timeout_s, named["ttl_ms"]) == (4.0, 3000)
    assert named["keeper"] is node.keeper
    assert named["session"] == made["node"].session, "by it a restart knows its own claim"
    assert node.keeper.engine == "engine"


def test_a_new_following_has_the_nodes_settings_and_reports_to_the_lease(node: Node) -> None:
    node.member._new_following(lambda: None)
    arguments, named = node.made["following"]
    assert arguments[2] == "of both"
    assert named["node_id"] == 1
    assert named["addresses"].listeners == {"PLAINTEXT": "127.0.0.1:9092"}
    named["on_holding"](Holding.WHOLE)
    assert node.said == [Holding.WHOLE]


@pytest.mark.parametrize(
    ("leader", "has_lease", "listener", "address"),
    [
        (None, False, "PLAINTEXT", None),
        (2, False, "PLAINTEXT", ("db2", 9092)),
        (2, False, "OTHER", None),
        (3, False, "PLAINTEXT", None),  # an unknown node
        # without a lease, the node would forward clients to itself for ever
        (1, False, "PLAINTEXT", None),
        (1, True, "PLAINTEXT", ("db1", 9092)),
    ],
)
def test_clients_are_forwarded_to_the_leader(
    node: Node, leader: int | None, has_lease: bool, listener: str, address: Any
) -> None:
    assert node.made["leader"](listener) is None, "nothing is known yet"
    nodes = {1: LEADERS, 2: OTHERS}
    node.keeper.record = LeaseRecord("c", leader, "s", 3, frozenset({1, 2}), nodes, "w")
    node.keeper.has_lease = has_lease
    assert node.made["leader"](listener) == address


def test_a_restarted_node_has_default_signal_handlers_and_its_arguments(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    executed: list[Any] = []

    def execute(*arguments: Any) -> None:
        executed.extend(arguments)
        assert {signal.getsignal(number) for number in SIGNALS} == {signal.SIG_DFL}
        assert flushed, "the last lines of the log would be lost"

    flushed: list[bool] = []
    monkeypatch.setattr(os, "execv", execute)
    monkeypatch.setattr(sys, "stderr", SimpleNamespace(flush=lambda: flushed.append(True)))
    monkeypatch.setattr(sys, "orig_argv", ["python", "-m", "barnabas", "start"])
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    begin_again()
    assert executed == [sys.executable, [sys.executable, "-m", "barnabas", "start"]]


# --- the keeper of the lease ---------------------------------------------------------------------

# The event loop's thread reads these attributes for each response, without the lock. Each read is
# of a single attribute.
WITHOUT_LOCK = {"may_answer", "role", "record", "in_sync", "leader_epoch", "node_id", "timeout_ms"}


class Leadership:
    """A fake leadership that records its calls, and checks that the caller holds the lock."""

    node_id, timeout_ms = 1, 250

    def __init__(self) -> None:
        object.__setattr__(self, "said", [])
        object.__setattr__(self, "is_locked", lambda: True)

    def note(self, name: str, *arguments: Any) -> Any:
        """Record the call, which must be made under the keeper's lock. Gives: the prepared
        result.
        """
        self.said.append((name, *arguments))
        assert self.is_locked() or name in WITHOUT_LOCK, f"{name} without the lock"
        return self.answers.get(name)

    answers: dict[str, Any] = {}  # noqa: RUF012 - replaced by a test

    def __getattr__(self, name: str) -> Any:
        if name in ("role", "record", "in_sync", "leader_epoch", "nodes"):
            return self.note(name)
        return lambda *arguments: self.note(name, *arguments)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("answers", "is_locked"):
            object.__setattr__(self, name, value)
        else:
            self.note(f"set {name}", value)


class Engine:
    """A fake lease engine. `said` has the requests that it received, in order."""

    last_error = "unreachable"

    def __init__(self) -> None:
        self.said: list[Any] = []

    def ask(self, request: Any) -> Any:
        self.said.append(request)
        return Found("1", b"")

    def close(self) -> None:
        self.said.append("close")


class Kept:
    """A keeper without its thread, which the test calls directly. `notified` has the latest change
    before each notification.
    """

    def __init__(self) -> None:
        """Create a keeper whose leadership records its calls. `notified` has the leadership's last
        call at each notification.
        """
        self.leadership: Any = Leadership()
        self.engine: Any = Engine()
        self.now_ms = 1000
        self.keeper = LeaseKeeper(self.leadership, self.engine, lambda: self.now_ms)
        condition: Any = self.keeper._changed
        self.leadership.is_locked = condition._is_owned
        self.notified: list[Any] = []
        notify_all = condition.notify_all

        def notice() -> None:
            self.notified.append(self.leadership.said[-1:])
            notify_all()

        condition.notify_all = notice


CHANGES: dict[str, tuple[tuple[Any, ...], tuple[Any, ...]]] = {
    "want_in_sync": (((2,),), ("want_in_sync", (2,))),
    "add_node": ((2, OTHERS), ("add_node", 2, OTHERS)),
    "set_holding": ((Holding.WHOLE,), ("set holding", Holding.WHOLE)),
    "set_opened": (("c", 7), ("set_opened", 7)),
    "begin_release": ((), ("release",)),
    "take_answer": ((Found("1", b""),), ("on_answer", Found("1", b""), 1000)),
}
# Calls that make no change, and calls in the keeper's own thread.
OTHER_CALLS = {
    "start", "stop", "next_request", "pause_s", "may_answer", "may_be_in_sync", "wait",
    "wait_until_released", "role", "record", "nodes", "in_sync", "leader_epoch", "trouble",
    "obstacle", "unchanged_ms", "has_released",
}  # fmt: skip


def test_each_call_of_a_keeper_is_in_one_of_the_tables() -> None:
    calls = {name for name in vars(LeaseKeeper) if not name.startswith("_")}
    assert calls == set(CHANGES) | OTHER_CALLS


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_made_under_the_lock_and_then_notified(name: str) -> None:
    """Without the notification the keeper's thread would not wake up, and the standby would wait
    for the next renewal.
    """
    kept = Kept()
    arguments, made = CHANGES[name]
    getattr(kept.keeper, name)(*arguments)
    assert kept.leadership.said[-1] == made
    assert kept.notified == [[made]]


def test_the_cluster_is_set_before_the_directory_counts_as_open() -> None:
    kept = Kept()
    kept.keeper.set_opened("c", 7)
    assert kept.leadership.said == [("set cluster_id", "c"), ("set_opened", 7)]


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("may_answer", ("may_answer", 1000)),
        ("role", ("role",)),
        ("record", ("record",)),
        ("nodes", ("nodes",)),
        ("in_sync", ("in_sync",)),
        ("leader_epoch", ("leader_epoch",)),
        ("obstacle", ("obstacle", 1000)),
        ("unchanged_ms", ("unchanged_ms", 1000)),
        ("may_be_in_sync", ("may_be_in_sync",)),
    ],
)
def test_a_query_of_the_keeper_is_passed_to_the_leadership(name: str, asked: Any) -> None:
    kept = Kept()
    kept.leadership.answers = {name: "answer"}
    found = getattr(kept.keeper, name)
    assert (found() if callable(found) else found) == "answer"
    assert kept.leadership.said == [asked]
    assert kept.keeper.trouble == "unreachable"
    assert kept.keeper.node_id == 1


def test_the_pause_ends_when_the_next_request_is_due() -> None:
    kept = Kept()
    with kept.keeper._changed:  # as in the keeper's thread
        assert kept.keeper.pause_s() == lease_keeper.LONGEST_WAIT_S
        kept.leadership.answers = {"next_request_ms": 1250}
        assert kept.keeper.pause_s() == 0.25


def test_a_change_is_notified_outside_of_the_lock_after_it_is_made() -> None:
    """The callback calls the keeper again, possibly from another thread."""
    kept = Kept()
    found: list[Any] = []

    def ask() -> None:
        thread = threading.Thread(target=lambda: found.append(kept.keeper.may_be_in_sync()))
        thread.start()
        thread.join(PATIENCE_S)
        found.append(kept.leadership.said[0][0])

    kept.keeper.on_change = ask
    kept.keeper.take_answer(Found("1", b""))
    assert found == [None, "on_answer"]


@pytest.mark.parametrize("is_by_failure", [False, True])
def test_a_thread_that_waits_for_the_release_continues_after_it_or_a_failure(
    is_by_failure: bool,
) -> None:
    kept = Kept()
    kept.leadership.answers = {"role": Role.LEADING}
    kept.keeper.wait_until_released(0.01)  # returns after 10 ms
    waiting = threading.Thread(target=kept.keeper.wait_until_released, args=(PATIENCE_S * 100,))
    waiting.daemon = True
    waiting.start()
    if is_by_failure:
        kept.keeper.failure = LeaseRecordError("of another cluster")
    else:
        kept.leadership.answers = {"role": Role.RELEASED}
    kept.keeper.set_holding(Holding.WHOLE)
    waiting.join(PATIENCE_S)
    assert not waiting.is_alive()


def test_the_keepers_thread_sends_requests_waits_for_changes_and_ends() -> None:
    kept = Kept()
    requests = [Read()]
    asked, answered = threading.Event(), threading.Event()
    kept.keeper.on_change = answered.set

    def next_request(now_ms: int) -> Any:
        if requests:
            return requests.pop()
        asked.set()
        return None

    pauses: list[float] = []
    condition = kept.keeper._changed
    wait = condition.wait

    def wait_for(timeout_s: float) -> bool:
        pauses.append(timeout_s)
        return wait(timeout_s)

    condition.wait = wait_for  # type: ignore[method-assign, assignment]
    object.__setattr__(kept.leadership, "next_request", next_request)
    kept.leadership.answers = {"next_request_ms": 10_000_000}
    kept.keeper.start()
    assert answered.wait(PATIENCE_S)
    assert asked.wait(PATIENCE_S)
    assert kept.engine.said == [Read()]
    answered.clear()
    requests.append(Read())
    kept.keeper.want_in_sync((2,))
    assert answered.wait(PATIENCE_S)
    changes: list[str] = []
    kept.keeper.on_change = lambda: changes.append("changed")
    kept.keeper.stop()
    kept.keeper._thread.join(PATIENCE_S)
    assert not kept.keeper._thread.is_alive()
    assert kept.engine.said == [Read(), Read(), "close"]
    assert 1 <= len(pauses) <= 4, "the thread waits and does not loop"
    assert set(pauses) == {(10_000_000 - 1000) / 1000}
    assert kept.keeper.next_request() is None
    kept.keeper.take_answer(Found("1", b""))
    assert changes == [], "a stopped keeper reports no change"


def test_a_thread_that_waits_continues_when_the_keepers_thread_has_failed() -> None:
    kept = Kept()
    kept.leadership.answers = {"role": Role.LEADING, "next_request": Read()}
    kept.engine.ask = lambda request: 1 / 0
    waiting = threading.Thread(target=kept.keeper.wait_until_released, args=(PATIENCE_S * 100,))
    waiting.daemon = True
    waiting.start()
    kept.keeper.start()
    waiting.join(PATIENCE_S)
    assert not waiting.is_alive()


def test_a_stopped_keeper_closes_its_engine_after_its_thread_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = Kept()
    said = kept.engine.said

    def join(timeout_s: float) -> None:
        assert kept.keeper._ends
        assert kept.notified, "without the notification, the thread would not end"
        said.append(("join", timeout_s))

    monkeypatch.setattr(kept.keeper._thread, "join", join)
    kept.keeper.stop()
    assert said == [("join", 0.25), "close"]

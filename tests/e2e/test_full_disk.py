"""A daemon that cannot write a byte for some time. Clients wait, and then continue without help.

Another process of the same user can lower and raise RLIMIT_FSIZE of the daemon. Writes beyond the
limit fail with EFBIG, as writes to a full disk fail with ENOSPC.
"""

from __future__ import annotations

import json
import re
import resource
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from helpers.cli_commands import CommandLine
from helpers.e2e_clients import (
    PATIENCE_S,
    committed_offset,
    consumer,
    create_topic,
    eventually,
    producer,
    send_all,
    transact,
    values_of,
)
from helpers.scrapes import ask, port_of, scrape_at

from barnabas import LocalBroker

pytestmark = pytest.mark.e2e

FULL_S = 4.0


@contextmanager
def no_space(pid: int) -> Iterator[None]:
    """A context within which the process cannot write to files."""
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)


class Background:
    """A call in a thread; `result` waits until it ends."""

    def __init__(self, call: Callable[[], object]) -> None:
        """Run the call in a thread."""
        self._errors: list[BaseException] = []

        def run() -> None:
            try:
                call()
            except BaseException as error:
                self._errors.append(error)

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

    def is_waiting(self, seconds: float) -> bool:
        """Whether the call is still running after `seconds`."""
        self._thread.join(seconds)
        return self._thread.is_alive()

    def result(self) -> None:
        """Wait until the call ends, and raise its error, if it has one."""
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "it still waits"
        assert self._errors == []


@pytest.fixture
def barnabas(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(monkeypatch, capsys)


BEGIN, END = "There is no room for writes in ", " again: "


def room_is_told(broker: LocalBroker, barnabas: CommandLine) -> bool:
    """Whether `check`, the console and the metrics say that there is room; they must agree."""
    check = barnabas("check", "--read-only", "--stuck-after", "9999", "--json")
    (disk,) = [step for step in check.data["steps"] if step["step"] == "disk"]
    assert (check.code == 0) is disk["ok"]
    assert disk["ok"] or "has no room for records in " in disk["result"]
    console = re.search(r"console: +http://127.0.0.1:(\d+)", "".join(broker.output))
    assert console is not None
    problem = json.loads(ask(int(console[1]), "/api/overview")[1])["problem"]
    seen = scrape_at(port_of(broker))
    assert (seen.of("barnabas_disk_usable_bytes") > 0) is disk["ok"] is (problem is None)
    assert seen.of("barnabas_disk_refused_writes_total") > 0
    return bool(disk["ok"])


def test_commands_name_the_missing_room(tmp_path: Path, barnabas: CommandLine) -> None:
    """A disk of which less is free than the reserve. Kafka's clients send refused writes again
    until their timeout, so `produce` asks for the reason.
    """
    data = tmp_path / "data"
    with LocalBroker(data, topics=["orders"]):
        pass
    with LocalBroker(data, settings={"barnabas.disk.reserve.bytes": 2**62}) as broker:
        assert any("is too small for writes: " in line for line in broker.output)
        barnabas.use(broker.bootstrap_servers)
        create = barnabas("topics", "create", "more")
        assert create.code == 1 and "barnabas.disk.reserve.bytes keeps " in create.err
        produce = barnabas("produce", "orders", "--timeout", "2", stdin="v\n")
        assert produce.code == 1 and "has no room for records in " in produce.err


def test_clients_wait_while_the_disk_is_full_and_then_continue(
    tmp_path: Path, barnabas: CommandLine
) -> None:
    settings = {"barnabas.console.port": 0, "barnabas.metrics.port": 0}
    with LocalBroker(tmp_path / "data", settings=settings) as broker:
        barnabas.use(broker.bootstrap_servers)
        servers = broker.bootstrap_servers
        topic, group = create_topic(servers, "full"), "readers"
        client = producer(servers, transactional_id="txn")
        client.init_transactions(PATIENCE_S)
        transact(client, topic, [b"0"])
        send_all(servers, topic, [b"1"])
        reader = consumer(servers, group)
        reader.subscribe([topic])
        assert reader.poll(PATIENCE_S) is not None

        client.begin_transaction()
        client.produce(topic, b"2")
        client.flush(PATIENCE_S)
        with no_space(broker.pid):
            commit = Background(lambda: client.commit_transaction(PATIENCE_S))
            sent = Background(lambda: send_all(servers, topic, [b"3"]))
            begun = Background(
                lambda: producer(servers, transactional_id="another").init_transactions(PATIENCE_S)
            )
            assert commit.is_waiting(FULL_S)
            assert sent.is_waiting(0) and begun.is_waiting(0)
            assert values_of(servers, topic) == [b"0", b"1"], "readers are served"
            assert room_is_told(broker, barnabas) is False
            assert len([line for line in broker.output if BEGIN in line]) == 1
        for one in (commit, sent, begun):
            one.result()
        assert sorted(filter(None, values_of(servers, topic))) == [b"0", b"1", b"2", b"3"]
        transact(client, topic, [b"4"])
        reader.commit(asynchronous=False)
        reader.close()
        assert committed_offset(servers, group, topic) >= 1
        eventually(lambda: any(END in line for line in broker.output), what="the line of the end")
        assert room_is_told(broker, barnabas) is True
        assert not [line for line in broker.output if "Traceback" in line or " CRITICAL " in line]

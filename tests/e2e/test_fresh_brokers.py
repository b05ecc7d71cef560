"""Brokers that are forked from a process with all modules: each has nothing of the one before, and
nothing of them is left.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from helpers.e2e_clients import PATIENCE_S, QUIET, eventually, send_all, values_of
from helpers.loop_watchdog import _UNWATCHED

from barnabas import LocalBroker
from barnabas.forked_daemon import FORKING, ForkedProcess
from barnabas.local_broker import BrokerStartError
from barnabas.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

pytestmark = pytest.mark.e2e

PROVIDERS = "org.apache.kafka.common.config.provider"
ROOT = Path(__file__).resolve().parents[2]


class Broker(LocalBroker):
    """A LocalBroker as its users have it. The tests' watchdog starts each daemon by a command."""

    daemon = _UNWATCHED


@pytest.fixture(scope="module", autouse=True)
def _forking() -> Iterator[None]:
    """A fork server that is ready."""
    make_ready()
    yield
    FORKING.end()


def make_ready() -> None:
    """Start brokers until one is forked."""
    for _ in range(4):
        with Broker() as broker:
            if is_forked(broker):
                return
        FORKING.wait_until_ready()
    raise AssertionError("there is no fork server")


def is_forked(broker: LocalBroker) -> bool:
    return isinstance(broker.process, ForkedProcess)


def cluster_id(broker: LocalBroker) -> str:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    return str(admin.describe_cluster().result(PATIENCE_S).cluster_id)


def transactional(broker: LocalBroker) -> Producer:
    servers = {"bootstrap.servers": broker.bootstrap_servers, **QUIET}
    producer = Producer({**servers, "transactional.id": "shop", "transaction.timeout.ms": 60000})
    producer.init_transactions(PATIENCE_S)
    return producer


def leave_an_open_transaction(broker: LocalBroker) -> Producer:
    """Leave a topic, a group with an offset, and an open transaction. Gives: the producer, whose
    connections are open.
    """
    send_all(broker.bootstrap_servers, "orders", [b"1"])
    servers = {"bootstrap.servers": broker.bootstrap_servers, **QUIET}
    consumer = Consumer({**servers, "group.id": "kitchen"})
    consumer.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)
    consumer.close()
    producer = transactional(broker)
    producer.begin_transaction()
    producer.produce("orders", b"open")
    producer.flush(PATIENCE_S)
    return producer


def leave_something_of_each_kind(broker: LocalBroker) -> Producer:
    """Leave a topic, a group with an offset, an open transaction, a fault, a clock that is ahead,
    and a changed setting. Gives: the producer, whose connections are open.
    """
    producer = leave_an_open_transaction(broker)
    broker.control.add_fault("delay", api="Heartbeat", ms=1)
    broker.control.advance(seconds=10)
    assert [one.transactional_id for one in broker.open_transactions()] == ["shop"]
    return producer


def test_a_broker_has_nothing_of_the_one_before() -> None:
    settings = {"num.partitions": 4, "group.min.session.timeout.ms": 500}
    with Broker(control=True, settings=settings) as last:
        assert is_forked(last)
        producer = leave_something_of_each_kind(last)
        earlier = (cluster_id(last), last.data_dir, last.port, last.pid)
    with Broker(control=True) as broker:
        assert is_forked(broker)
        assert broker.control.ask("GET", "/faults") == []
        assert broker.requests() == []
        assert broker.control.connections() == []
        assert broker.control.ahead_ms == 0
        assert broker.open_transactions() == []
        later = (cluster_id(broker), broker.data_dir, broker.port, broker.pid)
        assert all(one != other for one, other in zip(earlier, later, strict=True))
        assert os.listdir(os.path.dirname(last.data_dir)).count(Path(last.data_dir).name) == 0
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        assert admin.list_topics(timeout=PATIENCE_S).topics == {}
        assert admin.list_consumer_groups().result(PATIENCE_S).valid == []
        broker.create_topic("orders")
        topic = admin.list_topics("orders", timeout=PATIENCE_S).topics["orders"]
        assert len(topic.partitions) == 1
        assert values_of(broker.bootstrap_servers, "orders") == []
    del producer


# --- a process that runs one broker after the other


def process_of(broker: LocalBroker) -> int:
    """The process, without LocalBroker.pid, after which it is not used again."""
    assert isinstance(broker.process, ForkedProcess)
    return broker.process.pid


def in_a_process_of_before(arguments: dict[str, Any] | None = None) -> int:
    """Start plain brokers until one has the process of the one before. Gives: the process."""
    last = 0
    for _ in range(10):
        with Broker(**(arguments or {})) as broker:
            if process_of(broker) == last:
                return last
            last = process_of(broker)
    raise AssertionError("no process is used again")


LOGGERS = {"resource_type": 8, "resource_name": "1"}


def set_logger_level(broker: LocalBroker) -> None:
    """Change what a client can change of a process."""
    trace = AlterableConfig("barnabas.server", 0, "TRACE")
    request = IncrementalAlterConfigsRequest([AlterConfigsResource(**LOGGERS, configs=[trace])])
    with broker.admin() as admin:
        (row,) = admin.call(request, 1, IncrementalAlterConfigsResponse).responses
    assert row.error_code == 0


def logger_levels(broker: LocalBroker) -> dict[str, str | None]:
    request = DescribeConfigsRequest([DescribeConfigsResource(**LOGGERS)])
    with broker.admin() as admin:
        (row,) = admin.call(request, 4, DescribeConfigsResponse).results
    assert row.error_code == 0
    return {config.name: config.value for config in row.configs}


def test_a_process_that_is_used_again_has_nothing_of_the_broker_before() -> None:
    process = in_a_process_of_before()
    with Broker(topics={"orders": 3}) as last:
        assert process_of(last) == process
        producer = leave_an_open_transaction(last)
        client = socket.create_connection(("127.0.0.1", last.port))
        client.settimeout(PATIENCE_S)
        earlier = (cluster_id(last), last.data_dir, last.port)
    with client, contextlib.suppress(ConnectionResetError):
        assert client.recv(1) == b""
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", last.port))
    assert not Path(last.data_dir).exists()
    with Broker() as broker:
        assert process_of(broker) == process
        later = (cluster_id(broker), broker.data_dir, broker.port)
        assert all(one != other for one, other in zip(earlier, later, strict=True))
        assert broker.open_transactions() == []
        assert not any(f":{last.port}" in line for line in broker.output)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        assert admin.list_topics(timeout=PATIENCE_S).topics == {}
        assert admin.list_consumer_groups().result(PATIENCE_S).valid == []
        new = transactional(broker)
        new.begin_transaction()
        new.produce("orders", b"1")
        new.commit_transaction(PATIENCE_S)
        assert values_of(broker.bootstrap_servers, "orders") == [b"1"]
    del producer, new


def test_levels_of_loggers_are_those_of_a_new_process() -> None:
    with Broker() as broker:
        levels = logger_levels(broker)
        set_logger_level(broker)
        assert logger_levels(broker) != levels
    with Broker() as broker:
        assert logger_levels(broker) == levels


def test_a_process_that_has_inherited_the_pipes_holds_no_broker_back() -> None:
    process = in_a_process_of_before()
    with contextlib.ExitStack() as stack:
        with Broker() as last:
            assert process_of(last) == process
            assert last.process is not None and last.process.stdin is not None
            pipe = last.process.stdin.fileno()
            child = subprocess.Popen(["sleep", "600"], pass_fds=[pipe])
            stack.enter_context(child)
            stack.callback(child.kill)
        with Broker() as broker:
            assert process_of(broker) == process


OTHER_PROCESSES: dict[str, Callable[[LocalBroker], object]] = {
    "its process id was asked for": lambda broker: broker.pid,
    "stopped": LocalBroker.stop,
    "killed": LocalBroker.kill,
    "restarted": LocalBroker.restart,
    "another limit": lambda broker: resource.prlimit(
        process_of(broker), resource.RLIMIT_FSIZE, (1 << 30, 1 << 30)
    ),
    "another priority": lambda broker: psutil.Process(process_of(broker)).nice(3),
}


@pytest.mark.parametrize("how", list(OTHER_PROCESSES))
def test_a_process_that_somebody_has_touched_is_not_used_again(how: str) -> None:
    in_a_process_of_before()
    with Broker() as last:
        process = process_of(last)
        OTHER_PROCESSES[how](last)
    eventually(lambda: not psutil.pid_exists(process), what="the end of the process")
    with Broker() as broker:
        assert process_of(broker) != process


@pytest.mark.parametrize(
    "arguments",
    [{"control": True}, {"settings": {"num.partitions": 2}}, {"users": {"a": "b"}}, {"brokers": 2}],
    ids=lambda arguments: next(iter(arguments)),
)
def test_a_broker_of_another_kind_leaves_no_process(arguments: dict[str, Any]) -> None:
    with Broker(**arguments) as last:
        process = process_of(last)
    eventually(lambda: not psutil.pid_exists(process), what="the end of the process")


def test_producer_ids_begin_again() -> None:
    ids = []
    for _ in range(2):
        with Broker(control=True) as broker:
            transactional(broker)
            (request,) = broker.requests("InitProducerId")
            ids.append(request["answer"]["producer_id"])
    assert ids[0] == ids[1]


def test_clients_of_the_last_broker_are_cut_and_do_not_reach_the_next() -> None:
    with Broker() as last:
        client = socket.create_connection(("127.0.0.1", last.port))
        client.settimeout(PATIENCE_S)
    with client, contextlib.suppress(ConnectionResetError):
        assert client.recv(1) == b""
    ports = [last.port]
    for _ in range(20):
        with Broker() as broker:
            ports.append(broker.port)
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", last.port))
    assert len(set(ports)) == len(ports)


def _fill_disk(broker: LocalBroker) -> None:
    resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (4096, 4096))
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "message.timeout.ms": 500, **QUIET}
    )
    refused = []
    producer.produce("orders", bytes(100_000), on_delivery=lambda error, _: refused.append(error))
    producer.flush(PATIENCE_S)
    # confluent-kafka 2.16 leaves an exception behind if a KafkaError is compared with None
    assert all(error is not None for error in refused)


BREAKS: dict[str, Callable[[LocalBroker], object]] = {
    "killed": LocalBroker.kill,
    "killed from outside": lambda broker: os.kill(broker.pid, signal.SIGKILL),
    "stopped": LocalBroker.stop,
    "paused": LocalBroker.pause,
    "restarted": LocalBroker.restart,
    "restarted after a kill": lambda broker: (broker.kill(), broker.restart()),
    "without power": LocalBroker.lose_power,
    "without space": _fill_disk,
    "years ahead": lambda broker: broker.control.advance(days=1000),
}


@pytest.mark.parametrize("how", list(BREAKS))
def test_a_broker_that_a_test_broke_is_replaced(how: str) -> None:
    with Broker(control=True, topics=["orders"]) as broken:
        assert is_forked(broken)
        BREAKS[how](broken)
    assert not Path(broken.data_dir).exists()
    with Broker(control=True, topics=["orders"]) as broker:
        assert is_forked(broker)
        assert broker.control.ahead_ms == 0
        send_all(broker.bootstrap_servers, "orders", [b"1"])
        assert values_of(broker.bootstrap_servers, "orders") == [b"1"]


@pytest.mark.parametrize(
    "arguments",
    [
        {"settings": {"num.partitions": 3, "barnabas.log.format": "json"}},
        {"users": {"alice": "secret"}},
        {"brokers": 3},
        {"emulate": "3.9"},
    ],
    ids=lambda arguments: next(iter(arguments)),
)
def test_each_kind_of_broker_is_forked(arguments: dict[str, object]) -> None:
    with Broker(topics=["orders"], control=True, **arguments) as broker:  # type: ignore[arg-type]
        assert is_forked(broker)
        with broker.admin() as admin:
            assert admin.open_transactions() == []
        assert broker.requests("CreateTopics")[0]["errors"] == []


def test_a_forked_broker_with_tls() -> None:
    pytest.importorskip("cryptography")
    with Broker(tls=True, topics=["orders"]) as broker:
        assert is_forked(broker)
        client = {"bootstrap.servers": broker.bootstrap_servers, "security.protocol": "SSL"}
        admin = AdminClient({**client, "ssl.ca.location": broker.ca_file})
        assert "orders" in admin.list_topics(timeout=PATIENCE_S).topics


def test_a_forked_broker_has_the_environment_and_directory_of_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_THIS_TEST", "4")
    monkeypatch.chdir(tmp_path)
    settings = {
        "config.providers": "env",
        "config.providers.env.class": f"{PROVIDERS}.EnvVarConfigProvider",
        "num.partitions": "${env:OF_THIS_TEST}",
    }
    with Broker(settings=settings) as broker:
        assert is_forked(broker)
        assert Path(os.readlink(f"/proc/{broker.pid}/cwd")) == tmp_path
        assert broker.create_topic("orders") == "orders"
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        assert len(admin.list_topics(timeout=PATIENCE_S).topics["orders"].partitions) == 4
    monkeypatch.delenv("OF_THIS_TEST")
    with pytest.raises(BrokerStartError, match="OF_THIS_TEST"):
        Broker(settings=settings).start()


def test_what_an_interpreter_reads_at_its_start_makes_another_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    with Broker() as broker:
        assert not is_forked(broker)
    make_ready()
    with Broker() as broker:
        assert is_forked(broker)
    monkeypatch.undo()
    make_ready()


def test_a_forked_broker_that_does_not_start_says_why_and_ends_with_its_code() -> None:
    broker = Broker(settings={"num.partitions": "many"})
    with pytest.raises(BrokerStartError, match=r"num\.partitions"):
        broker.start()
    running = Broker().start()
    assert is_forked(running)
    assert running.stop() == 0
    assert running.stop() == 0


def test_a_clean_stop_is_clean(tmp_path: Path) -> None:
    with Broker(tmp_path, topics=["orders"]) as broker:
        assert is_forked(broker)
        send_all(broker.bootstrap_servers, "orders", [b"1"])
    with Broker(tmp_path) as broker:
        assert not [line for line in broker.output if "not clean" in line or "recover" in line]
        assert values_of(broker.bootstrap_servers, "orders") == [b"1"]


def test_brokers_of_several_threads_at_once() -> None:
    names: list[str] = []

    def run() -> None:
        with Broker(topics=["orders"]) as broker:
            send_all(broker.bootstrap_servers, "orders", [b"1"])
            names.append(broker.data_dir)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert len(set(names)) == 4


def test_a_fork_server_that_was_killed_is_replaced() -> None:
    assert FORKING.pid is not None
    with Broker(topics=["orders"]) as broker:
        assert FORKING._server is not None
        scratch = FORKING._server._scratch
        os.kill(FORKING.pid, signal.SIGKILL)
        # nobody can wait for it any more
        eventually(lambda: not broker.is_running, what="the broker's end")
    with Broker() as broker:
        assert not is_forked(broker)
    assert not Path(scratch).exists()
    make_ready()
    with Broker() as broker:
        assert is_forked(broker)


def test_a_spare_that_was_killed_is_replaced() -> None:
    assert FORKING.pid is not None
    server = psutil.Process(FORKING.pid)
    eventually(lambda: bool(server.children()), what="a spare")
    for spare in server.children():
        spare.kill()
    with Broker() as broker:
        assert is_forked(broker)


def test_a_process_that_was_forked_for_a_request_keeps_none_of_its_pipes() -> None:
    """It is used again, so they would not end with it."""
    server = psutil.Process(FORKING.pid)
    for _ in range(3):
        for spare in server.children():
            spare.kill()
        with Broker() as broker:
            assert is_forked(broker)
        assert broker._reader is not None
        assert not broker._reader.is_alive(), "the output has no end"


def _start_in_a_child(pipe: multiprocessing.connection.Connection) -> None:
    with Broker() as broker:
        pipe.send((broker.port, is_forked(broker)))


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_process_that_the_test_forks_has_its_own() -> None:
    ours, its = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=_start_in_a_child, args=(its,))
    child.start()
    assert ours.poll(PATIENCE_S)
    _, forked = ours.recv()
    child.join(PATIENCE_S)
    assert not forked
    with Broker() as broker:
        assert is_forked(broker)


OWNER = """
import sys
from barnabas.forked_daemon import FORKING
from barnabas.local_broker import LocalBroker
for _ in range(2):
    with LocalBroker():
        pass
assert FORKING.wait_until_ready()
broker = LocalBroker().start()
scratch = FORKING._server._scratch
print(FORKING.pid, broker.pid, broker.data_dir, scratch, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("how", ["killed", "ended"])
def test_nothing_is_left_of_a_process_that_ended(how: str, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    assert owner.stdin is not None
    assert owner.stdout is not None
    server, daemon, directory, scratch = owner.stdout.readline().split()
    children = [psutil.Process(int(server)), *psutil.Process(int(server)).children()]
    assert int(daemon) in [child.pid for child in children]
    if how == "killed":
        owner.kill()
    owner.stdin.close()
    assert owner.wait(PATIENCE_S) == (-signal.SIGKILL if how == "killed" else 0)
    owner.stdout.close()
    eventually(lambda: not any(map(_runs, children)), what="the end of all processes")
    eventually(lambda: not Path(directory).exists(), what="the directory's removal")
    assert list(tmp_path.iterdir()) == []
    assert not Path(scratch).exists()


def _runs(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def _in_use() -> dict[str, int]:
    """What this process and the fork server hold."""
    gc.collect()
    assert FORKING.pid is not None
    server, own = psutil.Process(FORKING.pid), psutil.Process()
    return {
        "descriptors": own.num_fds(),
        "descriptors of the server": server.num_fds(),
        "threads": own.num_threads(),
        "memory": own.memory_info().rss >> 20,
        "memory of the server": server.memory_info().rss >> 20,
    }


@pytest.mark.parametrize("count", [200, pytest.param(10_000, marks=pytest.mark.long)])
def test_renewals_leave_nothing(count: int) -> None:
    names = set()

    def renew() -> None:
        with Broker() as broker:
            names.add(broker.data_dir)

    for _ in range(10):
        renew()
    before = _in_use()
    for _ in range(count):
        renew()
    server = psutil.Process(FORKING.pid)
    eventually(lambda: len(server.children()) <= 2, what="the end of all daemons")
    after = _in_use()
    print(f"{count} renewals: before {before}, after {after}")
    slack = {"memory": 8, "memory of the server": 4, "descriptors of the server": 1}
    assert all(after[name] <= before[name] + slack.get(name, 0) for name in before), (before, after)
    assert len(names) == count + 10
    assert not any(Path(name).exists() for name in names)


def test_a_process_with_many_descriptors_has_forked_brokers() -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 1200:
        pytest.skip(f"at most {soft} descriptors")
    with contextlib.ExitStack() as stack:
        for _ in range(1100):
            stack.enter_context(open(os.devnull, "rb"))
        with Broker(topics=["orders"]) as broker:
            assert is_forked(broker)
            assert broker.stop() == 0

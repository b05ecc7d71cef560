"""LocalBroker in a test: one line starts it, and it ends with the process that started it."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import anyio
import psutil
import pytest
from confluent_kafka.admin import AdminClient
from helpers.e2e_clients import PATIENCE_S, eventually, producer, send_all, values_of
from helpers.loop_watchdog import daemon_command

from barnabas.admin import AdminError, NewTopic
from barnabas.control import ControlError
from barnabas.local_broker import BrokerNotRunningError, BrokerStartError, LocalBroker
from barnabas.protocol.errors import Code

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parents[2]
OWNER = """
import os, sys, time
from barnabas.local_broker import LocalBroker
broker = LocalBroker().start()
if sys.argv[1] == "paused":
    broker.pause()
child = 0
if sys.argv[1] == "with a child that lives on":
    child = os.fork()
    if not child:
        time.sleep(600)  # it has the daemon's standard input, and is killed by the test
        os._exit(0)
print(broker.pid, broker.data_dir, child, flush=True)
sys.stdin.read()
"""


def has_ended(pid: int) -> bool:
    """Whether the process no longer exists, or is a zombie that was not reaped."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_a_broker_has_its_topics_and_leaves_no_process_or_directory_behind() -> None:
    topics = {"orders": 3, "state": {"partitions": 2, "cleanup.policy": "compact"}}
    with LocalBroker(topics=topics, settings={"auto.create.topics.enable": False}) as broker:
        send_all(broker.bootstrap_servers, "orders", [b"1", b"2"])
        assert sorted(values_of(broker.bootstrap_servers, "orders")) == [b"1", b"2"]
        process, directory = psutil.Process(broker.pid), Path(broker.data_dir)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        reported = admin.list_topics(timeout=30).topics
        assert {name: len(reported[name].partitions) for name in topics} == {
            "orders": 3,
            "state": 2,
        }
    assert not process.is_running()
    assert not directory.exists()


def test_a_given_directory_is_kept_at_the_end(tmp_path: Path) -> None:
    with LocalBroker(tmp_path, topics=["kept"]):
        pass
    # At the second start, the topic already exists.
    with LocalBroker(tmp_path, topics=["kept"]) as broker:
        send_all(broker.bootstrap_servers, "kept", [b"still here"])
    assert (tmp_path / "kept-0").is_dir()


def test_a_restart_keeps_port_and_records() -> None:
    with LocalBroker() as broker:
        topic, port = broker.create_unique_topic("t"), broker.port
        send_all(broker.bootstrap_servers, topic, [b"before"])
        broker.restart()
        broker.kill()
        broker.restart()
        assert broker.port == port
        assert values_of(broker.bootstrap_servers, topic) == [b"before"]


def test_async_with() -> None:
    async def use() -> int:
        async with LocalBroker() as broker:
            assert psutil.pid_exists(broker.pid)
            return broker.pid

    assert not psutil.pid_exists(anyio.run(use))


@pytest.mark.parametrize("how", ["running", "paused", "with a child that lives on"])
def test_a_broker_ends_with_the_process_that_was_killed(how: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as owner:
        assert owner.stdout is not None
        pid, directory, child = owner.stdout.readline().split()
        owner.send_signal(signal.SIGKILL)
        owner.wait()
        try:
            eventually(lambda: has_ended(int(pid)), what="the broker ends")
        finally:
            if int(child):
                os.kill(int(child), signal.SIGKILL)
    if how != "paused":  # a broker that was paused cannot delete its directory
        eventually(lambda: not os.path.exists(directory), what="its directory goes")
    else:
        shutil.rmtree(directory)


def test_what_a_broker_says_that_does_not_start() -> None:
    with pytest.raises(BrokerStartError, match=r"log\.segment\.bytes"):
        LocalBroker(settings={"log.segment.byte": 5}).start()


def test_a_topic_that_is_refused_is_named() -> None:
    with pytest.raises(AdminError, match="a topic/with a slash"):
        LocalBroker(topics=["a topic/with a slash"]).start()
    with pytest.raises(TypeError, match="give a list"):
        LocalBroker(topics="orders").start()


def test_open_transactions_are_listed() -> None:
    with LocalBroker(topics={"orders": 2}) as broker:
        assert broker.open_transactions() == []
        client = producer(broker.bootstrap_servers, **{"transactional.id": "delta"})
        client.init_transactions(PATIENCE_S)
        client.begin_transaction()
        client.produce("orders", b"1", partition=1)
        client.flush(PATIENCE_S)
        (transaction,) = broker.open_transactions()
        assert (transaction.transactional_id, transaction.state) == ("delta", "Ongoing")
        assert transaction.partitions == (("orders", 1),)
        client.commit_transaction(PATIENCE_S)


def test_what_needs_a_broker_is_refused_before_it_was_started(tmp_path: Path) -> None:
    """A broker that was never started also leaves no files behind."""
    broker = LocalBroker(control=True)
    questions: dict[str, Callable[[], object]] = {
        "open_transactions": broker.open_transactions,
        "bootstrap_servers": lambda: broker.bootstrap_servers,
        "port": lambda: broker.port,
        "ports": lambda: broker.ports,
        "pid": lambda: broker.pid,
        "control": lambda: broker.control,
        "admin": broker.admin,
        "create_topic": lambda: broker.create_topic("t"),
        "create_unique_topic": broker.create_unique_topic,
        "requests": broker.requests,
        "pause": broker.pause,
        "resume": broker.resume,
        "lose_power": broker.lose_power,
    }
    for ask in questions.values():
        with pytest.raises(BrokerNotRunningError, match="was not started"):
            ask()
    assert not broker.is_running and broker._data_dir == ""
    assert LocalBroker(port=9099, brokers=2).bootstrap_servers == "127.0.0.1:9099,127.0.0.1:9100"
    with pytest.raises(ValueError, match="at least 1"):
        LocalBroker(brokers=0)


def test_what_needs_a_broker_is_refused_once_it_is_dead() -> None:
    with LocalBroker(control=True, topics=["t"]) as broker:
        servers = broker.bootstrap_servers
        os.kill(broker.pid, signal.SIGKILL)
        broker.process.wait()  # type: ignore[union-attr]
        for ask in (broker.open_transactions, broker.admin, lambda: broker.create_topic("u")):
            with pytest.raises(BrokerNotRunningError, match="ended with -9"):
                ask()
        broker.kill()
        with pytest.raises(BrokerNotRunningError):
            broker.open_transactions()
        assert broker.bootstrap_servers == servers, "it will be started again on this port"
        broker.start()
        assert broker.open_transactions() == []
        with pytest.raises(RuntimeError, match="started already"):
            broker.start()


def test_create_topic_accepts_an_equal_topic_and_refuses_one_with_other_settings() -> None:
    with LocalBroker(topics={"t": {"partitions": 2, "retention.ms": 5000}}) as broker:
        broker.create_topic("t")
        broker.create_topic("t", 2, retention_ms=5000)
        for partitions, configs, says in (
            (5, {}, "2 partitions and not 5"),
            (2, {"retention_ms": 6000}, "retention.ms=5000 and not 6000"),
            (-1, {"cleanup_policy": "compact"}, "cleanup.policy=delete and not compact"),
        ):
            with pytest.raises(AdminError, match=says) as refused:
                broker.create_topic("t", partitions, **configs)
            assert refused.value.code is Code.TOPIC_ALREADY_EXISTS
        with (
            pytest.raises(AdminError, match="1 replicas and not 3"),
            broker.admin() as admin,
        ):
            admin.create_topics([NewTopic("t", replication_factor=3)])
        broker.topics = {"t": 3}
        broker.restart()  # creates missing topics, and does not change existing ones


def test_an_emulated_release_that_there_is_not_is_refused_with_those_there_are() -> None:
    with pytest.raises(BrokerStartError, match=r"one of empty, 3\.9, 4\.3"):
        LocalBroker(emulate="2.8").start()


def test_the_control_of_a_broker_that_does_not_run_is_refused() -> None:
    with LocalBroker(control=True, topics={"t": 1}) as broker:
        assert broker.control.leader("t", 0) == 1
        ends: list[Callable[[], object]] = [broker.kill, broker.stop, broker.lose_power]
        for end in ends:
            end()
            for ask in (lambda: broker.control, broker.requests):
                with pytest.raises(BrokerNotRunningError, match="does not run"):
                    ask()
            broker.start()
            assert broker.requests(topic="u") == []
        with pytest.raises(ControlError, match="`after` has to be the number of a request"):
            broker.requests(after="yesterday")


def test_open_transactions_fails_while_the_transactions_coordinator_is_down() -> None:
    """The internal topic has one replica, so its partitions on a stopped broker are unavailable,
    and the list of transactions fails.
    """
    settings = {"transaction.state.log.replication.factor": 1}
    with LocalBroker(control=True, brokers=2, topics=["t"], settings=settings) as broker:
        client = producer(broker.bootstrap_servers, **{"transactional.id": "x"})
        client.init_transactions(PATIENCE_S)
        with broker.control.without_broker(1), pytest.raises(AdminError) as refused:
            broker.open_transactions()
        assert refused.value.code is Code.COORDINATOR_NOT_AVAILABLE
        assert broker.open_transactions() == []


def test_user_names_and_passwords_that_the_users_file_cannot_represent_are_refused() -> None:
    """In the file, a user `a:b` with the password `c` would be read as the user `a`."""
    for name, password in (
        ("a:b", "c"),
        ("", "c"),
        ("a", ""),
        ("#a", "b"),
        ("a", " b"),
        ("a\nb", "c"),
    ):
        with pytest.raises(ValueError, match="a name"):
            LocalBroker(users={name: password})


def test_an_unknown_certificate_name_is_refused(tmp_path: Path) -> None:
    broker = LocalBroker(tmp_path, tls=True)
    with pytest.raises(ValueError, match="no certificate 'cleint': there are client, broker, ca"):
        broker.certificate_file("cleint")


def test_the_temporary_directory_of_a_broker_without_a_context_goes_with_the_object() -> None:
    asked = LocalBroker(tls=True)
    directories = [asked.data_dir]
    broker = LocalBroker().start()
    directories.append(broker.data_dir)
    broker.stop()
    assert all(map(os.path.isdir, directories)), "it may start again"
    del asked, broker
    gc.collect()
    assert not any(map(os.path.exists, directories))


def test_a_paused_broker_does_not_answer_until_it_is_resumed() -> None:
    with LocalBroker(topics=["t"]) as broker:
        broker.pause()
        with pytest.raises(TimeoutError), broker.admin(timeout_s=0.2) as admin:
            admin.open_transactions()
        broker.resume()
        assert broker.open_transactions() == []


def test_the_ready_file_has_the_address_while_it_listens(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    arguments = ["start", "--port", "0", "--data-dir", str(tmp_path / "d")]
    process = subprocess.Popen(
        [*daemon_command(), *arguments, "--ready-file", str(ready)],
        stdout=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        eventually(ready.exists, what="it is ready")
        host, port = ready.read_text().strip().split(":")
        send_all(f"{host}:{port}", "t", [b"x"])
    finally:
        process.terminate()
        assert process.wait(PATIENCE_S) == 0
    assert not ready.exists()


def test_a_broker_that_emulates_kafka_3_9_offers_its_api_versions() -> None:
    """librdkafka follows the ApiVersions response. It does not use Metadata 13, which Kafka 4
    added.
    """
    with LocalBroker(topics=["t"], emulate="3.9", control=True) as broker:
        assert send_all(broker.bootstrap_servers, "t", [b"a"]) == [0]
        assert values_of(broker.bootstrap_servers, "t") == [b"a"]
        versions = {row["version"] for row in broker.control.requests("Metadata")}
        assert versions == {12}

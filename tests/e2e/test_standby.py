"""A leader is killed, and a broker continues on its standby's copy, with a real client."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from helpers.e2e_clients import PATIENCE_S, eventually, values_of
from helpers.loop_watchdog import daemon_command
from helpers.processes import ROOT, environment

from barnabas import LocalBroker
from barnabas.certificates import make_certificates

pytestmark = pytest.mark.e2e

SECRET = "barnabas.replication.secret"
SETTINGS = {
    "barnabas.replication.port": 0,
    SECRET: "of both",
    "barnabas.replication.mode": "sync",
    "barnabas.replication.timeout.ms": 60_000,
}
VALUES = [b"a", b"b", b"not answered while the standby is stopped", b"c"]


@contextmanager
def standby_of(
    leader: LocalBroker, data_dir: Path, settings: Mapping[str, object] = SETTINGS
) -> Iterator[subprocess.Popen[str]]:
    """Start the process of a standby, and wait until it has caught up. Takes: settings, the shared
    secret and TLS settings.
    """
    address = ":".join(map(str, address_of(leader)))
    command = [*daemon_command(), "start", "--standby-of", address]
    for name, value in settings.items():
        if name == SECRET or name.startswith("ssl."):
            command += ["--set", f"{name}={value}"]
    process = subprocess.Popen(
        [*command, "--data-dir", str(data_dir)],
        stderr=subprocess.PIPE, text=True, cwd=ROOT, env=environment(),
    )  # fmt: skip
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if "and follows it" in line:
                break
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        assert process.wait(PATIENCE_S) == 0
        process.stderr.close()


def address_of(leader: LocalBroker) -> tuple[str, int]:
    """The address at which the leader accepts a standby."""
    where = re.compile(r"a standby connects at (\S+):(\d+)")
    found = eventually(
        lambda: where.search("".join(leader.output)), what="the leader's port for a standby"
    )
    return found[1], int(found[2])


def commit(producer: Producer, *values: str) -> None:
    """Commit a transaction with these values."""
    producer.begin_transaction()
    for value in values:
        producer.produce("t", value)
    producer.commit_transaction(PATIENCE_S)


def test_a_broker_on_the_standbys_copy_has_every_acknowledged_record(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    with LocalBroker(first, topics={"t": 1}, settings=SETTINGS) as leader:
        producer = Producer(
            {"bootstrap.servers": leader.bootstrap_servers, "transactional.id": "x"}
        )
        waiting = Producer({"bootstrap.servers": leader.bootstrap_servers, "linger.ms": 0})
        with standby_of(leader, second) as standby:
            producer.init_transactions(PATIENCE_S)
            commit(producer, "a", "b")
            producer.begin_transaction()
            producer.produce("t", "open")
            producer.flush(PATIENCE_S)

            standby.send_signal(signal.SIGSTOP)
            waiting.produce("t", "not answered while the standby is stopped")
            assert waiting.flush(1) == 1
            standby.send_signal(signal.SIGCONT)
            assert waiting.flush(PATIENCE_S) == 0
            leader.kill()
    with LocalBroker(second, port=leader.port, settings=SETTINGS) as successor:
        again = Producer(
            {"bootstrap.servers": successor.bootstrap_servers, "transactional.id": "x"}
        )
        again.init_transactions(PATIENCE_S)  # aborts the open transaction
        # the former leader's directory becomes that of the standby
        with standby_of(successor, first):
            commit(again, "c")
            with pytest.raises(KafkaException) as fenced:
                producer.commit_transaction(PATIENCE_S)
            # The new leader cannot know that its copy has every record, so it acts as after a power
            # loss, and refuses the former session of the transactional id.
            assert fenced.value.args[0].code() == KafkaError.INVALID_PRODUCER_ID_MAPPING
        assert values_of(successor.bootstrap_servers, "t") == VALUES
    with LocalBroker(first) as back:
        assert values_of(back.bootstrap_servers, "t") == VALUES


def test_a_clean_stop_of_the_leader_sends_everything_to_its_standby(tmp_path: Path) -> None:
    """This also holds with `async`, where no response waits for the standby. A clean stop sends the
    rest of the stream.
    """
    first, second = tmp_path / "first", tmp_path / "second"
    settings = {**SETTINGS, "barnabas.replication.mode": "async"}
    values = [b"%d" % number for number in range(3000)]
    with LocalBroker(first, topics={"t": 1}, settings=settings) as leader:
        producer = Producer({"bootstrap.servers": leader.bootstrap_servers, "linger.ms": 0})
        with standby_of(leader, second) as standby:
            standby.send_signal(signal.SIGSTOP)
            for value in values:
                producer.produce("t", value)
            assert producer.flush(PATIENCE_S) == 0
            standby.send_signal(signal.SIGCONT)
            leader.stop()
    with LocalBroker(second) as successor:
        assert values_of(successor.bootstrap_servers, "t") == values


def test_a_standby_follows_over_tls_while_other_clients_connect_to_its_port(
    tmp_path: Path,
) -> None:
    make_certificates(tmp_path / "certs")
    settings = {
        **SETTINGS,
        "ssl.keystore.location": tmp_path / "certs" / "broker.pem",
        "ssl.truststore.location": tmp_path / "certs" / "ca.pem",
    }
    values = [b"%d" % number for number in range(100)]
    with LocalBroker(tmp_path / "first", topics={"t": 1}, settings=settings) as leader:
        producer = Producer({"bootstrap.servers": leader.bootstrap_servers, "linger.ms": 0})
        port = address_of(leader)[1]
        over = threading.Event()
        strangers = [threading.Thread(target=come_again, args=(port, over)) for _ in range(3)]
        for stranger in strangers:
            stranger.start()
        try:
            with standby_of(leader, tmp_path / "second", settings):
                for value in values:
                    producer.produce("t", value)
                assert producer.flush(PATIENCE_S) == 0
                leader.stop()
        finally:
            over.set()
            for stranger in strangers:
                stranger.join()
        # The log lines about invalid connections are limited.
        assert "".join(leader.output).count("barnabas.replication.port") < 10
    with LocalBroker(tmp_path / "second") as successor:
        assert values_of(successor.bootstrap_servers, "t") == values


def come_again(port: int, over: threading.Event) -> None:
    """Until `over` is set, connect, send invalid bytes, and connect again."""
    while not over.is_set():
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1) as sock:
            sock.sendall(b"\0\0\0\1x")
            sock.recv(1)

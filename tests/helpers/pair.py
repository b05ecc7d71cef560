"""Two daemons that share a lease in a real etcd, and the connections between the two."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from helpers.e2e_clients import eventually
from helpers.loop_watchdog import daemon_command
from helpers.ports import free_port
from helpers.processes import ROOT, environment

KEY = "pair"
FOLLOWS = "has caught up and follows"
MAY_TAKE_OVER = "may take over\n"  # a log line of a standby that has joined the lease's in-sync set
API_VERSIONS = bytes.fromhex("0000000a0012000000000001ffff")  # version 0


def listens(port: int) -> bool:
    """Whether a process listens on the port."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
        return True
    except OSError:
        return False


@contextmanager
def etcd(
    data_dir: Path, certificate: Path | None = None
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Start an etcd, and yield its HOST:PORT and its process. It uses TLS if a file with a
    certificate and a key is given.
    """
    port, peer_port = free_port(), free_port()
    client = f"{'http' if certificate is None else 'https'}://127.0.0.1:{port}"
    peer = f"http://127.0.0.1:{peer_port}"
    tls = [] if certificate is None else ["--cert-file", certificate, "--key-file", certificate]
    process = subprocess.Popen(
        ["etcd", "--data-dir", str(data_dir), "--unsafe-no-fsync", "--listen-client-urls", client,
         "--advertise-client-urls", client, "--listen-peer-urls", peer,
         "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}", *tls],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        eventually(lambda: process.poll() is not None or listens(port), what="etcd")
        assert process.poll() is None, f"etcd ended with {process.returncode}"
        yield f"127.0.0.1:{port}", process
    finally:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait()


class PairNode:
    """A daemon of the pair. It keeps its ports when it is started again.

    Takes: engine, HOST:PORT of the etcd; settings, in addition to the settings of a pair in `sync`.
    """

    def __init__(
        self,
        node_id: int,
        directory: Path,
        engine: str,
        settings: Mapping[str, object] | None = None,
        ports: tuple[int, int] | None = None,
    ) -> None:
        self.node_id = node_id
        self.port, self.replication_port = ports or (free_port(), free_port())
        self.data_dir = directory / f"data{node_id}"
        self.ready_file, self.log = directory / f"ready{node_id}", directory / f"log{node_id}"
        known = {
            "node.id": node_id,
            "barnabas.lease.url": f"etcd://{engine}/{KEY}",
            "barnabas.replication.port": self.replication_port,
            "barnabas.replication.mode": "sync",
            "barnabas.replication.secret": "of both nodes",
            **(settings or {}),
        }
        self._command = [
            *daemon_command(), "start", "--port", str(self.port),
            "--data-dir", str(self.data_dir), "--ready-file", str(self.ready_file),
            *(part for name, value in known.items() for part in ("--set", f"{name}={value}")),
        ]  # fmt: skip
        self.start()

    @property
    def servers(self) -> str:
        """The node's address, as clients use it."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the daemon."""
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                self._command, stdout=log, stderr=log, cwd=ROOT, env=environment()
            )

    def kill(self) -> None:
        """Kill the daemon by SIGKILL."""
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait()
        self.ready_file.unlink(missing_ok=True)

    def stop(self) -> None:
        """End the daemon by SIGTERM."""
        self.process.terminate()
        assert self.process.wait(60) == 0, self.log.read_text()

    def says(self, text: str, times: int = 1) -> bool:
        """Whether the node's log contains the text at least `times` times."""
        return self.log.read_text().count(text) >= times

    def answers(self) -> bool:
        """Whether the node responds to a request within a second."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1.0) as sock:
                sock.sendall(API_VERSIONS)
                return bool(sock.recv(4))
        except OSError:
            return False


@contextmanager
def pair(
    directory: Path, engine: str, settings: Mapping[str, object] | None = None
) -> Iterator[tuple[PairNode, PairNode]]:
    """A leader, and a standby that follows it."""
    nodes = [PairNode(node_id, directory, engine, settings) for node_id in (1, 2)]
    try:
        eventually(
            lambda: any(node.ready_file.exists() or node.process.poll() for node in nodes),
            what="a leader",
        )
        assert all(node.process.poll() is None for node in nodes), [
            node.log.read_text() for node in nodes
        ]
        leader, standby = sorted(nodes, key=lambda node: not node.ready_file.exists())
        eventually(lambda: leader.says(MAY_TAKE_OVER), what="a standby that may take over")
        yield leader, standby
    finally:
        for node in nodes:
            node.kill()


def take_over(leader: PairNode, standby: PairNode) -> float:
    """Kill the leader, and start it again as soon as the standby responds. Return the seconds
    between the kill and the standby's first response.
    """
    follows = standby.log.read_text().count(FOLLOWS)
    leader.kill()
    began_s = time.monotonic()
    eventually(standby.answers, what="the standby's first answer")
    took_s = time.monotonic() - began_s
    leader.start()
    eventually(lambda: standby.says(FOLLOWS, follows + 1), what="the old leader follows")
    return took_s

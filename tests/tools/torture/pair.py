"""Two real daemons with a real etcd, used by the clients of `torture.clients`, with faults in the
daemons, in etcd and in all connections between them.

    PYTHONPATH=tests/tools:tests:. python -m torture.pair --minutes N

The clients and the checks of their history are those of `torture.clients`. Here the leader and its
standby are killed and stopped, connections between them and to etcd are cut or become silent, and
etcd is stopped. At the end of each round the two copies of the data are compared byte by byte.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from checkers import Finding
from helpers import loop_watchdog
from helpers.e2e_clients import eventually
from helpers.pair import KEY, PairNode, etcd
from helpers.ports import free_port
from helpers.tcp_proxy import TcpProxy

from barnabas.replication.leadership import Found, Read
from barnabas.replication.lease_engine import EtcdEngine
from barnabas.replication.lease_exchange import EngineSettings
from barnabas.replication.lease_record import LeaseRecord, decode_lease_record
from barnabas.replication.operations import is_local, is_unfinished
from torture import commit_probe
from torture.clients import BROKER_SETTINGS, CLIENT_DEEDS, ROUND_S, Report, Round, _rows, now_ms

TAKE_OVER_MS = 5000
SOONEST_MS = 1000  # no take-over is faster than this, so an earlier response is from the old leader
WHOLE_S = 90.0
DEEDS = (
    *["leader killed"] * 4,
    *["leader stopped"] * 2,
    *["standby killed"] * 2,
    "standby stopped",
    *["nodes apart"] * 2,
    *["leader cut off from etcd"] * 2,
    "standby cut off from etcd",
    "etcd stopped",
    *["clients"] * 4,
)


class Pair:
    """Both daemons, the proxies and etcd, which a `Round` uses as if they were its broker."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        address, self.etcd = stack.enter_context(etcd(directory / "etcd"))
        host, _, port = address.rpartition(":")
        settings = EngineSettings((f"http://{address}",), KEY, 2000, 3000)
        self._engine = EtcdEngine(settings)
        self.to_etcd: dict[int, TcpProxy] = {}
        self.to_node: dict[int, TcpProxy] = {}
        self.nodes: dict[int, PairNode] = {}
        for node_id in (1, 2):
            ports = (free_port(), free_port())
            self.to_etcd[node_id] = TcpProxy((host, int(port)))
            self.to_node[node_id] = TcpProxy(("127.0.0.1", ports[1]))
            self.nodes[node_id] = PairNode(
                node_id,
                directory,
                self.to_etcd[node_id].address,
                {"barnabas.replication.advertised": self.to_node[node_id].address,
                 **BROKER_SETTINGS},
                (ports[0], ports[1]),
            )  # fmt: skip
        stack.callback(self.end)

    def end(self) -> None:
        for node in self.nodes.values():
            node.kill()
        for proxy in (*self.to_etcd.values(), *self.to_node.values()):
            proxy.close()

    @property
    def record(self) -> LeaseRecord | None:
        """The current record of the lease."""
        answer = self._engine.ask(Read())
        if not isinstance(answer, Found) or not answer.value:
            return None
        return decode_lease_record(answer.value)

    @property
    def is_whole(self) -> bool:
        """Whether one node is the leader and responds, and the other is in sync and may take
        over.
        """
        record = self.record
        return (
            record is not None
            and record.leader is not None
            and len(record.in_sync) == 2
            and self.nodes[record.leader].answers()
        )

    def leader_id(self) -> int:
        """Return the id of the node that is the leader, or was the last leader."""
        record = self.record
        return 1 if record is None or record.leader is None else record.leader

    # --- what a round asks of its broker ---------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(node.servers for node in self.nodes.values())

    @property
    def port(self) -> int:
        return self.nodes[self.leader_id()].port

    @property
    def output(self) -> list[str]:
        """The lines of both nodes' logs."""
        lines: list[str] = []
        for node in self.nodes.values():
            lines += node.log.read_text().splitlines()
        return lines

    def kill(self) -> None:
        """Kill the leader and start it again. The standby takes over."""
        node = self.nodes[self.leader_id()]
        node.kill()
        node.start()

    def restart(self) -> None:
        """Wait until the pair is as it was before the kill."""
        eventually(lambda: self.is_whole, what="the pair is whole again", timeout_s=WHOLE_S)

    def forget_output(self) -> None:
        """Forget the log lines written so far."""
        for node in self.nodes.values():
            os.truncate(node.log, 0)

    def differences(self) -> list[str]:
        """The paths of files that differ between the two copies."""
        mine, others = (_files(node.data_dir) for node in self.nodes.values())
        return sorted(
            path for path in mine.keys() | others.keys() if mine.get(path) != others.get(path)
        )


def _files(data_dir: Path) -> dict[str, str]:
    """Return the digests of a node's files by path, without the files that only one node has."""
    found = {}
    for path in data_dir.rglob("*"):
        name = str(path.relative_to(data_dir))
        if path.is_file() and not is_local(name) and not is_unfinished(name):
            try:
                found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
            except FileNotFoundError:
                continue
    found.pop("meta.properties", None)  # the nodes differ in this file, which contains node.id
    return found


@dataclass(slots=True)
class TakeOver:
    """The milliseconds from the loss of a leader to a commit on the other node. `took_ms` is
    measured by the probing client. `client_ms` is measured by the first of the real clients, which
    also wait for reasons of their own; it is -1 if there was none.
    """

    deed: str
    lost_ms: int
    took_ms: int
    client_ms: int = -1

    def __str__(self) -> str:
        return f"{self.deed} {self.took_ms} (clients {self.client_ms})"


class PairRound(Round):
    """A round with clients, faults of both nodes, healing and checks. `take_overs` has an entry for
    each loss of a leader whose standby was in sync and took over.
    """

    def __init__(self, pair: Pair, number: int, seed: int, directory: str) -> None:
        super().__init__(pair, number, seed, directory)  # type: ignore[arg-type]
        self.pair = pair
        self.take_overs: list[TakeOver] = []
        self._later: list[tuple[float, Callable[[], Any]]] = []

    # --- chaos ---

    def wait(self, seconds: float) -> None:
        """Wait for some time, and end the faults that are due."""
        super().wait(seconds)
        self._end_harm(time.monotonic())

    def _end_harm(self, until_s: float) -> None:
        """End the faults that were due until this time."""
        due = [entry for entry in self._later if entry[0] <= until_s]
        self._later = [entry for entry in self._later if entry[0] > until_s]
        for _, end in due:
            end()

    def _for(self, seconds: float, end: Callable[[], Any]) -> None:
        self._later.append((time.monotonic() + seconds, end))

    def _see_that_broker_lives(self) -> None:
        for node in self.pair.nodes.values():
            if node.process.poll() is not None and not self._later:
                text = "\n".join(node.log.read_text().splitlines()[-20:])
                self.incidents.append(("crashed", f"node {node.node_id} died:\n{text}"))
                node.start()

    def do_something(self) -> None:
        """Do one random thing to the clients or to a node."""
        deed = self.random.choice(DEEDS)
        if deed == "clients":
            self.harm(self.random.choice(CLIENT_DEEDS))
            return
        if self._later:
            # Only one fault of the nodes occurs at a time, and its consequences must be over before
            # the next.
            return
        if self.random.random() < 0.8:
            self._await_whole()
        leader_id = self.pair.leader_id()
        lost_ms = now_ms()
        seconds = self._harm(deed, leader_id)
        self.report.deeds[deed] += 1
        # A leader that is cut off from etcd is excluded, since it continues until its lease ends.
        if deed in ("leader killed", "leader stopped") and seconds >= 6:
            self._await_take_over(deed, leader_id, lost_ms)

    def _await_take_over(self, deed: str, leader_id: int, lost_ms: int) -> None:
        """If the standby may take over, wait for a commit on it. Until then the nodes get no other
        faults.
        """
        record = self.pair.record
        if record is None or record.leader != leader_id or len(record.in_sync) < 2:
            return
        ports = [self.pair.nodes[3 - leader_id].port]
        if deed == "leader killed":
            ports.append(self.pair.nodes[leader_id].port)
        if commit_probe.first_commit_ms(ports, within_s=WHOLE_S, wait=self.wait) is None:
            self.incidents.append(("stuck", f"no commit after {deed}: {self.pair.record}"))
        elif self.pair.leader_id() != leader_id:
            self.take_overs.append(TakeOver(deed, lost_ms, now_ms() - lost_ms))

    def _await_whole(self) -> bool:
        """Wait until both nodes are in sync; it is a finding if this takes too long."""
        ends_s = time.monotonic() + WHOLE_S
        while not self.pair.is_whole:
            if time.monotonic() > ends_s:
                self.incidents.append(("stuck", f"the pair is not whole: {self.pair.record}"))
                return False
            self.wait(0.1)
        return True

    def _harm(self, deed: str, leader_id: int) -> float:
        """Cause a fault. Gives: for how many seconds the leader is unavailable."""
        pair, rng = self.pair, self.random
        node = pair.nodes[leader_id if deed.startswith("leader") else 3 - leader_id]
        seconds = rng.choice((0.3, 1.0, 2.0, 4.0, 6.5, 8.0))
        if deed.endswith("killed"):
            node.kill()
            self._for(rng.choice((0.0, 0.5, 7.0)), node.start)
            return 6.5 if deed == "leader killed" else 0.0
        if deed.endswith("stopped"):
            process = pair.etcd if deed == "etcd stopped" else node.process
            process.send_signal(signal.SIGSTOP)
            self._for(seconds, lambda: process.send_signal(signal.SIGCONT))
        else:
            cut = (
                list(pair.to_node.values())
                if deed == "nodes apart"
                else [pair.to_etcd[node.node_id]]
            )
            is_cut = rng.random() < 0.5
            for proxy in cut:
                (proxy.cut if is_cut else proxy.silence)()
                self._for(seconds, proxy.heal)
        return seconds if deed.startswith("leader") else 0.0

    # --- healing and judgement ---

    def heal(self) -> None:
        self._end_harm(float("inf"))
        super().heal()

    def judge(self, followers: list[Any]) -> None:
        self._compare_copies()
        super().judge(followers)
        committed_ms = sorted(
            row["ms"]
            for path in Path(self.directory).glob(f"{self.topic}_*")
            for row in _rows(path)
            if row["is"] == "committed"
        )
        for one in self.take_overs:
            later = [at_ms for at_ms in committed_ms if at_ms >= one.lost_ms + SOONEST_MS]
            if later:
                one.client_ms = later[0] - one.lost_ms

    def _compare_copies(self) -> None:
        """Check that both copies are equal once the clients have ended."""
        ends_s = time.monotonic() + WHOLE_S
        while differing := self.pair.differences():
            if time.monotonic() > ends_s:
                self.incidents.append(("lost", f"the copies differ: {differing[:10]}"))
                return
            time.sleep(0.5)


def torture(seconds: float, *, seed: int, directory: Path) -> Iterator[tuple[Report, PairRound]]:
    """Run rounds on one pair until the time is up."""
    diaries = directory / "diaries"
    diaries.mkdir(parents=True)
    end, number = time.monotonic() + seconds, 0
    loop_watchdog.start_watching()
    with ExitStack() as stack:
        pair = Pair(directory, stack)
        pair.restart()
        commit_probe.prepare(pair.port)
        while (left := end - time.monotonic()) > 0:
            number += 1
            one = PairRound(pair, number, seed + number - 1, str(diaries))
            report = one.run(min(left, ROUND_S))
            report.findings += [Finding("loop", fault) for fault in loop_watchdog.take_faults()]
            yield report, one
            if not report.findings:
                pair.forget_output()
                for path in diaries.glob(f"{report.topic}_*"):
                    path.unlink()


def _median(values: list[int]) -> int:
    return sorted(values)[len(values) // 2]


def main() -> int:
    """0: no findings."""
    parser = argparse.ArgumentParser(
        prog="python -m torture.pair",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--minutes", type=float, default=1.0, help="in rounds of a minute")
    parser.add_argument("--seed", type=int, default=None, help="of what is done when")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 30)
    directory = Path(tempfile.mkdtemp(prefix="barnabas-pair-torture-"))
    failed = False
    all_ms: list[int] = []
    client_ms: list[int] = []
    for report, one in torture(options.minutes * 60, seed=seed, directory=directory):
        print(report, flush=True)
        print("   errors that clients met:", dict(report.errors.most_common()), flush=True)
        print("   take-overs, ms to a commit:", *one.take_overs, sep="\n      ", flush=True)
        for finding in report.findings[:20]:
            failed = True
            print("   ", *finding, flush=True)
        all_ms += [each.took_ms for each in one.take_overs]
        client_ms += [each.client_ms for each in one.take_overs]
    if all_ms:
        late = sum(took_ms > TAKE_OVER_MS for took_ms in all_ms)
        print(
            f"{len(all_ms)} take-overs: a commit after {_median(all_ms)} ms in the median, "
            f"{max(all_ms)} ms at most; {late} took more than {TAKE_OVER_MS} ms\n"
            f"the first of the clients had one after {_median(client_ms)} ms, "
            f"{max(client_ms)} ms at most"
        )
    if failed:
        print(f"all is kept in {directory}", flush=True)
    else:
        shutil.rmtree(directory, ignore_errors=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

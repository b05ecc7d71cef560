"""An exactly-once Spark pipeline whose parts are killed at random; at the end all rows are checked.

    PYTHONPATH=tests/tools:tests:. python -m torture.spark_pipeline --minutes N --seed S

Feeders write into topics, with and without transactions. Some transactions are aborted or left
open. Partitions and a second topic are added later. A driver reads all topics by a pattern with
`readStream.format("barnabas")`, and writes with `writeStream.format("barnabas")`. Each round has a
random plan, and each start has random options, such as whether the driver or the tasks write.
Meanwhile drivers, their JVMs, Python processes and workers, feeders and the broker are killed and
stopped. Connections are cut and responses lost, at random times and at random frames of the sink's
and the source's requests. Stopped drivers are replaced, and later wake up as zombies.

Each round ends with a query that reads to the end of the input (Trigger.AvailableNow). Then each
committed record must be in the output exactly once (tests/tools/torture/spark_judging.py), and no
open transaction, spool file or process may be left. Findings are printed with the seed and the
schedule, and their directories are kept. A seed determines the plans, options and faults, but not
the timing of the processes, so a run cannot be repeated exactly.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from helpers import loop_watchdog
from helpers.processes import ROOT, environment

from barnabas import LocalBroker
from torture import spark_judging as judging
from torture.clients import PARTITIONS, Follower, now_ms
from torture.spark_judging import PLANS, SCATTERED, Finding

ROUND_S = 180.0
HEAL_S = 300.0
STALLED_S = 150.0
LEFT_OVER_S = 60.0
MEMORY_GROWTH_MB = 150
FEEDERS = ("plain-0", "transactional-0", "transactional-1")
# The expected reasons why a query may end: another driver uses its checkpoint, or a fault lasted
# longer than its timeouts.
EXPECTED = {
    "another driver's batch": (
        r"CONCURRENT_STREAM_LOG_UPDATE|was ended by others twice|"
        r"Multiple streaming queries are concurrently"
    ),
    "worker killed": (
        r"Python worker exited unexpectedly|EOFException|SocketException|Connection reset|"
        r"Broken pipe|AsynchronousCloseException"
    ),
    "slow start of Python": r"Python worker failed to connect back",
    "broker away for too long": (
        r"was not published: publishing batch \d+ as \S+ failed \d+ times|"
        r"(writing as|preparing to write for) \S+ failed for|cannot be (reached|read|asked)"
    ),
    "a task's transaction timed out": (
        r"tasks' transactions .* are no longer open|"
        r"INVALID_PRODUCER_EPOCH|PRODUCER_FENCED|INVALID_TXN_STATE"
    ),
}
STATE = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}
SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.log.level": "ERROR",
    "spark.driver.memory": "1g",
    # With only the JVM's first compiler, a driver starts in half the time.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    # Keep the whole offset log, which shows the batch of each record.
    "spark.sql.streaming.minBatchesToRetain": "100000",
}


# --- processes ----------------------------------------------------------------------------------


@dataclass
class Memory:
    """The memory use of a Python process over time, in MB."""

    role: str
    samples: list[float] = field(default_factory=list)

    @property
    def growth(self) -> float:
        """The growth after the first third of the samples. By then everything has been imported and
        used once.
        """
        return (
            self.samples[-1] - self.samples[len(self.samples) // 3]
            if len(self.samples) >= 6
            else 0.0
        )


class DriverProcess:
    """A driver and its descendants, which run in one session: its Python process, the JVM, and
    PySpark's daemon and workers.
    """

    def __init__(self, name: str, text: str, directory: Path) -> None:
        from helpers.spark_queries import spark_environment

        self.name = name
        self.diary = directory / f"{name}.diary"
        self.log = directory / f"{name}.log"
        scratch = directory / f"{name}.tmp"
        scratch.mkdir()
        self._scratch = scratch
        more = {
            "TMPDIR": str(scratch),
            "SPARK_LOCAL_DIRS": str(scratch),
            "_JAVA_OPTIONS": f"-Djava.io.tmpdir={scratch}",
        }
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "torture.spark_pipeline", "--driver", text],
                env={**spark_environment(), **more},
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self.started_ms = now_ms()
        self.memory: dict[int, Memory] = {}
        self.kills = 0

    @property
    def is_over(self) -> bool:
        return self.process.poll() is not None

    def rows(self) -> list[dict[str, Any]]:
        return list(judging.read_lines(self.diary)) if self.diary.exists() else []

    @property
    def progress_count(self) -> int:
        return sum(row["is"] == "progress" for row in self.rows())

    def members(self) -> dict[int, str]:
        """The process ids with their roles, which are python, jvm and worker."""
        from helpers.spark_queries import processes_of

        found: dict[int, str] = {}
        for pid in processes_of(self.process.pid):
            try:
                line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
            except OSError:
                continue
            if pid == self.process.pid:
                found[pid] = "python"
            elif b"pyspark" in line and b"-m pyspark" in line:
                found[pid] = "worker"
            elif b"java" in line and b"org.apache.spark" in line:
                found[pid] = "jvm"
        return found

    def strike(
        self, role: str, number: signal.Signals, chance: random.Random | None = None
    ) -> bool:
        """Send a signal to all processes of a role, or to a random one of them if there is a
        `chance`. Gives: False if no process has this role.
        """
        pids = sorted(pid for pid, found in self.members().items() if found == role)
        if chance is not None and pids:
            pids = [chance.choice(pids)]
        for pid in pids:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass
        return bool(pids)

    def strike_all(self, number: signal.Signals) -> None:
        from helpers.spark_queries import signal_all

        signal_all(self.process.pid, number)

    def measure(self) -> None:
        from helpers.processes import rss_mb

        for pid, role in self.members().items():
            if role != "jvm":
                try:
                    self.memory.setdefault(pid, Memory(role)).samples.append(rss_mb(pid))
                except OSError:
                    pass

    def bury(self) -> None:
        """Kill the processes that remain, and delete the driver's temporary files."""
        from helpers.spark_queries import kill_session

        kill_session(self.process)
        shutil.rmtree(self._scratch, ignore_errors=True)


# --- one round ----------------------------------------------------------------------------------


@dataclass
class Report:
    """What was done in a round, and its findings."""

    name: str
    seed: int
    plan: str
    findings: list[Finding] = field(default_factory=list)
    deeds: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)
    schedule: list[str] = field(default_factory=list)
    drivers: int = 0
    batches: int = 0
    records: int = 0
    aborted_rows: int = 0
    output: int = 0
    memory_mb: float = 0.0
    growth_mb: float = 0.0
    healing_s: float = 0.0

    def __str__(self) -> str:
        return (
            f"{self.name} (seed {self.seed}, {self.plan}): {self.records} records in "
            f"{self.batches} batches, {self.output} rows out, "
            f"{self.aborted_rows} of attempts that were aborted; {self.drivers} drivers; healed in "
            f"{self.healing_s:.0f} s; "
            f"Python up to {self.memory_mb:.0f} MB, growth {self.growth_mb:.0f} MB; "
            f"{len(self.findings)} findings\n"
            f"   deeds: {_listed(self.deeds)}\n   ends of queries: {_listed(self.failures)}"
            + (f"\n   {_listed(self.notes)}" if self.notes else "")
        )


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {what}" for what, count in sorted(counts.items())) or "none"


class Round:
    """A round: feeders and a sequence of drivers run, faults occur and then stop, and the output is
    checked. The broker may still have the data of earlier rounds.
    """

    def __init__(
        self,
        broker: LocalBroker,
        proxy: Any,
        number: int,
        seed: int,
        directory: Path,
        plan: str | None = None,
    ) -> None:
        self.broker, self.proxy, self.random = broker, proxy, random.Random(seed)
        self.plan = plan or PLANS[(seed + number) % len(PLANS)]
        self.name = f"round-{number}"
        self.prefix = f"torture-{seed}-{number}"
        self.directory = directory / self.name
        self.directory.mkdir(parents=True)
        self.checkpoint = self.directory / "checkpoint"
        self.sinks = [
            f"{self.prefix}-out-{index}" for index in range(2 if self.plan == SCATTERED else 1)
        ]
        self.layout: dict[str, int] = {}
        self.report = Report(self.prefix, seed, self.plan)
        self.driver: DriverProcess | None = None
        self.zombie: DriverProcess | None = None
        self.buried: list[DriverProcess] = []
        self.story: judging.Story | None = None
        self._feeders: dict[str, subprocess.Popen[bytes]] = {}
        self._incarnations: Counter[str] = Counter()
        self._later: list[tuple[float, str, Callable[[], None]]] = []
        self._dying: list[tuple[DriverProcess, float]] = []
        self._began = time.monotonic()
        self._doom: float | None = None
        self._life_s, self._life_batches = 0.0, 0
        # There are no faults until the driver has completed this number of batches, or until this
        # time. Otherwise a busy machine would make no progress.
        self._peace = (0, 0.0)
        self._progress: tuple[int, float] = (0, time.monotonic())
        self._clients: dict[int, bytes] = {}
        self._lock = threading.Lock()
        changelog = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
        self._state = {changelog: self.random.choice(("true", "false"))}

    @property
    def servers(self) -> str:
        return str(self.proxy.bootstrap_servers)

    def note(self, deed: str, more: str = "") -> None:
        """Count an action, and add it to the schedule, which is also written to disk
        immediately.
        """
        line = f"{time.monotonic() - self._began:8.2f} {deed}{' ' if more else ''}{more}"
        with self._lock:
            self.report.deeds[deed] += 1
            self.report.schedule.append(line)
            with (self.directory / "schedule").open("a") as file:
                file.write(line + "\n")

    def find(self, kind: str, text: str) -> None:
        with self._lock:
            self.report.findings.append(Finding(kind, text))

    def run(self, seconds: float) -> Report:
        from helpers.e2e_clients import create_named_topic

        self._spread(f"{self.prefix}-in-a", 3)
        for sink in self.sinks:
            create_named_topic(self.servers, sink, PARTITIONS)
        followers = [Follower(self.servers, sink, committed=True) for sink in self.sinks]
        self._began = time.monotonic()
        self.calm()
        try:
            for slot in FEEDERS:
                self._feed(slot)
            self._afterwards(
                seconds * 0.3, "second topic", lambda: self._spread(f"{self.prefix}-in-b", 2)
            )
            self._afterwards(
                seconds * 0.5, "more partitions", lambda: self._spread(f"{self.prefix}-in-a", 5)
            )
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                self._see_to_driver()
                self._wait(self.random.uniform(0.2, 2.0))
                if self._progress[0] >= self._peace[0] or time.monotonic() > self._peace[1]:
                    self._disturb()
            began = time.monotonic()
            self.heal()
            self.report.healing_s = time.monotonic() - began
            self._await(
                lambda: all(self._has_followed(follower) for follower in followers),
                "a reader does not come to the end of the output",
            )
        finally:
            self.calm()
            self._end_all()
            for follower in followers:
                follower.stop()
        self.judge(followers)
        return self.report

    # --- the input ---

    def _spread(self, topic: str, partitions: int) -> None:
        """Create the topic, or add partitions to it, and write the new layout for the feeders."""
        from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

        admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        while True:
            if topic in self.layout:
                (future,) = admin.create_partitions([NewPartitions(topic, partitions)]).values()
            else:
                (future,) = admin.create_topics([NewTopic(topic, partitions, 1)]).values()
            try:
                future.result(20)
            except (
                Exception
                # the broker may be down, or the request may have succeeded in spite of the error
            ) as error:
                if not re.search(r"ALREADY_EXISTS|INVALID_PARTITIONS", str(error)):
                    continue
            break
        self.layout[topic] = partitions
        fresh = self.directory / "layout.fresh"
        fresh.write_text(json.dumps(self.layout))
        fresh.replace(self.directory / "layout.json")

    def _feed(self, slot: str) -> None:
        self._incarnations[slot] += 1
        session = f"{slot}.{self._incarnations[slot]}"
        path = self.directory / f"feeder-{session}"
        command = [
            sys.executable,
            "-m",
            "torture.spark_pipeline",
            "--feeder",
            slot.partition("-")[0],
            self.servers,
            self.prefix,
            slot,
            session,
        ]
        self._feeders[slot] = subprocess.Popen([*command, str(path)], cwd=ROOT, env=environment())

    # --- drivers ---

    def _text(self, *, finish: bool = False) -> tuple[str, dict[str, Any], str]:
        """The name of the next driver, its parameters, and the same parameters as JSON. `finish`
        makes a driver that ends when it has read all input.
        """
        from torture.spark_programs import Drive, drawn

        name = f"driver-{self.report.drivers + 1}"
        task = Drive(
            self.servers,
            self.plan,
            f"{self.prefix}-in-.*",
            self.sinks,
            str(self.checkpoint),
            str(self.directory / f"{name}.diary"),
            finish=finish,
            seed=self.random.randrange(1 << 30),
            settings={**SETTINGS, **STATE, **self._state},
            **drawn(self.random),
        )
        if finish:
            task.source["maxOffsetsPerTrigger"] = str(self.random.choice((1500, 5000)))
        return name, asdict(task), task.to_json()

    def _start_driver(self) -> None:
        name, task, text = self._text()
        self.report.drivers += 1
        self.driver = DriverProcess(name, text, self.directory)
        self.note("driver started", f"{name} {task['cores']} {task['source']} {task['sink']}")
        # Some drivers end before their first batch, and some run for a long time.
        kind = self.random.random()
        self._doom = time.monotonic() + self.random.uniform(1, 12) if kind < 0.1 else None
        self._life_s, self._life_batches = (
            (self.random.uniform(60, 90), 60) if kind > 0.9 else (40, self.random.randint(1, 10))
        )
        self._peace = (0, 0.0)
        self._progress = (0, time.monotonic())

    def _see_to_driver(self) -> None:
        """Start a driver if none is running, count its progress, and end it when its time is up."""
        if self.driver is None:
            self._start_driver()
            return
        driver = self.driver
        if driver.is_over:
            self._ended(driver)
            return
        count = driver.progress_count
        if count > self._progress[0]:
            self._progress = (count, time.monotonic())
        if count and self._doom is None:
            self._doom = time.monotonic() + self._life_s
        if time.monotonic() - self._progress[1] > STALLED_S:
            self.find("stalled", f"{driver.name} makes no progress for {STALLED_S:.0f} s")
            self._doom = 0.0
        if self._doom is not None and (
            time.monotonic() > self._doom or count >= self._life_batches
        ):
            self._strike(driver)

    def _ended(self, driver: DriverProcess) -> None:
        """Record that the driver has ended, either by itself or because of a fault at a frame."""
        self.note("driver ended", f"{driver.name}: {driver.process.returncode}")
        self._dismiss(driver)

    def _tell_ends(self, driver: DriverProcess) -> None:
        """Count the reasons for which the driver's queries ended. An end without an expected reason
        is a finding.
        """
        rows = driver.rows()
        for row in rows:
            if row["is"] == "failed":
                kind = next(
                    (kind for kind, pattern in EXPECTED.items() if re.search(pattern, row["text"])),
                    None,
                )
                if kind is None and not driver.kills:
                    self.find("unexplained", f"{driver.name} failed: {row['text'][:600]}")
                self.report.failures[kind or "killed"] += 1
            elif row["is"] == "stopped":
                self.report.deeds["query stopped"] += 1
        if (
            driver.process.returncode not in (0, -9, -15)
            and not driver.kills
            and not any(row["is"] == "failed" for row in rows)
        ):
            said = driver.log.read_text(errors="replace")
            if not any(re.search(pattern, said) for pattern in EXPECTED.values()):
                self.find(
                    "unexplained",
                    f"{driver.name} ended with {driver.process.returncode}: see {driver.log}",
                )

    def _dismiss(self, driver: DriverProcess) -> None:
        """Remove this driver from its place as the current driver or as the zombie. Its processes
        get some time to end by themselves.
        """
        if driver is self.driver:
            self.driver = None
        if driver is self.zombie:
            self.zombie = None
        self._dying.append((driver, time.monotonic() + LEFT_OVER_S))

    def _watch_dying(self, *, wait: bool = False) -> None:
        """Check that the processes of dismissed drivers end in time. A process that remains is a
        finding, and is killed.
        """
        for entry in list(self._dying):
            driver, until = entry
            while wait and driver.members() and time.monotonic() < until:
                time.sleep(0.2)
            left = driver.members()
            if left and time.monotonic() < until:
                continue
            self._dying.remove(entry)
            if left:
                self.find(
                    "left behind",
                    f"of {driver.name} after {LEFT_OVER_S:.0f} s: {sorted(left.values())}",
                )
            driver.bury()
            self.buried.append(driver)
            self._tell_ends(driver)

    def _strike(self, driver: DriverProcess) -> None:
        """End the driver in one of many ways."""
        deeds = [
            "all killed",
            "all killed",
            "jvm killed",
            "jvm ended",
            "python killed",
            "python ended",
        ]
        if self.zombie is None:
            deeds += ["replaced", "replaced"]
        self._strike_by(driver, self.random.choice(deeds))

    def _strike_by(self, driver: DriverProcess, deed: str) -> None:
        """Harm a driver: stop it, so that a successor starts and it continues later as a zombie, or
        kill or terminate some of its processes.
        """
        self.note(f"driver: {deed}", driver.name)
        driver.kills += 1
        if deed == "replaced":
            driver.strike_all(signal.SIGSTOP)
            self.zombie, self.driver = driver, None
            pause = self.random.uniform(6, 40)
            self._afterwards(pause, "zombie wakes", lambda: driver.strike_all(signal.SIGCONT))
            self._afterwards(
                pause + self.random.uniform(3, 25),
                "zombie killed",
                lambda: self._end_zombie(driver),
            )
            return
        if deed == "all killed":
            driver.bury()
        elif deed in ("jvm killed", "jvm ended"):
            driver.strike("jvm", signal.SIGKILL if deed == "jvm killed" else signal.SIGTERM)
        else:
            driver.strike("python", signal.SIGKILL if deed == "python killed" else signal.SIGTERM)
        self._dismiss(driver)

    def _end_zombie(self, driver: DriverProcess) -> None:
        if driver is self.zombie:
            driver.bury()
            self._dismiss(driver)

    # --- chaos ---

    def _afterwards(self, seconds: float, what: str, act: Callable[[], None]) -> None:
        self._later.append((time.monotonic() + seconds, what, act))

    def _wait(self, seconds: float) -> None:
        """Wait for some time, and carry out the actions that become due meanwhile."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(left, 0.1))
            for entry in sorted(self._later, key=lambda entry: entry[0]):
                if entry[0] <= time.monotonic():
                    self._later.remove(entry)
                    self.note(entry[1])
                    entry[2]()
            for slot, feeder in list(self._feeders.items()):
                if feeder.poll() is not None:
                    self.report.deeds["feeder ended by itself"] += 1
                    self._feed(slot)
        zombie = self.zombie
        if zombie is not None and zombie.is_over:
            self._ended(zombie)
        self._watch_dying()
        for driver in (self.driver, self.zombie):
            if driver is not None:
                driver.measure()
        process = self.broker.process
        if (process is None or process.poll() is not None) and not any(
            what == "broker restarted" for _, what, _ in self._later
        ):
            self.find("crashed", "the broker died:\n" + "".join(self.broker.output[-20:]))
            self.broker.kill()
            self.broker.restart()

    def _disturb(self) -> None:
        if not self._progress[0] and self.random.random() < 0.75:
            # Usually inject no fault before the first batch, since a start is slow enough without
            # faults.
            return
        deed = self.random.choice(
            (
                "broker killed",
                "broker paused",
                "feeder killed",
                "connections cut",
                "driver paused",
                *["worker killed"] * 3,
                *["frame"] * 8,
                *["nothing"] * 4,
            )
        )
        if deed != "nothing":
            self._peace = (
                self._progress[0] + self.random.choice((0, 1, 1, 2)),
                time.monotonic() + 15,
            )
        if deed == "broker killed":
            self.note(deed)
            self.broker.kill()
            time.sleep(self.random.choice((0.0, 0.0, self.random.uniform(0, 4))))
            self.broker.restart()
        elif deed == "broker paused":
            self._pause_broker(self.random.choice((0.2, 2.0, self.random.uniform(3, 8))))
        elif deed == "feeder killed":
            slot = self.random.choice(FEEDERS)
            self.note(deed, slot)
            self._feeders[slot].kill()
            self._feeders[slot].wait()
            self._feed(slot)
        elif deed == "connections cut":
            self.note(deed)
            self.proxy.cut_all()
        elif self.driver is not None and not self.driver.is_over:
            self._disturb_driver(self.driver, deed)

    def _pause_broker(self, seconds: float) -> None:
        self.note("broker paused", f"{seconds:.1f} s")
        os.kill(self.broker.pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(self.broker.pid, signal.SIGCONT)

    def _disturb_driver(self, driver: DriverProcess, deed: str) -> None:
        if deed == "worker killed":
            if driver.strike("worker", signal.SIGKILL, self.random):
                driver.kills += 1
                self.note(deed, driver.name)
        elif deed == "driver paused":
            seconds = self.random.choice((0.5, 2.0, self.random.uniform(3, 12)))
            self.note(deed, f"{driver.name} {seconds:.1f} s")
            driver.strike_all(signal.SIGSTOP)
            self._afterwards(seconds, "driver goes on", lambda: driver.strike_all(signal.SIGCONT))
        elif deed == "frame":
            self._arm(driver)

    # --- harm at frames ---

    def calm(self) -> None:
        """Remove all hooks except the hook that records which client uses each connection."""
        self.proxy.clear()
        self.proxy.on_request(None, self._know)

    def _know(self, frame: Any) -> None:
        if frame.connection not in self._clients:
            size = int.from_bytes(frame.data[8:10], "big", signed=True)
            self._clients[frame.connection] = frame.data[10 : 10 + max(0, size)]

    def _arm(self, driver: DriverProcess) -> None:
        """Set a fault at a random frame of the sink or of the source."""
        from helpers import kafka_proxy as wire

        from torture.spark_programs import SINK_ID, SOURCE_ID

        of_sink = (
            wire.INIT_PRODUCER_ID,
            wire.OFFSET_FETCH,
            wire.OFFSET_COMMIT,
            wire.ADD_PARTITIONS_TO_TXN,
            wire.PRODUCE,
            wire.PRODUCE,
            wire.ADD_OFFSETS_TO_TXN,
            wire.TXN_OFFSET_COMMIT,
            wire.END_TXN,
            wire.END_TXN,
        )
        of_source = (wire.LIST_OFFSETS, wire.FETCH, wire.METADATA)
        is_sink = self.random.random() < 0.8
        api_key = self.random.choice(of_sink if is_sink else of_source)
        client = (SINK_ID if is_sink else SOURCE_ID).encode()
        response, after = self.random.random() < 0.5, self.random.choice((0, 0, 1, 3))
        harm = self.random.choice(
            (
                "cut",
                "cut",
                "pass then cut",
                "swallow",
                "all killed",
                "all killed",
                "jvm killed",
                "worker killed",
                "broker killed",
                "stopped",
            )
        )
        message = "answer" if response else "request"
        where = f"{harm} at {message} {after} of {wire_name(api_key)} ({client.decode()})"
        self.calm()
        lock, count = threading.Lock(), 0

        def hook(frame: Any) -> Any:
            nonlocal count
            if self._clients.get(frame.connection) != client:
                return wire.PASS
            with lock:
                count += 1
                if count != after + 1:
                    return wire.PASS
            self.note(f"frame: {harm}", where)
            return self._harm(driver, harm)

        (self.proxy.on_response if response else self.proxy.on_request)(api_key, hook)

    def _harm(self, driver: DriverProcess, harm: str) -> Any:
        """Cause the fault, in the proxy's thread that forwards the frame. Gives: what the proxy
        does with the frame.
        """
        from helpers import kafka_proxy as wire

        if harm == "cut":
            return wire.CUT
        if harm == "pass then cut":
            return wire.PASS_THEN_CUT
        if harm == "swallow":
            return wire.SWALLOW
        driver.kills += harm not in ("broker killed", "stopped")
        if harm == "all killed":
            driver.strike_all(signal.SIGSTOP)
            driver.strike_all(signal.SIGKILL)
        elif harm == "jvm killed":
            driver.strike("jvm", signal.SIGKILL)
        elif harm == "worker killed":
            driver.strike("worker", signal.SIGKILL)
        elif harm == "broker killed":
            process = self.broker.process
            if process is not None:
                self._afterwards(0, "broker restarted", self._restart_broker)
                process.kill()
        else:
            driver.strike_all(signal.SIGSTOP)
            self._afterwards(7, "driver goes on", lambda: driver.strike_all(signal.SIGCONT))
        return wire.PASS if harm == "stopped" else wire.CUT

    def _restart_broker(self) -> None:
        self.broker.kill()
        self.broker.restart()

    # --- healing ---

    def heal(self) -> None:
        """End all faults. The feeders end, all transactions are committed or aborted, and a last
        query reads to the end of the input.
        """
        self.note("healing")
        self.calm()
        for _, what, act in self._later:
            if what in ("driver goes on", "broker restarted", "zombie wakes"):
                act()
        self._later.clear()
        for process in self._feeders.values():
            process.terminate()
        for slot, feeder in self._feeders.items():
            try:
                feeder.wait(90)
            except subprocess.TimeoutExpired:
                self.find("stuck", f"{slot} does not end")
                feeder.kill()
                feeder.wait()
        self._feeders.clear()
        for driver in (self.zombie, self.driver):
            if driver is not None:
                driver.bury()
                self._dismiss(driver)
        self._watch_dying(wait=True)
        self._await(lambda: self._is_decided(*self.layout), "an input transaction stays open")
        for _ in range(4):
            if self._finish():
                break
        else:
            self.find("stuck", "the last query does not come to its end")
        self._await(lambda: self._is_decided(*self.sinks), "an output transaction stays open")

    def _finish(self) -> bool:
        """Run a last driver that reads the rest of the input, and return whether it ended without
        an error.
        """
        name, _, text = self._text(finish=True)
        self.report.drivers += 1
        driver = self.driver = DriverProcess(name, text, self.directory)
        self.note("last driver started", name)
        end = time.monotonic() + HEAL_S
        while not driver.is_over and time.monotonic() < end:
            time.sleep(0.5)
            driver.measure()
        if driver.is_over and driver.process.returncode == 0:
            self._dismiss(driver)
            self._watch_dying(wait=True)
            return True
        if driver.is_over:
            self._ended(driver)
        else:
            self.find("stuck", f"{name} does not come to the end within {HEAL_S:.0f} s")
            driver.bury()
            self._dismiss(driver)
        self._watch_dying(wait=True)
        return False

    def _await(self, probe: Callable[[], bool], complaint: str) -> None:
        end = time.monotonic() + 90
        while not probe():
            if time.monotonic() > end:
                self.find("stuck", complaint)
                return
            time.sleep(0.2)

    def _is_decided(self, *topics: str) -> bool:
        return all(
            log.last_stable_offset == log.high_watermark
            for topic in topics
            for log in self._fetched(topic)
        )

    def _fetched(self, topic: str) -> list[Any]:
        from helpers.e2e_wire import Wire
        from sim import wire

        with Wire(self.broker.port) as connection:
            targets = [(topic, index, 0) for index in range(self.layout.get(topic, PARTITIONS))]
            answer = connection.call(
                wire.fetch(
                    targets, committed=True, max_wait_ms=0, max_bytes=1, partition_max_bytes=1
                )
            )
        return list(answer.partitions)

    def _has_followed(self, follower: Follower) -> bool:
        last: Counter[int] = Counter()
        for row in self._read(follower.topic, committed=True):
            last[row.partition] = max(last[row.partition], row.offset + 1)
        return all(follower.positions[partition] >= end for partition, end in last.items())

    def _end_all(self) -> None:
        for process in self._feeders.values():
            process.kill()
            process.wait()
        for driver in [self.driver, self.zombie, *(driver for driver, _ in self._dying)]:
            if driver is not None:
                driver.bury()
                self.buried.append(driver)

    # --- judgement ---

    def _read(self, topic: str, *, committed: bool) -> list[judging.Row]:
        from helpers.e2e_clients import read_all

        rows = read_all(self.broker.bootstrap_servers, topic, committed=committed, timeout_s=120)
        return [
            judging.Row(
                topic,
                row.partition,
                row.offset,
                (row.value or b"").decode(),
                (row.key or b"").decode(),
            )
            for row in rows
        ]

    def judge(self, followers: list[Follower]) -> None:
        """Collect the input, the output and what the readers saw, and check them."""
        forbidden, promised = judging.read_diaries(self.directory.glob("feeder-*"))
        story = self.story = judging.Story(
            plan=self.plan,
            input=[row for topic in self.layout for row in self._read(topic, committed=True)],
            batches=judging.read_offset_log(self.checkpoint / "offsets"),
            committed=[row for topic in self.sinks for row in self._read(topic, committed=True)],
            everything=[row for topic in self.sinks for row in self._read(topic, committed=False)],
            group_offset=self._group_offset(),
            forbidden=forbidden,
            promised=promised,
        )
        keys = {(row.topic, row.partition, row.offset): row.key for row in story.committed}
        for follower in followers:
            for partition, offset, value, _ in follower.rows:
                key = keys.get((follower.topic, partition, offset), "")
                story.seen.append(
                    judging.Row(follower.topic, partition, offset, value.decode(), key)
                )
            for text in follower.errors:
                self.find("refused", f"{follower.name}: {text}")
        self.report.findings += judging.judge(story)
        for path in sorted((self.checkpoint / "barnabas-spool").rglob("*")):
            if path.is_file():
                self.find(
                    "spool",
                    f"{path.relative_to(self.checkpoint)} is left, and its batch is committed",
                )
        for line in self.broker.output:
            if "Traceback" in line or " CRITICAL " in line or " ERROR " in line:
                self.find("crashed", line.strip())
        self._judge_memory()
        report = self.report
        report.notes += story.notes
        report.records, report.batches, report.output = (
            len(story.input),
            len(story.batches),
            len(story.committed),
        )
        report.aborted_rows = len(story.everything) - len(story.committed)

    def _judge_memory(self) -> None:
        for driver in self.buried:
            for memory in driver.memory.values():
                self.report.memory_mb = max(self.report.memory_mb, *memory.samples)
                self.report.growth_mb = max(self.report.growth_mb, memory.growth)
                if memory.growth > MEMORY_GROWTH_MB:
                    self.find(
                        "memory",
                        f"a {memory.role} of {driver.name} grew by {memory.growth:.0f} MB: "
                        f"{memory.samples}",
                    )

    def _group_offset(self) -> int | None:
        """The highest offset that the query's group has committed for any partition."""
        from confluent_kafka import TopicPartition
        from helpers.e2e_clients import consumer

        query_id = json.loads((self.checkpoint / "metadata").read_text().splitlines()[-1])["id"]
        client = consumer(self.broker.bootstrap_servers, f"barnabas-spark-{query_id}")
        try:
            places = [
                TopicPartition(sink, index) for sink in self.sinks for index in range(PARTITIONS)
            ]
            found = [place.offset for place in client.committed(places, 20) if place.offset >= 0]
        finally:
            client.close()
        return max(found, default=None)


def wire_name(api_key: int) -> str:
    """Return the name that kafka_proxy's constants have for an API key, to be written into the
    schedule.
    """
    from helpers import kafka_proxy as wire

    names: dict[str, Any] = vars(wire)
    return next(
        name
        for name, value in names.items()
        if name.isupper() and isinstance(value, int) and value == api_key
    )


# --- all rounds ---------------------------------------------------------------------------------


def torture(
    seconds: float, *, seed: int, directory: Path, round_s: float = ROUND_S, plan: str | None = None
) -> Iterator[Report]:
    """Run rounds until the time is up, all on one broker. A round without findings leaves only the
    broker's data.
    """
    from helpers.kafka_proxy import KafkaProxy

    end = time.monotonic() + seconds
    number = 0
    loop_watchdog.start_watching()
    with KafkaProxy() as proxy:
        settings = {
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}",
            "group.initial.rebalance.delay.ms": "0",
            "transaction.two.phase.commit.enable": "true",
        }
        with LocalBroker(directory / "data", settings=settings) as broker:
            proxy.broker_port = broker.port
            while (left := end - time.monotonic()) > 0:
                number += 1
                harm = Round(broker, proxy, number, seed + number - 1, directory, plan)
                report = harm.run(min(left, round_s))
                report.findings += [Finding("loop", fault) for fault in loop_watchdog.take_faults()]
                broker.output.clear()
                yield report
                if not report.findings:
                    shutil.rmtree(harm.directory, ignore_errors=True)


def main() -> int:
    """0: no findings."""
    parser = argparse.ArgumentParser(
        prog="python -m torture.spark_pipeline",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--minutes",
        type=float,
        default=3.0,
        help="after so many no further round begins; healing counts, too",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=None,
        help="of plans, options and deeds; how the processes meet them is not repeatable",
    )
    parser.add_argument(
        "--plan", choices=PLANS, help="one plan for all rounds (default: one after the other)"
    )
    parser.add_argument(
        "--round",
        type=float,
        default=ROUND_S,
        metavar="SECONDS",
        help=f"how long a round does harm ({ROUND_S:.0f})",
    )
    parser.add_argument(
        "--directory",
        type=Path,
        help="where all is kept (default: a new one below the system's temporary directory)",
    )
    parser.add_argument("--driver", help=argparse.SUPPRESS)
    parser.add_argument("--feeder", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.driver:
        from torture.spark_programs import drive

        return drive(options.driver)
    if options.feeder:
        from torture.spark_programs import feed

        feed(*options.feeder)
        return 0
    return _rounds(options)


def _rounds(options: argparse.Namespace) -> int:
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 30)
    directory = options.directory or Path(tempfile.mkdtemp(prefix="barnabas-spark-torture-"))
    found = False
    for report in torture(
        options.minutes * 60,
        seed=seed,
        directory=directory,
        round_s=options.round,
        plan=options.plan,
    ):
        print(report, flush=True)
        if report.findings:
            found = True
            print(
                f"   seed {report.seed}; what was done, by seconds:",
                *report.schedule,
                sep="\n      ",
            )
            for finding in report.findings[:40]:
                print("   FOUND", *finding, flush=True)
            print(f"   all that was written is kept in {directory}", flush=True)
    if not found and options.directory is None:
        shutil.rmtree(directory, ignore_errors=True)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

"""A broker for a test or a script, in one line.

    with LocalBroker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})

The daemon runs in a separate process, on a free port of 127.0.0.1, with a directory that is removed
at the end. The daemon ends with the process that started it. This holds even if that process is
killed, since the daemon's standard input is then closed (`--stop-at-end-of-input`), and on Linux
also if a child that it has forked keeps the input open (`--stop-with-parent`).

The first daemon of a process is started by the command. The next ones are forked from a process
that has imported all modules (`forked_daemon.py`), which takes some milliseconds.

Modules of the standard library that a start does not need are imported in the functions that use
them, since a short script has to load each module that this one imports.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterable, Mapping
from types import TracebackType

from barnabas.free_ports import new_ports

TYPE_CHECKING = False  # type checkers treat this as true; `typing` is not loaded at run time
if TYPE_CHECKING:
    from typing import Any, ClassVar, TypeAlias

    from barnabas.admin import Admin, NewTopic, OpenTransaction
    from barnabas.control import Control
    from barnabas.forked_daemon import ForkedProcess

    Process: TypeAlias = subprocess.Popen[str] | ForkedProcess

_CONTROL = re.compile(r"TEST CONTROL on (http://\S+):? ")
# The time is read from the daemon's output, since a broker that has ended does not answer requests.
_AHEAD = re.compile(r"the test's clock is (-?\d+) ms ahead ")
_READY = re.compile(r"listens on (\S+) \(")
_IN_USE = re.compile(r"port \d+ on \S+ is in use")
_TRIES_OF_PORTS = 5
_MEMORY_DIRECTORY = "/dev/shm"
# If less memory is free, the disk is used: /dev/shm of a container has 64 MiB by default.
_ENOUGH_MEMORY_BYTES = 1 << 30
_KEPT_LINES = 1000
_RENEWED_WITHIN_S = 5.0
CERTIFICATES = ("client", "broker", "ca")
_INTERNAL_PARTITIONS = (
    "offsets.topic.num.partitions",
    "transaction.state.log.num.partitions",
    "share.coordinator.state.topic.num.partitions",
)
_COMMAND = ("-P", "-m", "barnabas")

Topics = Iterable[str] | Mapping[str, int | Mapping[str, object]]


class BrokerStartError(RuntimeError):
    """The daemon did not start; the message contains its output."""


class BrokerNotRunningError(RuntimeError):
    """The call needs a daemon that is running, or one that has been started at least once."""


class LocalBroker:
    """The daemon on a free port of 127.0.0.1, as a context manager (`with` or `async with`).

    Takes:  data_dir: the data directory, which is kept after the end; without it a temporary
            directory is used, in memory if the machine has room, and removed with the broker.
            settings: the broker's settings, by Kafka's names; the internal topics of one broker in
            a temporary directory have one partition unless they set another number. topics: the
            topics to create at the start, as names, or {name: partitions}, or {name:
            {"partitions": 4, "replication.factor": 3, "cleanup.policy": "compact"}}. port: 0 for a
            free port, which a restart keeps. control: enables `LocalBroker.control`, for faults
            and time on demand. brokers: the number of brokers, each on a separate port, over one
            directory. in_memory: False forces a temporary directory on the disk. users: {name:
            password}; clients then have to authenticate by SASL (PLAIN, SCRAM-SHA-256 or
            SCRAM-SHA-512). tls: the broker uses TLS, with a certificate signed by `ca_file` (extra
            `tls`). emulate: the release of Apache Kafka to emulate, "3.9" or "4.3". All parameters
            except data_dir are keyword-only.
    Raises: BrokerStartError, with the daemon's output, if it does not start; AdminError if a topic
            cannot be created; BrokerNotRunningError for calls that need a running broker, and for
            its address before the first start; ValueError for invalid arguments.
    """

    # Arguments for the Python interpreter that run the command `barnabas`. With other arguments
    # than these, each daemon is started by them: none is forked.
    daemon: ClassVar[tuple[str, ...]] = _COMMAND

    def __init__(
        self,
        data_dir: str | os.PathLike[str] | None = None,
        *,
        settings: Mapping[str, object] | None = None,
        topics: Topics = (),
        port: int = 0,
        control: bool = False,
        brokers: int = 1,
        in_memory: bool = True,
        users: Mapping[str, str] | None = None,
        tls: bool = False,
        emulate: str = "",
    ) -> None:
        for name, number in (("port", port), ("brokers", brokers)):
            if not isinstance(number, int):
                raise TypeError(f"{name}={number!r}: it has to be a whole number")
        if brokers < 1:
            raise ValueError(f"brokers={brokers}: it has to be at least 1")
        if settings is not None and not isinstance(settings, Mapping):
            raise TypeError(
                f'settings={settings!r}: give a dict of values by name, as {{"log.retention.ms": '
                "-1}"
            )
        _check_topics(topics)
        self._is_temporary = data_dir is None
        self._in_memory = in_memory
        self._data_dir = "" if data_dir is None else os.fspath(data_dir)
        self.settings = {name: _text(value) for name, value in (settings or {}).items()}
        self.topics = topics
        _check_users(users)
        self.users = dict(users or {})
        self._has_tls = tls
        self._emulated = emulate
        self._ports = [port + at if port else 0 for at in range(brokers)]
        self.output: list[str] = []
        self.process: Process | None = None
        self._reader: threading.Thread | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._listens = False
        self._has_topics = False
        self._is_controlled = control
        self._control_url = ""
        self._clock_ahead_ms = 0
        # Whether the process is as any other: then it may run another test's broker at the end.
        self._may_renew = not (
            control or users or tls or emulate or settings or data_dir is not None or brokers > 1
        )

    @property
    def control(self) -> Control:
        """The client of the test control; needs `LocalBroker(control=True)`.

        Raises: BrokerNotRunningError.
        """
        if not self._is_controlled:
            raise RuntimeError(
                "faults, the clock, power loss and the journal of requests need test control, "
                "which this broker was started without. Make it with LocalBroker(control=True); "
                "for the fixture fresh_barnabas_broker write @pytest.mark.barnabas(control=True), "
                'for barnabas_broker return {"control": True} from a fixture barnabas_options.'
            )
        self._running()
        return self._control()

    def _control(self) -> Control:
        from barnabas.control import Control

        return Control(self._control_url)

    @property
    def data_dir(self) -> str:
        """The data directory; a temporary one is created on first use."""
        if not self._data_dir:
            self._data_dir = temporary_directory(self._in_memory)
            # Remove the directory even if the broker is never started, or is used without `with`.
            weakref.finalize(self, _remove_if_ours, self._data_dir, os.getpid())
        return self._data_dir

    @property
    def ports(self) -> list[int]:
        """The port of each broker. A restart keeps them.

        Raises: BrokerNotRunningError before the first start, unless the ports were given.
        """
        if not all(self._ports):
            raise BrokerNotRunningError(
                "the broker was not started: it has no port yet (or give LocalBroker(port=…))"
            )
        return list(self._ports)

    @property
    def port(self) -> int:
        """The port of the first broker. Raises: BrokerNotRunningError, as `ports` does."""
        return self.ports[0]

    @property
    def bootstrap_servers(self) -> str:
        """The addresses for a client's `bootstrap.servers`. Raises: BrokerNotRunningError, as
        `ports` does.
        """
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)

    @property
    def pid(self) -> int:
        """The daemon's process id. Raises: BrokerNotRunningError.

        After: the process runs no other broker, since somebody may send it signals, or has changed
               its limits.
        """
        self._may_renew = False
        return self._running().pid

    def _running(self) -> Process:
        """The process of the running daemon. Raises: BrokerNotRunningError, with the last log lines
        if the daemon has ended by itself.
        """
        if self.process is None:
            raise BrokerNotRunningError("the broker does not run: it was not started, or has ended")
        if (code := self.process.poll()) is not None:
            raise BrokerNotRunningError(
                f"the broker does not run: its process ended with {code}:\n{self.log_tail(20)}"
            )
        return self.process

    @property
    def is_running(self) -> bool:
        """Whether the daemon runs (or is paused)."""
        return self.process is not None and self.process.poll() is None

    # --- start and end ---------------------------------------------------------------------------

    def start(self, timeout_s: float = 30.0) -> LocalBroker:
        """Start the daemon, wait until it listens, and create its topics."""
        if self.process is not None:
            raise RuntimeError("the broker was started already: stop it first, or use restart()")
        self._write_users()
        self._make_certificates()
        has_ports = any(self._ports)
        for tries_left in reversed(range(_TRIES_OF_PORTS)):
            if not has_ports:
                self._ports = new_ports(len(self._ports))
            if self._listens_within(timeout_s):
                break
            self.kill()
            # another process has taken the free port in the meantime
            if tries_left and not has_ports and _IN_USE.search(self.log_tail(50)):
                continue
            self._remove_directory()
            if not has_ports:
                self._ports = [0] * len(self._ports)
            raise BrokerStartError("the broker did not start:\n" + self.log_tail(50))
        topics = list(_new_topics(self.topics)) if self.topics else []
        if topics:
            try:
                with self.admin() as admin:
                    # A test may have changed topics since the first start, so a restart only
                    # creates missing ones.
                    admin.create_topics(topics, keep_different=self._has_topics)
                self._has_topics = True
            except BaseException:
                self.kill()
                self._remove_directory()
                raise
        return self

    def _listens_within(self, timeout_s: float) -> bool:
        """Start the daemon's process, and wait until it listens. Gives: whether it does."""
        self.process = self._new_process()
        self._listens, decided = False, threading.Event()
        self._reader = threading.Thread(
            target=self._read, args=(self.process, decided), daemon=True
        )
        self._reader.start()
        decided.wait(timeout_s)
        return self._listens

    def _new_process(self) -> Process:
        """Start the daemon's process: fork it, or run the command."""
        environment = {**os.environ, "PYTHONPATH": _source_root(), "PYTHONUNBUFFERED": "1"}
        if self.daemon == _COMMAND and hasattr(os, "fork"):
            from barnabas.forked_daemon import FORKING

            process = FORKING.start(self._arguments(), environment, may_renew=self._may_renew)
            if process is not None:
                return process
        return subprocess.Popen(
            [sys.executable, *self.daemon, *self._arguments()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=environment,
            start_new_session=True,
        )

    def _arguments(self) -> list[str]:
        """The arguments of the command, with this broker's ports, directory and settings."""
        command = [
            *("start", "--port", ",".join(map(str, self._ports)), "--data-dir", self.data_dir),
            *("--stop-at-end-of-input", "--stop-with-parent"),
        ]
        if len(self._ports) > 1:
            command += ["--brokers", str(len(self._ports))]
        if self._is_temporary:
            command.append("--remove-data-at-end-of-input")
        if self._is_controlled:
            command += ["--test-control", "0", "--test-clock-ahead", str(self._clock_ahead_ms)]
        settings = dict(self.settings)
        if self.users or self._has_tls:
            settings.setdefault("listeners", f"{self.security_protocol}://127.0.0.1:0")
        if self._has_small_topics:
            for name in _INTERNAL_PARTITIONS:
                settings.setdefault(name, "1")
        if self._emulated:
            settings["barnabas.emulate"] = self._emulated
        if self.users:
            settings["barnabas.users.file"] = self._users_file
        if self._has_tls:
            settings["ssl.keystore.location"] = self.certificate_file("broker")
            settings["ssl.truststore.location"] = self.ca_file
        for name, value in settings.items():
            command += ["--set", f"{name}={value}"]
        return command

    @property
    def _has_small_topics(self) -> bool:
        """Whether the internal topics have one partition instead of 50, whose files would take
        longer than the rest of a short test. With several brokers, several coordinators are wanted.
        """
        return self._is_temporary and len(self._ports) == 1 and not self._emulated

    @property
    def security_protocol(self) -> str:
        """The protocol for a client's `security.protocol`."""
        if self.users:
            return "SASL_SSL" if self._has_tls else "SASL_PLAINTEXT"
        return "SSL" if self._has_tls else "PLAINTEXT"

    @property
    def ca_file(self) -> str:
        """The file for a client's `ssl.ca.location` or `ssl.truststore.location`, as PEM; needs
        `tls=True`.
        """
        return self.certificate_file("ca")

    def certificate_file(self, name: str = "client") -> str:
        """A PEM file with a certificate and its key, for `ssl.client.auth`; needs `tls=True`.

        Takes:  name, one of CERTIFICATES. The files exist after the first start.
        Raises: ValueError for another name.
        """
        if not self._has_tls:
            raise RuntimeError("a broker without certificates: start it by LocalBroker(tls=True)")
        if name not in CERTIFICATES:
            raise ValueError(f"no certificate {name!r}: there are {', '.join(CERTIFICATES)}")
        return os.path.join(self.data_dir, "barnabas-certs", f"{name}.pem")

    def _make_certificates(self) -> None:
        if self._has_tls and not os.path.exists(self.ca_file):
            from barnabas.certificates import make_certificates

            self._make_directory()
            make_certificates(os.path.dirname(self.ca_file))

    def _make_directory(self) -> None:
        """Create the directory so that only its owner may enter it, as the daemon does."""
        os.makedirs(self.data_dir, 0o700, exist_ok=True)

    @property
    def _users_file(self) -> str:
        return os.path.join(self.data_dir, "barnabas-users")

    def _write_users(self) -> None:
        """Write the passwords to a file, since all users of the machine can see a process's
        arguments.
        """
        if self.users:
            self._make_directory()
            descriptor = os.open(self._users_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with open(descriptor, "w", encoding="utf-8") as file:
                file.writelines(f"{name}:{password}\n" for name, password in self.users.items())

    def _read(self, process: Process, decided: threading.Event) -> None:
        """Collect the daemon's output; set `decided` when the daemon listens or has ended."""
        assert process.stdout is not None
        for line in process.stdout:
            self.output.append(line)
            if len(self.output) >= 2 * _KEPT_LINES:
                del self.output[:-_KEPT_LINES]
            if match := _CONTROL.search(line):
                self._control_url = match.group(1).rstrip(":")
            if match := _AHEAD.search(line):
                self._clock_ahead_ms = max(0, int(match.group(1)))
            if not self._listens and (match := _READY.search(line)):
                self._ports = [int(one.rpartition(":")[2]) for one in match.group(1).split(",")]
                self._listens = True
                decided.set()
        process.stdout.close()
        decided.set()

    def stop(self) -> int:
        """Send SIGTERM and wait until the daemon ends. Gives: its exit code; 0 if no daemon was
        running.
        """
        return self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL. As after a crash, only data that the operating system has received remain.

        Nothing happens if no daemon is running.
        """
        self._end(signal.SIGKILL)

    def lose_power(self) -> None:
        """End the daemon as if the machine had lost power: data that were not flushed are lost.

        Needs `control=True`. `restart` then recovers as it would after a power loss.
        """
        process = self._running()
        self._note_clock()
        self.control.lose_power()
        process.wait(timeout=60)
        self._end(signal.SIGKILL)

    def restart(self) -> LocalBroker:
        """Stop a running broker, and start it on the same directory and port."""
        self.stop()
        return self.start()

    def _end(self, number: signal.Signals) -> int:
        """End the daemon by a signal, and wait for its end. Gives: its exit code; 0 if no daemon
        was running.
        """
        process, self.process = self.process, None
        if process is None:
            return 0
        if process.poll() is None:
            self._note_clock()
            process.send_signal(number)
            # a paused process handles SIGTERM only after SIGCONT
            process.send_signal(signal.SIGCONT)
        code = process.wait(timeout=60)
        self._dismiss_guard()
        if self._reader is not None:
            self._reader.join(timeout=10)
        if process.stdin is not None:
            process.stdin.close()
        return code

    def _note_clock(self) -> None:
        """Remember how far the test's clock is ahead, since a restart continues from there."""
        if self._is_controlled and self._guard is None and self._listens:
            from http.client import HTTPException  # only needed with control=True

            from barnabas.control import ControlError

            # A broker that is ending or that hangs does not respond. It is stopped all the same.
            with contextlib.suppress(OSError, ValueError, HTTPException, ControlError):
                self._clock_ahead_ms = max(0, self._control().ahead_ms)

    def _remove_directory(self) -> None:
        if self._is_temporary and self._data_dir:
            _remove(self._data_dir)

    def pause(self) -> None:
        """Send SIGSTOP. Connections stay open, but no request is answered until `resume`."""
        process = self._running()
        if self._guard is None:
            self._note_clock()  # now, since a stopped process does not respond
            # A paused daemon cannot notice the end of this process, so a shell kills it. The
            # shell's standard input is closed when this process ends.
            self._guard = subprocess.Popen(
                ["/bin/sh", "-c", f"read -r line || kill -KILL {self.pid}"],
                stdin=subprocess.PIPE,
                start_new_session=True,
            )
        process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Send SIGCONT, so that a paused daemon continues."""
        self._running().send_signal(signal.SIGCONT)
        self._dismiss_guard()

    def _dismiss_guard(self) -> None:
        """End the shell that `pause` started: a line of input ends the shell without a kill of the
        daemon.
        """
        guard, self._guard = self._guard, None
        if guard is not None:
            guard.communicate(b"\n")

    def __enter__(self) -> LocalBroker:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end_for_good()
        self._remove_directory()

    def _end_for_good(self) -> None:
        """Stop the daemon. The process of a forked one of which nothing is kept runs the next
        broker, or is killed, since a clean stop only prepares the next start. Its clients are cut
        at once.
        """
        process = self.process
        if process is None or not self._is_temporary or isinstance(process, subprocess.Popen):
            self.stop()
            return
        if self._may_renew:
            with contextlib.suppress(OSError):  # it has ended
                os.write(process.stdin.fileno(), b"\n")
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_RENEWED_WITHIN_S)
        if process.poll() is None:
            # the daemon leads a group, in which a compaction may run
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        self.kill()

    async def __aenter__(self) -> LocalBroker:
        import anyio.to_thread

        return await anyio.to_thread.run_sync(self.start)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        import anyio
        import anyio.to_thread

        # a cancelled task also has to stop its broker
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self.__exit__, kind, error, trace)

    # --- topics and transactions -----------------------------------------------------------------

    def admin(self, timeout_s: float = 10.0, *, port: int | None = None) -> Admin:
        """A connection for administrative requests, which the caller has to close.

        Takes:  port, the port of one of several brokers; None for any broker that is running.
        Raises: BrokerNotRunningError; OSError if the broker does not respond.
        """
        from barnabas.admin import Admin

        self._running()
        connect = functools.partial(
            Admin,
            "127.0.0.1",
            timeout_s=timeout_s,
            user=next(iter(self.users.items()), None),
            ca_file=self.ca_file if self._has_tls else None,
        )
        for one in self.ports[:-1] if port is None else ():
            with contextlib.suppress(ConnectionRefusedError):  # the broker of this port is stopped
                return connect(one)
        return connect(port or self.ports[-1])

    def create_topic(self, name: str, partitions: int = -1, **configs: object) -> str:
        """Create a topic, unless an identical one exists. Gives: its name.

        Takes:  partitions, -1 for the broker's num.partitions; configs by Kafka's names with
                underscores for dots: `cleanup_policy="compact"`.
        Raises: AdminError TOPIC_ALREADY_EXISTS if the topic exists with another number of
                partitions or other settings.
        """
        from barnabas.admin import NewTopic

        texts = {name.replace("_", "."): _text(value) for name, value in configs.items()}
        with self.admin() as admin:
            admin.create_topics([NewTopic(name, partitions, texts)])
        return name

    def create_unique_topic(self, prefix: str = "topic", partitions: int = -1) -> str:
        """Create a topic with a unique name.

        Gives: the name, which is `prefix` with a random suffix.
        """
        return self.create_topic(f"{prefix}-{os.urandom(4).hex()}", partitions)

    def open_transactions(self) -> list[OpenTransaction]:
        """The transactions that are not complete.

        Raises: BrokerNotRunningError; OSError if no broker answers; AdminError
                COORDINATOR_NOT_AVAILABLE if a partition of the internal topic has no leader.
        """
        transactions: list[OpenTransaction] = []
        refusal: ConnectionRefusedError | None = None
        answered = 0
        for port in self.ports:
            try:
                with self.admin(port=port) as admin:
                    transactions += admin.open_transactions()
            except ConnectionRefusedError as error:  # the broker of this port is stopped
                refusal = error
            else:
                answered += 1
        if refusal is not None:
            if not answered:
                raise refusal
            self._check_coordinators()
        return transactions

    def cut(self, *topics: str, at_ms: int | None = None) -> dict[str, list[int]]:
        """The offsets, by topic and partition, up to which a reader gets whole transactions from
        topics with `barnabas.transactions.whole`: now, or at a time.

        Takes:  at_ms: a time in ms since 1970, for the newest cut that was recorded at or before
                it. Cuts are recorded once a second in which something was committed.
        Gives:  -1 for a partition that is not in the cut, and for all if there is none.
        Raises: ValueError with several brokers, since each of them answers for its own partitions;
                AdminError UNSUPPORTED_FOR_MESSAGE_FORMAT with `at_ms` if a
                topic does not have the setting; BrokerNotRunningError; OSError.
        """
        from barnabas.protocol.cut_times import AT_OR_BEFORE

        if len(self._ports) > 1:
            raise ValueError("cut() needs a single broker: brokers=1")
        with self.admin() as admin:
            return admin.committed_offsets(topics, -1 if at_ms is None else AT_OR_BEFORE + at_ms)

    def _check_coordinators(self) -> None:
        """Raise AdminError if a stopped broker leaves a coordinator partition without a leader: the
        transactions of that partition would be missing in a list that looks complete.
        """
        from barnabas.admin import AdminError
        from barnabas.coordinator.internal_topics import TRANSACTIONS_TOPIC
        from barnabas.protocol.errors import Code

        with self.admin() as admin:
            lacking = admin.partitions_without_leader(TRANSACTIONS_TOPIC)
        if lacking:
            raise AdminError(
                Code.COORDINATOR_NOT_AVAILABLE,
                f"no running broker leads the partitions {lacking} of {TRANSACTIONS_TOPIC}: give "
                "back the brokers that were taken away",
            )

    def requests(self, api: str | None = None, **filters: Any) -> list[dict[str, Any]]:
        """The received requests with their responses, in order; see `Control.requests`.

        Needs `control=True`.
        """
        return self.control.requests(api, **filters)

    def log_tail(self, lines: int = 20) -> str:
        """The last lines of the daemon's output."""
        return "".join(self.output[-lines:]) if lines > 0 else ""


def _check_users(users: Mapping[str, str] | None) -> None:
    """Check the users. Raises: TypeError without passwords; ValueError for a name or password that
    the users file cannot contain.
    """
    if users is not None and not isinstance(users, Mapping):
        raise TypeError(
            f'users={users!r}: give a dict of passwords by name, as {{"ada": "a password"}}'
        )
    for name, password in (users or {}).items():
        if not isinstance(name, str) or not isinstance(password, str):
            raise TypeError(f"users: {name!r}: a name and its password have to be strings")
        if ":" in name or name.startswith("#"):
            raise ValueError(f"users: {name!r}: a name may not have a colon or begin with #")
        for text in (name, password):
            if not text or text.strip() != text or "\n" in text or "\r" in text:
                raise ValueError(
                    f"users: {name!r}: a name and a password may not be empty, begin or end with a "
                    "blank, or contain a line break"
                )


def _remove(directory: str) -> None:
    from shutil import rmtree

    rmtree(directory, ignore_errors=True)


def _remove_if_ours(directory: str, pid: int) -> None:
    """Remove a temporary directory. A forked child process does not remove it when it ends."""
    if os.getpid() == pid and os.path.exists(directory):
        _remove(directory)


def _text(value: object) -> str:
    """The value of a setting, written as Kafka expects it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _check_topics(topics: Topics) -> None:
    """Check the argument `topics`. Raises: TypeError."""
    if isinstance(topics, str):
        raise TypeError(f"topics={topics!r}: give a list of names, as [{topics!r}]")
    if not isinstance(topics, Iterable):
        raise TypeError(f'topics={topics!r}: give a list of names, as ["orders"]')
    if isinstance(topics, Mapping):
        for name, described in topics.items():
            if not isinstance(described, int | Mapping):
                raise TypeError(
                    f"topics: {name!r}: {described!r} is no number of partitions, and no dict of "
                    "the topic's settings"
                )


def _new_topics(topics: Topics) -> Iterable[NewTopic]:
    """The topics of the argument `topics`: a list of names, or a mapping from names to the number
    of partitions or to settings. Raises: TypeError for a single name instead of a list.
    """
    from barnabas.admin import NewTopic

    _check_topics(topics)
    if not isinstance(topics, Mapping):
        yield from (NewTopic(name) for name in topics)
        return
    for name, described in topics.items():
        if isinstance(described, int):
            yield NewTopic(name, described)
        else:
            counts = ("partitions", "replication.factor")
            configs = {key: _text(value) for key, value in described.items() if key not in counts}
            partitions, factor = (int(str(described.get(key, -1))) for key in counts)
            yield NewTopic(name, partitions, configs, factor)


def temporary_directory(in_memory: bool) -> str:
    """A new temporary directory. It is in memory if `in_memory` is true and enough memory is
    free.
    """
    if in_memory and os.access(_MEMORY_DIRECTORY, os.W_OK | os.X_OK):
        space = os.statvfs(_MEMORY_DIRECTORY)
        if space.f_bavail * space.f_frsize >= _ENOUGH_MEMORY_BYTES:
            directory = f"{_MEMORY_DIRECTORY}/barnabas-{os.urandom(8).hex()}"
            os.mkdir(directory, 0o700)
            return directory
    from tempfile import mkdtemp

    return mkdtemp(prefix="barnabas-")


def _source_root() -> str:
    """PYTHONPATH for the child process, so that it finds Barnabas even if an editable checkout is
    used.
    """
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    inherited = os.environ.get("PYTHONPATH")
    return root + (os.pathsep + inherited if inherited else "")

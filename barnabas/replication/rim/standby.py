"""The rim of a standby: `barnabas start --standby-of HOST:PORT`.

It carries out the steps of `standby_steps`: it connects to the leader, follows it, and connects
again when the connection ends. It serves no clients. Connections of clients to this machine are
refused until a broker is started here without `--standby-of`.
"""

from __future__ import annotations

import contextlib
import secrets
import signal
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any

from barnabas.broker.rim.tls import TlsError
from barnabas.broker.settings.config import BrokerConfig
from barnabas.process.hangups import hangup_reloads
from barnabas.process.log_file import LogFile
from barnabas.replication.following import Following
from barnabas.replication.rim.early_sync import EarlySync
from barnabas.replication.rim.link_security import (
    LinkSecurityError,
    check_address,
    standbys_tls,
)
from barnabas.replication.standby_steps import (
    Address,
    Connect,
    Copy,
    HangUp,
    LinkError,
    Receive,
    Send,
    StandbySteps,
    Step,
    Steps,
)
from barnabas.replication.wire import NONCE_BYTES
from barnabas.storage.disk import Disk, OsDisk, sync_file_system
from barnabas.storage.files.checkpoints import (
    LEASE_SESSION_NAME,
    LOCK_NAME,
    META_PROPERTIES_NAME,
    STANDBY_NOTE_NAME,
)
from barnabas.storage.log.log_directory import LogDirectoryError

RECEIVED_BYTES = 1 << 20
SAME_PROTOCOL = (
    "both sides need the same barnabas.replication.security.protocol, and the authorities of "
    "ssl.truststore.location must have signed a certificate for the leader's address"
)
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _StopError(BaseException):
    """A signal has requested the end of the process.

    This class is not an `Exception`, since a signal handler may raise it anywhere, and logging
    catches every `Exception` while it writes a line.
    """


class Standby:
    """The process of a standby, which holds the data directory's lock. steps: the steps that the
    process carries out.
    """

    def __init__(self, config: BrokerConfig, leader: tuple[str, int]) -> None:
        """Check that the directory may become a copy. Raises: LogDirectoryError if another process
        uses the directory, or if it contains other files, which would be removed.
        """
        self._config, self._leader = config, leader
        self._disk, self._data_dir = OsDisk(), config.data_dir
        self._disk.mkdir(self._data_dir)
        _check_is_a_brokers(self._disk, self._data_dir)
        try:
            self._lock = self._disk.lock(f"{self._data_dir}/{LOCK_NAME}")
        except BlockingIOError as error:
            raise LogDirectoryError(
                f"{self._data_dir} is in use by another broker: stop it, or give another log.dirs"
            ) from error
        self._sync = EarlySync(lambda: sync_file_system(self._data_dir))
        self._timeout_s = config.barnabas_replication_timeout_ms / 1000
        self._socket: socket.socket | None = None
        self.steps = self._new_steps()

    def _new_steps(self) -> StandbySteps:
        return StandbySteps(self._copy(), self._timeout_s, self._leader)

    def _copy(self) -> Copy:
        return Copy(self._disk, self._data_dir, self._sync, self._new_following)

    def _new_following(self, make_durable: Callable[[], None]) -> Following:
        """The standby's side of a new connection to the leader."""
        return Following(
            self._disk,
            self._data_dir,
            self._config.barnabas_replication_secret or "",
            secrets.token_bytes(NONCE_BYTES),
            make_durable,
        )

    def run(self) -> None:
        """Follow the leader until a signal arrives."""
        reloads = hangup_reloads()
        for number in SIGNALS:
            signal.signal(number, _on_signal)
        if reloads:  # the certificates are read for each connection
            signal.signal(signal.SIGHUP, _reopener(LogFile()))
        try:
            self.carry_out(self.steps.run())
        except _StopError:
            pass
        finally:
            for number in SIGNALS:
                signal.signal(number, signal.SIG_IGN)
            self._sync.finish()
            self._lock.release()

    def carry_out(self, steps: Steps) -> Any:
        """Carry out the steps of a generator, one after the other. Gives: its return value."""
        result: bytes | None = None
        failure: OSError | LinkError | None = None
        try:
            while True:
                step = steps.send(result) if failure is None else steps.throw(failure)
                result = failure = None
                try:
                    result = self._carry_out(step)
                except ssl.SSLError as error:
                    failure = LinkError(f"TLS: {error.strerror or error}; {SAME_PROTOCOL}")
                except (LinkSecurityError, TlsError) as error:
                    failure = LinkError(str(error))
                except OSError as error:
                    failure = error
        except StopIteration as end:
            return end.value
        finally:
            steps.close()
            self._hang_up()

    def _carry_out(self, step: Step) -> bytes | None:
        """Carry out one step. Raises: OSError, LinkSecurityError, TlsError, which `carry_out`
        throws into the generator of the steps.
        """
        if isinstance(step, Connect):
            self._connect(step.address, step.timeout_s)
        elif isinstance(step, Send):
            self._connected(self._timeout_s).sendall(step.data)
        elif isinstance(step, Receive):
            return self._connected(step.timeout_s).recv(RECEIVED_BYTES)
        elif isinstance(step, HangUp):
            self._hang_up()
        else:
            self._wait(step.seconds)
        return None

    def _connect(self, address: Address, timeout_s: float) -> None:
        """Connect to the leader, with TLS if the link uses it."""
        check_address(self._config, "the leader's address", address[0])
        tls = standbys_tls(self._config)
        self._socket = sock = socket.create_connection(address, timeout=timeout_s)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self._socket = tls.wrap_socket(sock, server_hostname=address[0])

    def _connected(self, timeout_s: float) -> socket.socket:
        """The connection to the leader, after its timeout is set to `timeout_s`."""
        sock = self._socket
        assert sock is not None, "there is no connection"
        if sock.gettimeout() != timeout_s:
            sock.settimeout(timeout_s)
        return sock

    def _wait(self, seconds: float) -> None:
        time.sleep(seconds)

    def _hang_up(self) -> None:
        """Close the connection, if there is one."""
        sock, self._socket = self._socket, None
        if sock is not None:
            sock.close()


def _reopener(log_file: LogFile) -> Callable[[int, object], None]:
    """The signal handler that opens the log's file again."""

    def reopen(number: int, frame: object) -> None:
        with contextlib.suppress(OSError):  # the former file stays in use
            log_file.reopen()

    return reopen


def _check_is_a_brokers(disk: Disk, data_dir: str) -> None:
    """Check that the directory is empty or a broker's data directory, since following removes all
    other files. Raises: LogDirectoryError.
    """
    names = set(disk.list(data_dir)) - {LOCK_NAME, LEASE_SESSION_NAME}
    if names and names.isdisjoint((META_PROPERTIES_NAME, STANDBY_NOTE_NAME)):
        raise LogDirectoryError(
            f"{data_dir} has files and is not a broker's data directory: a standby would remove "
            "them; give an empty directory"
        )


def _on_signal(number: int, frame: object) -> None:
    raise _StopError

"""The rim of a standby: `barnabas start --standby-of HOST:PORT`.

A loop that connects to the leader, follows it, and begins anew when the connection ends. It serves
nobody: clients that come by the addresses of this machine are refused until a broker is started
here without that option.
"""

from __future__ import annotations

import errno
import logging
import secrets
import signal
import socket
import ssl
import time

from barnabas.broker.replication.following import Following
from barnabas.broker.replication.operations import DivergedError
from barnabas.broker.replication.rim.early_sync import EarlySync
from barnabas.broker.replication.rim.link_security import (
    LinkSecurityError,
    check_address,
    standbys_tls,
)
from barnabas.broker.replication.wire import NONCE_BYTES, WireError
from barnabas.broker.rim.tls import TlsError
from barnabas.broker.settings.config import BrokerConfig
from barnabas.storage.directory.log_directory import LogDirectoryError
from barnabas.storage.disk import Disk, OsDisk, is_out_of_resources, sync_file_system
from barnabas.storage.files.checkpoints import (
    LEASE_SESSION_NAME,
    LOCK_NAME,
    META_PROPERTIES_NAME,
    STANDBY_NOTE_NAME,
)

logger = logging.getLogger("barnabas.replication")

RECEIVED_BYTES = 1 << 20
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0
OF_THE_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO})
SAME_PROTOCOL = (
    "both sides need the same barnabas.replication.security.protocol, and the authorities of "
    "ssl.truststore.location must have signed for the leader's address"
)
SILENT = (
    "it hung up without a word: its log says why; both sides need the same "
    "barnabas.replication.security.protocol and barnabas.replication.secret"
)
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _StopError(BaseException):
    """A signal asked for the end.

    No `Exception`: it comes anywhere, and logging catches those that come while a line is written.
    """


class Standby:
    """The process: holds the data directory's lock for as long as it runs."""

    def __init__(self, config: BrokerConfig, leader: tuple[str, int]) -> None:
        """Raises: LogDirectoryError where another process has the directory, or it has something
        else in it: all that the leader does not have is removed.
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
        self._last_reason = ""
        self._sync = EarlySync(lambda: sync_file_system(self._data_dir))
        self._timeout_s = self._connect_timeout_s = config.barnabas_replication_timeout_ms / 1000

    def run(self) -> None:
        """Follow until a signal comes."""
        for number in SIGNALS:
            signal.signal(number, _on_signal)
        try:
            self._follow_again()
        except _StopError:
            pass
        finally:
            for number in SIGNALS:
                signal.signal(number, signal.SIG_IGN)
            self._sync.finish()
            self._lock.release()

    def _follow_again(self) -> None:
        """Follow the leader, and connect again whenever that ends."""
        pause_s = FIRST_PAUSE_S
        while True:
            if self._follow():
                pause_s = FIRST_PAUSE_S
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _new_following(self) -> Following:
        return Following(
            self._disk,
            self._data_dir,
            self._config.barnabas_replication_secret or "",
            secrets.token_bytes(NONCE_BYTES),
            self._begin_from_here,
        )

    def _receive(self, sock: socket.socket) -> bytes:
        """What the leader says next; empty at the end."""
        return sock.recv(RECEIVED_BYTES)

    def _connected(self) -> socket.socket:
        """A connection to the leader, under TLS where the link has it.

        Raises: OSError, LinkSecurityError, TlsError.
        """
        host = self._leader[0]
        check_address(self._config, "the leader's address", host)
        tls = standbys_tls(self._config)
        sock = socket.create_connection(self._leader, timeout=self._connect_timeout_s)
        if tls is None:
            return sock
        try:
            return tls.wrap_socket(sock, server_hostname=host)
        except BaseException:
            sock.close()
            raise

    def _follow(self) -> bool:
        """One connection, from its beginning to its end. Gives whether the copy was whole once."""
        following, reason = self._new_following(), SILENT
        try:
            with self._connected() as sock:
                sock.settimeout(self._timeout_s)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.sendall(following.greeting())
                while data := self._receive(sock):
                    reason = "it hung up"
                    for answer in following.on_bytes(data):
                        sock.sendall(answer)
                    self._sync.on_written()
        except (WireError, DivergedError, LinkSecurityError, TlsError) as error:
            reason = str(error)
        except ssl.SSLError as error:
            reason = f"TLS: {error.strerror or error}; {SAME_PROTOCOL}"
        except OSError as error:
            if error.filename is not None and not is_out_of_resources(error):
                raise  # of this disk, not of the connection
            reason = error.strerror or str(error)
            if error.errno in OF_THE_DISK:  # tried again: there may be room later
                reason = f"{self._data_dir} cannot be written to: {reason}"
        finally:
            following.close()
            self._sync.on_written()
        self._tell(reason)
        return following.has_caught_up

    def _begin_from_here(self) -> None:
        """The copy is whole: bring it to the disk."""
        self._sync.on_written()
        self._sync.finish()
        self._last_reason = ""
        logger.warning("all of %s:%d is here, and followed from now on", *self._leader)

    def _tell(self, reason: str) -> None:
        """Say once why there is no leader to follow."""
        if reason != self._last_reason:
            self._last_reason = reason
            logger.warning("the leader %s:%d is not followed: %s", *self._leader, reason)


def _check_is_a_brokers(disk: Disk, data_dir: str) -> None:
    names = set(disk.list(data_dir)) - {LOCK_NAME, LEASE_SESSION_NAME}
    if names and names.isdisjoint((META_PROPERTIES_NAME, STANDBY_NOTE_NAME)):
        raise LogDirectoryError(
            f"{data_dir} has files and is no broker's data directory: a standby would remove "
            "them, since its leader does not have them; give an empty directory"
        )


def _on_signal(number: int, frame: object) -> None:
    raise _StopError

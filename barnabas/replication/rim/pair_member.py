"""Runs a node of a pair until it leads: the node follows the leader, or waits.

`barnabas start` with `barnabas.lease.url` runs this on both nodes. The steps are in `member_steps`.
Once the node's claim is in the lease's record, the directory is released, and a broker is opened on
it (its rim is `lease_endpoint`).
"""

from __future__ import annotations

import logging
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any, NoReturn
from urllib.parse import urlsplit

from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.exposure import without_password
from barnabas.broker.settings.listeners import ANYWHERE, ListenerConfig
from barnabas.replication.following import Following, holding_of
from barnabas.replication.leadership import TIMEOUT_PARTS, Leadership, LeaseSettings, Role
from barnabas.replication.lease_engine import EtcdEngine, KubernetesEngine
from barnabas.replication.lease_exchange import ACCOUNT, EngineSettings
from barnabas.replication.lease_record import NodeAddresses, addresses_for_clients
from barnabas.replication.member_steps import MemberSteps, node_of
from barnabas.replication.rim.lease_keeper import LeaseKeeper, lease_ms
from barnabas.replication.rim.reception import Reception
from barnabas.replication.rim.standby import SIGNALS, Standby
from barnabas.replication.wire import NONCE_BYTES

logger = logging.getLogger("barnabas.lease")

URL = "barnabas.lease.url"
FORMS = "etcd://HOST:PORT,HOST:PORT/NAME or kubernetes://NAMESPACE/NAME"


class PairSettingsError(Exception):
    """The settings of a pair are wrong or incomplete; the text says what to do."""


def engine_of(config: BrokerConfig, timeout_ms: int) -> EtcdEngine | KubernetesEngine:
    """The engine that the settings name. Raises: PairSettingsError."""
    url = config.barnabas_lease_url
    scheme, _, rest = url.partition("://")
    where, _, name = rest.partition("/")
    if scheme not in ("etcd", "etcds", "kubernetes") or not where or not name:
        raise PairSettingsError(f"{URL}={without_password(url)}: it must have the form {FORMS}")
    known: dict[str, Any] = {
        "name": name,
        "timeout_ms": timeout_ms,
        "ttl_ms": config.barnabas_lease_ttl_ms,
        "ca_file": config.barnabas_lease_ca_file or None,
    }
    if scheme == "kubernetes":
        return KubernetesEngine(EngineSettings((_kubernetes(),), namespace=where, **_in_pod(known)))
    protocol = "http" if scheme == "etcd" else "https"
    endpoints = tuple(f"{protocol}://{one.strip()}" for one in where.split(","))
    for endpoint in endpoints:
        _check_endpoint(url, endpoint)
    user, password = config.barnabas_lease_user, config.barnabas_lease_password or ""
    return EtcdEngine(EngineSettings(endpoints, user=user, password=password, **known))


def _kubernetes() -> str:
    """The address of the API server, from the variables that every pod has. Raises:
    PairSettingsError.
    """
    host = os.environ.get("KUBERNETES_SERVICE_HOST")
    if host is None:
        raise PairSettingsError(
            f"{URL}: kubernetes:// works in a pod only: KUBERNETES_SERVICE_HOST is not set"
        )
    host = f"[{host}]" if ":" in host else host
    return f"https://{host}:{os.environ.get('KUBERNETES_SERVICE_PORT', '443')}"


def _in_pod(known: dict[str, Any]) -> dict[str, Any]:
    return {**known, "ca_file": known["ca_file"] or f"{ACCOUNT}/ca.crt"}


def _check_endpoint(url: str, endpoint: str) -> None:
    """Check that an endpoint has a host and a port. Raises: PairSettingsError, without the
    password.
    """
    try:
        parts = urlsplit(endpoint)
        is_right = bool(parts.hostname) and parts.port is not None
    except ValueError:
        is_right = False
    if not is_right:
        url, endpoint = without_password(url), without_password(endpoint)
        raise PairSettingsError(f"{URL}={url}: {endpoint} has no host and port; write {FORMS}")


def addresses_of(config: BrokerConfig) -> NodeAddresses:
    """The addresses of this node for the other node and for clients. Raises: PairSettingsError."""
    if config.barnabas_replication_port <= 0:
        raise PairSettingsError(
            f"{URL} needs barnabas.replication.port, where the other node follows this one"
        )
    if "node.id" not in config.explicit and "broker.id" not in config.explicit:
        raise PairSettingsError(f"{URL} needs node.id, another on each of the two nodes")
    if config.barnabas_brokers != 1:
        raise PairSettingsError(f"{URL} cannot be combined with several brokers in one process")
    if not config.barnabas_lease_margin_ms < config.barnabas_lease_ttl_ms:
        raise PairSettingsError("barnabas.lease.margin.ms must be less than barnabas.lease.ttl.ms")
    listeners = {}
    for listener in config.listeners:
        if listener.path is not None:
            continue  # the address cannot be reached from other machines
        host, port = listener.advertised or listener.endpoint[1:3]
        if not port:
            raise PairSettingsError(f"{URL} needs a port of its own for {listener.name}, not 0")
        if host in ANYWHERE:
            raise PairSettingsError(
                f"{URL} needs advertised.listeners for {listener.name}: the other node sends "
                f"clients this one's address, and {host or 'no host'} is every address"
            )
        listeners[listener.name] = f"{host}:{port}"
    return NodeAddresses(_replication_address(config), listeners)


def _replication_address(config: BrokerConfig) -> str:
    """The address at which the other node follows this one. Raises: PairSettingsError."""
    advertised = config.barnabas_replication_advertised
    if advertised:
        host, _, port = advertised.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) <= 65535:
            raise PairSettingsError(
                f"barnabas.replication.advertised={advertised}: it must have the form HOST:PORT"
            )
        return advertised
    host = config.barnabas_replication_host
    if host in ANYWHERE:
        raise PairSettingsError(
            f"{URL} needs barnabas.replication.advertised=HOST:PORT, where the other node reaches "
            f"this one: {host} is every address"
        )
    return f"{host}:{config.barnabas_replication_port}"


class PairMember(Standby):
    """A node of a pair while it does not lead.

    keeper: the thread that keeps the lease; it continues when the node leads. reception: the part
    that accepts clients.
    """

    def __init__(
        self,
        config: BrokerConfig,
        listen: Callable[[list[ListenerConfig]], list[socket.socket]],
    ) -> None:
        """Raises: PairSettingsError; LogDirectoryError in the same cases as `Standby`."""
        self.reception = Reception(config, listen, self._client_address)
        self._addresses = addresses_of(config)
        self._engine = engine_of(config, config.barnabas_lease_ttl_ms // TIMEOUT_PARTS)
        super().__init__(config, ("", 0))

    def _new_steps(self) -> MemberSteps:
        """The steps of this node until it leads, with the keeper of its lease."""
        config, session = self._config, secrets.token_hex(8)
        ttl_ms = config.barnabas_lease_ttl_ms
        settings = LeaseSettings(ttl_ms, config.barnabas_lease_margin_ms)
        node = node_of(self._disk, self._data_dir, config.node_id, self._addresses, session)
        holding = holding_of(self._disk, self._data_dir)
        self.keeper = LeaseKeeper(Leadership(node, settings, holding, lease_ms()), self._engine)
        return MemberSteps(
            self._copy(),
            self._timeout_s,
            keeper=self.keeper,
            session=session,
            ttl_ms=ttl_ms,
            now_s=time.monotonic,
        )

    def wait_until_leading(self) -> bool:
        """Follow until this node leads, or until a signal. Gives: whether it leads.

        When the call returns, the directory is released.

        Raises: LeaseRecordError, LogDirectoryError, OSError.
        """
        handlers = {number: signal.getsignal(number) for number in SIGNALS}
        self.keeper.start()
        self.reception.start()
        try:
            self.run()
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
        if self.keeper.failure is not None:
            raise self.keeper.failure
        if self.keeper.role is not Role.LEADING:
            self.reception.close()
            self.keeper.stop()
            return False
        logger.warning("node %d leads, in epoch %d", self.keeper.node_id, self.keeper.leader_epoch)
        return True

    def _client_address(self, listener: str) -> tuple[str, int] | None:
        """The leader's address for the clients of a listener; None if the leader is unknown."""
        record = self.keeper.record
        if record is None or record.leader is None:
            return None
        if record.leader == self.keeper.node_id and not self.keeper.may_answer():
            return None
        node = record.nodes.get(record.leader)
        return None if node is None else addresses_for_clients(node).get(listener)

    def _wait(self, seconds: float) -> None:
        self.keeper.wait(seconds)

    def _new_following(self, make_durable: Callable[[], None]) -> Following:
        """The standby's side of a new connection, which reports the state of the copy to the
        keeper.
        """
        return Following(
            self._disk,
            self._data_dir,
            self._config.barnabas_replication_secret or "",
            secrets.token_bytes(NONCE_BYTES),
            make_durable,
            node_id=self.keeper.node_id,
            addresses=self._addresses,
            on_holding=self.keeper.set_holding,
        )


def begin_again() -> NoReturn:
    """Restart this process, so that it becomes a standby of the new leader. This closes all
    connections.
    """
    for number in SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])

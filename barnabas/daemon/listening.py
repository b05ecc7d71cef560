"""Opens the sockets that a start needs, for clients, standbys and the HTTP endpoints."""

from __future__ import annotations

import argparse
import errno
import socket
from collections.abc import Sequence

from barnabas.broker.rim.acceptor import unix_listener_at
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.listeners import ListenerConfig
from barnabas.daemon.arguments import DEFAULT_HOST, StartError

Sockets = dict[str, socket.socket]
"""The sockets of endpoints, by the option or setting that enables each."""
REPLICATION_PORT = "barnabas.replication.port"


def _listen(host: str, port: int, option: str = "--port") -> socket.socket:
    """A socket that listens at an address. Raises: StartError, which names the option to change."""
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
        sock.listen(1024)
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            raise StartError(
                f"port {port} on {host} is in use: choose another with {option}"
                f"{'' if option == 'listeners' else ' N'} (0: any free one)"
            ) from error
        raise StartError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
    sock.setblocking(False)
    return sock


def listen_for_each(
    config: BrokerConfig,
    ports: Sequence[int] | None,
    listeners: Sequence[ListenerConfig] | None = None,
) -> list[socket.socket]:
    """Open a socket for each broker at each listener, in the order of the listeners.

    Takes: ports, the brokers' ports at the first listener, one for each broker. Otherwise, and at
           other listeners, each broker has the port after the previous broker's, or a free port if
           the configured port is 0. listeners, the listeners to open; None for all.
    """
    count = config.barnabas_brokers
    if ports is not None and len(ports) not in (1, count):
        raise StartError(
            f"--port names {len(ports)} ports for {count} broker{'s' * (count != 1)}: name one "
            f"port, or one for each of them (--brokers {len(ports)})"
        )
    sockets = []
    for listener in config.listeners if listeners is None else listeners:
        host, port = listener.endpoint.host, listener.endpoint.port
        if listener.path is not None:
            sockets.append(_listen_at_path(listener.path))
            continue
        if listener is not config.listeners[0] or ports is None or len(ports) == 1:
            of_brokers = [port + at if port else 0 for at in range(count)]
        else:
            of_brokers = list(ports)
        if max(of_brokers) > 65535:
            raise StartError(f"{count} brokers from port {port} on: the last port is 65535")
        option = "--port" if listener is config.listeners[0] else "listeners"
        sockets += [_listen(host, one, option) for one in of_brokers]
    return sockets


def _listen_at_path(path: str) -> socket.socket:
    """Open a Unix domain socket that listens at a path. Raises: StartError."""
    try:
        return unix_listener_at(path)
    except OSError as error:
        raise StartError(f"cannot listen on unix://{path}: {error.strerror or error}") from error


def listen_beside(options: argparse.Namespace, config: BrokerConfig) -> Sockets:
    """Open the sockets that are not for Kafka clients: those of the HTTP endpoints and of
    replication.
    Gives: the sockets, by the options that enable them.
    """
    sockets = {}
    if config.barnabas_metrics_port >= 0:
        option = "--metrics-port"
        sockets[option] = _listen(
            config.barnabas_metrics_host, config.barnabas_metrics_port, option
        )
    if config.barnabas_console_port >= 0:
        option = "--console-port"
        sockets[option] = _listen(
            config.barnabas_console_host, config.barnabas_console_port, option
        )
    if config.barnabas_replication_port >= 0:
        option = REPLICATION_PORT
        sockets[option] = _listen(
            config.barnabas_replication_host, config.barnabas_replication_port, option
        )
    if options.test_control is not None:
        option = "--test-control"
        sockets[option] = _listen(DEFAULT_HOST, options.test_control, option)
    return sockets

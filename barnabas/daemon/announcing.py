"""The lines that a start prints: the addresses of the broker, and how to reach it."""

from __future__ import annotations

import functools
import importlib.util
import logging
import os
import time
from collections.abc import Sequence

from barnabas.broker.rim.server import Server
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.listeners import ListenerConfig
from barnabas.daemon.arguments import DEFAULT_HOST
from barnabas.version import __version__

logger = logging.getLogger("barnabas")


def shown(addresses: Sequence[tuple[str, int]]) -> str:
    """The brokers' addresses for clients on this machine, as a value of `bootstrap.servers`."""
    return ",".join(
        _address_text((DEFAULT_HOST if host in ("0.0.0.0", "::") else host, port))
        for host, port in addresses
    )


def _for_commands(addresses: Sequence[tuple[str, int]], listener: ListenerConfig) -> str:
    """The address to use in the printed commands. With TLS it is the advertised address."""
    if listener.has_tls and listener.advertised is not None and len(addresses) == 1:
        return _address_text(listener.advertised)
    return shown(addresses)


def _address_text(address: tuple[str, int]) -> str:
    host, port = address
    return host if host.startswith("unix://") else f"{host}:{port}"


def _what_clients_need(listener: ListenerConfig) -> str:
    """The settings that clients need for a listener with TLS or SASL; empty for other listeners."""
    if not (listener.has_tls or listener.has_sasl):
        return ""
    return (
        f"client.properties needs security.protocol={listener.security_protocol}, and its "
        "settings in docs/SECURITY.md"
    )


def _other_listeners(server: Server, config: BrokerConfig) -> list[str]:
    """The addresses and security protocols of the listeners after the first one."""
    return [
        str(listener.config.endpoint._replace(host=listener.address[0], port=listener.address[1]))
        + f" ({listener.config.security_protocol})"
        for listener in server.acceptor.listeners
        if listener.config is not config.listeners[0]
    ]


@functools.cache
def has_cli() -> bool:
    """Whether the libraries of the extra `cli` are installed. A search of all folders."""
    return importlib.util.find_spec("click") is not None


def announce(server: Server, began: float, console_url: str | None, *, quiet: bool) -> None:
    """Print the broker's addresses and commands to try. With `quiet` nothing is printed."""
    broker = server.broker
    where = ",".join(map(_address_text, server.addresses))
    others = _other_listeners(server, broker.config)
    if quiet:
        return
    took_ms = (time.perf_counter() - began) * 1000
    address = _for_commands(server.addresses, broker.config.listeners[0])
    needs = _what_clients_need(broker.config.listeners[0])
    options = f"-b {address}" + (" --client-config client.properties" if needs else "")
    # without click, the commands could only print how to install click
    text = (
        f"barnabas {__version__} listens on {where} "
        f"(ready after {took_ms:.0f} ms, process {os.getpid()})\n"
        f"  data:     {os.path.abspath(broker.config.data_dir)}\n"
        + (f"  security: {needs}\n" if needs else "")
        + "".join(f"  besides:  {other}\n" for other in others)
        + f"  produce:  echo hello | barnabas produce greetings {options}\n"
        f"  consume:  barnabas consume greetings {options}\n"
        + (
            ""
            if has_cli()
            else "            (both need the extra `cli`, and say how to install it)\n"
        )
        + (f"  console:  {console_url}\n" if console_url is not None else "")
        + "  stop:     Ctrl-C"
    )
    try:
        print(text, flush=True)
    except OSError as error:  # a full disk or a closed pipe must not end the broker
        logger.warning(
            "listening on %s; standard output cannot be written: %s",
            where,
            error.strerror or error,
        )
        with open(os.devnull, "wb") as nothing:
            os.dup2(
                nothing.fileno(), 1
            )  # the interpreter writes the buffered text at its end, which would fail again

"""The settings of a client's connections to brokers."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.client.security_options import UNPROTECTED, SecurityOptions

MEBIBYTE = 1 << 20


class ClientOptions(NamedTuple):
    """The settings of the connection to the brokers, and the sizes of requests."""

    bootstrap_servers: tuple[tuple[str, int], ...]
    client_id: str = "barnabas-spark"
    connect_timeout_ms: int = 10_000
    tls_timeout_ms: int = 10_000  # of each step of the handshake
    request_timeout_ms: int = 30_000
    # how long a request is repeated after retriable errors before the task fails
    retry_timeout_ms: int = 60_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 0  # the pause is doubled after each failure, up to this maximum
    fetch_max_wait_ms: int = 500
    fetch_min_bytes: int = 1
    fetch_max_bytes: int = 16 * MEBIBYTE
    check_crcs: bool = True
    send_buffer_bytes: int = -1  # -1 for the system's default
    receive_buffer_bytes: int = -1
    response_max_bytes: int = (1 << 31) - 1
    # Whether a response is received into the memory of the last one. Its records, which are views
    # of this memory, are then valid until the next response.
    reuses_buffer: bool = True
    software_name: str = "barnabas-spark"  # what ApiVersions calls this client (KIP-511)
    logs_silence: bool = True  # whether the log says that a port does not answer
    security: SecurityOptions = UNPROTECTED


DEFAULTS = ClientOptions(())

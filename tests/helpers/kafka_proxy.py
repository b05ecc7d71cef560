"""The proxy of `examples/late_requests/kafka_proxy.py`, and a broker behind it.

with broker_behind_proxy() as (broker, proxy):
    # the broker dies before the first Produce reaches it
    proxy.on_request(PRODUCE, once(lambda frame: broker.kill()))
    servers = proxy.bootstrap_servers
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from barnabas import LocalBroker

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "late_requests"))

from kafka_proxy import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    API_VERSIONS,
    CUT,
    END_TXN,
    FETCH,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    KEEP,
    LIST_OFFSETS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    PASS,
    PASS_THEN_CUT,
    PRODUCE,
    SWALLOW,
    TXN_OFFSET_COMMIT,
    Action,
    ClusterProxy,
    Frame,
    Hook,
    KafkaProxy,
    LateRequest,
    hold,
    once,
)

__all__ = [
    "ADD_OFFSETS_TO_TXN",
    "ADD_PARTITIONS_TO_TXN",
    "API_VERSIONS",
    "CUT",
    "END_TXN",
    "FETCH",
    "FIND_COORDINATOR",
    "INIT_PRODUCER_ID",
    "KEEP",
    "LIST_OFFSETS",
    "METADATA",
    "OFFSET_COMMIT",
    "OFFSET_FETCH",
    "PASS",
    "PASS_THEN_CUT",
    "PRODUCE",
    "SWALLOW",
    "TXN_OFFSET_COMMIT",
    "Action",
    "ClusterProxy",
    "Frame",
    "Hook",
    "KafkaProxy",
    "LateRequest",
    "broker_behind_proxy",
    "hold",
    "once",
]


@contextmanager
def broker_behind_proxy(
    settings: Mapping[str, str] | None = None, *, control: bool = False
) -> Iterator[tuple[LocalBroker, KafkaProxy]]:
    """A broker that advertises the proxy's address to clients, even after it was killed and
    restarted.

    Takes:  control, whether the broker has test control.
    """
    with KafkaProxy() as proxy:
        advertised = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}"}
        with LocalBroker(settings={**(settings or {}), **advertised}, control=control) as broker:
            proxy.broker_port = broker.port
            yield broker, proxy

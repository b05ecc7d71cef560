"""Requests with very many elements are decoded in the worker, and then processed as if they had
just arrived. The table of requests names the handler of each request.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers.core_host import CoreHost
from helpers.our_messages import request_frame
from helpers.places import ROOT
from helpers.raised_faults import contained_faults

from barnabas.broker.core import DECODED_AT_ONCE_BYTES
from barnabas.broker.handlers import metadata
from barnabas.broker.outbox import NO_CONNECTION
from barnabas.broker.routes import Route
from barnabas.protocol.api_table import APIS
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

PING_VERSION = METADATA_VERSION = 4


def asking(count: int) -> Any:
    """Return a Metadata request for "t" and `count` topics that do not exist."""
    names = [f"missing-{number:05}" for number in range(count)]
    return MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in [*names, "t"]],
        allow_auto_topic_creation=False,
    )


def wanting(name: str) -> MetadataRequest:
    """Return a Metadata request that creates the topic."""
    return MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)


@pytest.fixture
def host(tmp_path: Path) -> CoreHost:
    host = CoreHost(tmp_path)
    host.create("t", 1)
    return host


COUNT = DECODED_AT_ONCE_BYTES // 10


def test_others_are_answered_before_a_long_request_is_decoded(host: CoreHost) -> None:
    long, other = host.connect(1), host.connect(2)
    host.ask(long, asking(COUNT), METADATA_VERSION)
    assert host.answers[long] == []
    host.create("missing-00000", 1)
    assert len(host.call(other, asking(1), METADATA_VERSION).topics) == 2
    host.await_answer(long)
    codes = {topic.name: topic.error_code for topic in host.answers[long][0].topics}
    assert len(codes) == COUNT + 1
    assert (codes["t"], codes["missing-00000"], codes["missing-00001"]) == (
        Code.NONE,
        Code.NONE,
        Code.UNKNOWN_TOPIC_OR_PARTITION,
    ), "the state when the request is processed, not when it arrived"


def test_a_long_request_that_cannot_be_read_ends_its_connection(host: CoreHost) -> None:
    connection = host.connect(1)
    request = asking(COUNT)
    frame = bytearray(request_frame(request, METADATA_VERSION, 1))
    host.broker.on_frame(connection, memoryview(frame)[:-3], host.event_ms())
    host.carry_out()
    assert host.closed == {}
    host.finish_work()
    assert "Metadata" in host.closed[connection]


def test_the_answer_to_a_long_request_of_a_client_that_has_gone_is_dropped(host: CoreHost) -> None:
    host.ask(host.connect(1), asking(COUNT), METADATA_VERSION)
    host.broker.on_closed(1)
    host.finish_work()
    assert host.answers[1] == []


def test_a_fault_of_the_handler_of_a_long_request_closes_only_its_connection(
    host: CoreHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise KeyError("ours")

    row = Route("Metadata", lambda *_: (None, 0), fail)
    monkeypatch.setitem(host.broker.routes.loaded, 3, row)
    with contained_faults():
        host.ask(host.connect(1), asking(COUNT), METADATA_VERSION)
        host.finish_work()
    assert "please report it" in host.closed[1]


# --- families that the worker loads --------------------------------------------------------------


@pytest.fixture
def importing(host: CoreHost) -> CoreHost:
    """A broker before its first request. As in the daemon, the worker loads its handlers."""
    host.broker.families.are_loaded_elsewhere = True
    return host


def test_others_are_served_while_the_worker_imports_for_a_first_request(
    importing: CoreHost,
) -> None:
    host = importing
    first, other = host.connect(1), host.connect(2)
    assert host.call(other, ApiVersionsRequest(), 0).error_code == Code.NONE
    host.ask(first, asking(1), METADATA_VERSION)
    (imports,) = host.work
    assert host.answers[first] == [] and host.broker.connections[first].in_flight
    host.ask(other, ApiVersionsRequest(), 0)
    assert len(host.answers[other]) == 2, "the modules of ApiVersions are already imported"
    assert host.work == [imports]
    host.finish_work()
    assert len(host.answers[first][0].topics) == 2, (
        "the request is whole, although its frame's memory was reused"
    )
    host.ask(other, asking(1), METADATA_VERSION)
    assert len(host.answers[other]) == 3 and host.work == []


def test_two_clients_that_send_the_same_first_request_both_get_a_response(
    importing: CoreHost,
) -> None:
    host = importing
    for connection in (1, 2):
        host.ask(host.connect(connection), asking(1), METADATA_VERSION)
    host.finish_work()
    host.finish_work()
    assert [len(host.answers[connection]) for connection in (1, 2)] == [1, 1]


def test_a_first_request_of_a_client_that_has_gone_is_dropped(importing: CoreHost) -> None:
    host = importing
    host.ask(host.connect(1), asking(1), METADATA_VERSION)
    host.broker.on_closed(1)
    host.connect(1)
    host.finish_work()
    assert host.answers[1] == [] and not host.broker.connections[1].in_flight


def test_a_first_request_that_cannot_be_read_ends_its_connection(importing: CoreHost) -> None:
    frame = bytearray(request_frame(asking(1), METADATA_VERSION, 1))[:-3]
    importing.broker.on_frame(importing.connect(1), memoryview(frame), importing.event_ms())
    importing.carry_out()
    importing.finish_work()
    assert "Metadata" in importing.closed[1]


def test_a_fault_of_the_handler_of_a_first_request_closes_its_connection(
    importing: CoreHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise KeyError("ours")

    (row,) = metadata.ROWS
    monkeypatch.setattr(metadata, "ROWS", (row._replace(handler=lambda _: fail),))
    with contained_faults():
        importing.ask(importing.connect(1), asking(1), METADATA_VERSION)
        importing.finish_work()
    assert "please report it" in importing.closed[1]


def test_a_first_request_of_an_unknown_version_is_refused_after_the_imports(
    importing: CoreHost,
) -> None:
    host = importing
    frame = bytearray(request_frame(ApiVersionsRequest("a", "1"), 3, 7))
    # version 99
    frame[2:4] = b"\0\x63"
    host.broker.on_frame(host.connect(1), memoryview(frame), host.event_ms())
    host.broker.outbox.work[0].run()
    host.broker.on_worked(host.broker.outbox.work.pop(), None, None, host.now_ms)
    ((_, pieces),) = host.broker.outbox.sends
    answer = b"".join(bytes(piece) for piece in pieces)
    assert int.from_bytes(answer[8:10]) == Code.UNSUPPORTED_VERSION


def test_the_gate_sees_a_first_request_once(tmp_path: Path) -> None:
    """The gate allows one ApiVersions request before a login. If it counted this request twice, the
    connection would be closed.
    """
    host = CoreHost(
        tmp_path,
        users={"alice": "secret"},
        listeners="SASL_PLAINTEXT://127.0.0.1:9092",
        sasl_enabled_mechanisms="PLAIN",
    )
    host.broker.families.are_loaded_elsewhere = True
    answer = host.call(host.connect(1), ApiVersionsRequest("a", "1"), 3)
    assert (answer.error_code, host.closed) == (Code.NONE, {})


def test_metadata_creates_a_topic_after_the_worker_has_loaded_the_family_that_creates_topics(
    importing: CoreHost,
) -> None:
    """Most requests for metadata create no topic, so their family does not load what that needs."""
    host = importing
    first, second, other = host.connect(1), host.connect(2), host.connect(3)
    host.ask(other, MetadataRequest(), METADATA_VERSION)
    host.finish_work()
    assert len(host.answers[other]) == 1
    host.ask(first, wanting("new"), METADATA_VERSION)
    host.ask(second, wanting("newer"), METADATA_VERSION)
    assert host.broker.families.waiting_count == 1, "a late tick waits for it"
    assert [work.connection_id for work in host.work] == [NO_CONNECTION]
    host.ask(other, MetadataRequest(), METADATA_VERSION)
    assert len(host.answers[other]) == 2, "other clients are served meanwhile"
    assert host.answers[first] == [] and list(host.broker.metadata.topics) == ["t"]
    host.finish_work()
    host.await_answer(second)
    assert sorted(host.broker.metadata.topics) == ["new", "newer", "t"]
    assert host.broker.families.waiting_count == 0
    host.ask(other, wanting("newest"), METADATA_VERSION)
    assert len(host.answers[other]) == 3, "it is imported"


def test_a_stop_creates_a_topic_that_waits_for_imports(importing: CoreHost) -> None:
    host = importing
    host.ask(host.connect(1), wanting("new"), METADATA_VERSION)
    # The worker has imported the handler, and the imports for logs are in progress.
    host.finish_work()
    host.broker.close_logs(host.event_ms())
    assert list(host.broker.metadata.topics) == ["t", "new"]


LOADING = """
import sys
from barnabas.broker.dispatch import load_route
from barnabas.broker.requests.families import load
from barnabas.protocol.api_table import APIS
sys.path.insert(0, "tests")
from pathlib import Path
from helpers.core_host import CoreHost
host = CoreHost(Path(sys.argv[2]), barnabas_brokers=sys.argv[3])
load(sys.argv[1])
before = set(sys.modules)
for api in APIS:
    if api.family == sys.argv[1]:
        load_route(host.parts, api)
print(*sorted(name for name in set(sys.modules) - before if name.startswith("barnabas.")))
"""


@pytest.mark.parametrize("brokers", [1, 3])
def test_a_family_has_all_modules_of_its_handlers_when_it_is_loaded(
    tmp_path: Path, brokers: int
) -> None:
    """The worker loads a family. What a handler imported later would hold up the loop."""
    families = sorted({api.family for api in APIS})
    for family in families if brokers == 1 else ["coordinators", "groups", "share_state"]:
        done = subprocess.run(
            [sys.executable, "-c", LOADING, family, str(tmp_path / family), str(brokers)],
            capture_output=True, text=True, check=True, cwd=ROOT,
        )  # fmt: skip
        assert done.stdout.split() == [], family

"""Requests with very many elements are decoded in the worker, and then processed as if they had
just arrived. The table of requests names the handler of each request.
"""

from __future__ import annotations

import ast
from dataclasses import fields
from functools import partial
from inspect import signature
from pathlib import Path
from types import MethodType
from typing import Any

import pytest
from helpers.core_host import CoreHost
from helpers.our_messages import request_frame

from barnabas.broker import handlers
from barnabas.broker.core import DECODED_AT_ONCE_BYTES
from barnabas.broker.dispatch import ROWS, Row, import_modules
from barnabas.broker.outbox import NO_CONNECTION
from barnabas.broker.parts import Parts
from barnabas.broker.requests.imports import (
    FOR_COORDINATORS,
    FOR_NEW_LOGS,
    FOR_TOPICS_AT_A_START,
    import_all,
)
from barnabas.broker.routes import Route
from barnabas.protocol.api_table import APIS, Api
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
    host.ask(host.connect(1), asking(COUNT), METADATA_VERSION)
    host.finish_work()
    assert "please report it" in host.closed[1]


# --- modules that the worker imports -------------------------------------------------------------


@pytest.fixture
def importing(host: CoreHost) -> CoreHost:
    """A broker before its first request. As in the daemon, the worker imports the code of its
    handlers.
    """
    host.broker.routes.imports.are_elsewhere = True
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

    monkeypatch.setitem(ROWS, 3, Row(lambda _: fail))
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
    host.broker.routes.imports.are_elsewhere = True
    answer = host.call(host.connect(1), ApiVersionsRequest("a", "1"), 3)
    assert (answer.error_code, host.closed) == (Code.NONE, {})


def test_the_first_topic_is_created_after_the_worker_has_imported_the_code_of_logs(
    importing: CoreHost,
) -> None:
    """The handler of Metadata does not import the code of logs in advance, since most Metadata
    requests create no topic.
    """
    host = importing
    first, second, other = host.connect(1), host.connect(2), host.connect(3)
    host.ask(other, MetadataRequest(), METADATA_VERSION)
    host.finish_work()
    assert len(host.answers[other]) == 1
    host.ask(first, wanting("new"), METADATA_VERSION)
    host.ask(second, wanting("newer"), METADATA_VERSION)
    assert host.broker.routes.imports.count == 1, "a late tick waits for it"
    assert [work.connection_id for work in host.work] == [NO_CONNECTION]
    host.ask(other, MetadataRequest(), METADATA_VERSION)
    assert len(host.answers[other]) == 2, "other clients are served meanwhile"
    assert host.answers[first] == [] and list(host.broker.metadata.topics) == ["t"]
    host.finish_work()
    host.await_answer(second)
    assert sorted(host.broker.metadata.topics) == ["new", "newer", "t"]
    assert host.broker.routes.imports.count == 0
    host.ask(other, wanting("newest"), METADATA_VERSION)
    assert len(host.answers[other]) == 3, "it is imported"


def test_a_stop_creates_a_topic_that_waits_for_imports(importing: CoreHost) -> None:
    host = importing
    host.ask(host.connect(1), wanting("new"), METADATA_VERSION)
    # The worker has imported the handler, and the imports for logs are in progress.
    host.finish_work()
    host.broker.close_logs(host.event_ms())
    assert list(host.broker.metadata.topics) == ["t", "new"]


def test_all_modules_that_the_worker_imports_exist() -> None:
    """A row with the name of a module that no longer exists would fail only at the first
    request.
    """
    import_all((*FOR_COORDINATORS, *FOR_NEW_LOGS, *FOR_TOPICS_AT_A_START))
    for api in APIS:
        import_modules(api, is_one=False)


# --- the table -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def table_host(tmp_path_factory: pytest.TempPathFactory) -> CoreHost:
    return CoreHost(tmp_path_factory.mktemp("table"))


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_each_row_names_the_parameters_of_its_handler(table_host: CoreHost, api: Api) -> None:
    """A row has the names of its handler's parameters as strings, which a type checker does not
    check.
    """
    host = table_host
    route = host.broker.routes.load(api)
    assert route.name == api.name
    handler = ROWS[api.key].make(host.parts)
    taken: list[tuple[str, Any]] = []
    function: Any = handler
    holder = getattr(handler, "__self__", None)
    if isinstance(handler, partial):
        function = handler.func
    elif isinstance(handler, MethodType):
        function = handler.__func__
        if function.__module__.startswith("barnabas.broker.handlers."):
            made_by = type(handler.__self__).__init__
            taken = parameters_of(made_by)[1:]
            # the parts that this handler needs are attributes of a separate class
            if [name for name, _ in taken] == ["parts"]:
                holder = handler.__self__._parts
                taken = [
                    (name, one.__forward_arg__) for name, one in holder.__annotations__.items()
                ]
    parameters = parameters_of(function)
    if isinstance(handler, MethodType):
        parameters = parameters[1:]
    at = next((at for at, (name, _) in enumerate(parameters) if name == "request"), None)
    if at is None:
        return  # the row of a coordinator creates this handler
    taken += parameters[:at]
    of_parts = {field.name: field.type for field in fields(Parts)}
    of_parts |= {  # the parts that come from the coordinators
        name: signature(one.fget).return_annotation
        for name, one in vars(Parts).items()
        if isinstance(one, property) and one.fget is not None
    }
    assert {name: of_parts.get(name) for name, _ in taken} == dict(taken)
    if isinstance(handler, partial):
        assert [getattr(host.parts, name) for name, _ in taken] == list(handler.args)
    else:
        for name, _ in taken:
            held = getattr(holder, f"_{name}", None) or getattr(holder, name)
            assert held is getattr(host.parts, name)
    if "module" not in str(parameters[at][1]) and parameters[at][1] not in ("Any", "Request"):
        name = str(parameters[at][1]).rpartition(".")[2]
        assert name in (f"{api.name}Request", f"{api.name}WithHostsRequest")


def parameters_of(function: Any) -> list[tuple[str, Any]]:
    return [(one.name, one.annotation) for one in signature(function).parameters.values()]


def test_each_handler_is_named_by_a_row() -> None:
    """Rows name handlers as strings, which the check for dead code does not see."""
    broker = Path(handlers.__path__[0])
    table = (broker.parent / "dispatch.py").read_text()
    named = {
        f"{path.stem}:{node.name}"
        for path in broker.glob("*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
        and (node.name.startswith("on_") or node.name.endswith("Handler"))
    }
    assert len(named) > 30
    assert {name for name in named if f'"{name}' not in table} == set()

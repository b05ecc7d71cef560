"""Requests with very many elements are decoded elsewhere, and handled as if they came only now. And
the table of what answers each request.
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
from barnabas.broker.requests.dispatch import ROWS
from barnabas.broker.requests.parts import Parts
from barnabas.broker.requests.routes import Route
from barnabas.protocol.api_table import APIS, Api
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

PING_VERSION = METADATA_VERSION = 4


def asking(count: int) -> Any:
    """A Metadata request for so many topics that do not exist, and for "t"."""
    names = [f"missing-{number:05}" for number in range(count)]
    return MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in [*names, "t"]],
        allow_auto_topic_creation=False,
    )


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
    ), "as things are when it is handled"


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


def test_an_error_of_ours_in_a_long_request_ends_its_connection_alone(
    host: CoreHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise KeyError("ours")

    row = Route("Metadata", lambda *_: (None, 0), fail)
    monkeypatch.setitem(host.broker.routes.loaded, 3, row)
    host.ask(host.connect(1), asking(COUNT), METADATA_VERSION)
    host.finish_work()
    assert "please report it" in host.closed[1]


# --- the table -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def table_host(tmp_path_factory: pytest.TempPathFactory) -> CoreHost:
    return CoreHost(tmp_path_factory.mktemp("table"))


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_a_row_names_what_its_handler_takes_and_the_handler_its_request(
    table_host: CoreHost, api: Api
) -> None:
    """A row names parts by text, which no check of types sees."""
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
            if [name for name, _ in taken] == ["parts"]:  # they have a type of their own
                holder = handler.__self__._parts
                taken = [
                    (name, one.__forward_arg__) for name, one in holder.__annotations__.items()
                ]
    parameters = parameters_of(function)
    if isinstance(handler, MethodType):
        parameters = parameters[1:]
    at = next((at for at, (name, _) in enumerate(parameters) if name == "request"), None)
    if at is None:
        return  # made by a coordinator's row
    taken += parameters[:at]
    of_parts = {field.name: field.type for field in fields(Parts)}
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
    """Rows name handlers by text, so the check for dead code passes over them."""
    broker = Path(handlers.__path__[0])
    table = (broker.parent / "requests" / "dispatch.py").read_text()
    named = {
        f"{path.stem}:{node.name}"
        for path in broker.glob("*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
        and (node.name.startswith("on_") or node.name.endswith("Handler"))
    }
    assert len(named) > 30
    assert {name for name in named if f'"{name}' not in table} == set()

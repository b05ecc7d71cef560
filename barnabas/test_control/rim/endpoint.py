"""The control endpoint: HTTP on 127.0.0.1, for a test in any language.

    GET    /                       this list of requests
    GET    /time                   {"wall_ms", "ahead_ms", "frozen"}
    POST   /time/advance           {"days", "hours", "minutes", "seconds", "ms"}: any of them
    POST   /time/freeze            and /time/unfreeze
    GET    /faults                 the faults in force
    POST   /faults                 add one (its fields: test_control/faults.py); gives its id
    POST   /faults/ID/release      release the requests that it holds
    DELETE /faults/ID              and /faults for all
    GET    /requests               the journal; ?api=, client_id=, topic=, group=,
                                   transactional_id=, outcome=, after=NUMBER
    DELETE /requests               clear it
    GET    /connections            the open connections
    POST   /connections/close      {"client_id"}: all, or those of a client
    POST   /connections/refuse     and /connections/accept
    GET    /brokers                the brokers of this process, and what each leads
    POST   /brokers/ID/take-away   the broker stops; other brokers become the leaders
    POST   /brokers/ID/give-back   the broker starts again, at its old port
    POST   /brokers/ID/controller  Metadata names it as the controller
    GET    /leaders                ?topic=, partition=: {"leader"}, null where no broker leads it
    POST   /leaders                {"topic", "partition", "broker"}: move the leader there
    POST   /coordinators           {"group" or "transactional_id", "broker"}: move it there
    POST   /lose-power             what was not flushed is lost, and the process ends as in a crash

Answers are JSON; an error is {"error": a sentence} with status 400 (the request is wrong), 404 or
500. A request whose Host is not this machine, or whose Origin is not its Host, is refused (403), so
that a web page of another site or port cannot use it.
"""

from __future__ import annotations

import json
import logging
import re
import socket
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from barnabas.process.http_server import (
    HttpServer,
    Request,
    Response,
    error_response,
    in_loop,
    json_response,
)
from barnabas.test_control.faults import Action, fault_of
from barnabas.test_control.observed import api_named
from barnabas.test_control.rim.control import OUTCOMES, Control, Exchange

logger = logging.getLogger("barnabas.control")

_NUMBER = re.compile(r"[0-9]{1,18}")
LONGEST_ADVANCE_MS = 100 * 366 * 86_400_000
_UNITS_MS = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1000, "ms": 1}
_FILTERS = ("api", "client_id", "topic", "group", "transactional_id", "outcome", "after")

Values = Mapping[str, Any]


class ControlEndpoint:
    """The HTTP server, which has its own threads. The calls run in the loop's thread."""

    def __init__(self, control: Control, sock: socket.socket) -> None:
        self._control = control
        self._http = HttpServer(sock, self._answer, "control", changes_things=True)

    @property
    def url(self) -> str:
        """The address at which the endpoint listens."""
        return self._http.url

    def _answer(self, request: Request) -> Response:
        """The answer to an HTTP request. ValueError becomes status 400, KeyError becomes 404."""
        try:
            values = json.loads(request.body) if request.body else {}
            if not isinstance(values, dict):
                raise ValueError("the body has to be a JSON object")
            call = _route(self._control, request.method, request.path)
            if call is None:
                return error_response(
                    404, f"there is no {request.method} {request.path}: see GET /"
                )
            return json_response(self._in_loop(call, {**request.query, **values}))
        except ValueError as error:
            return error_response(400, str(error))
        except KeyError as error:
            return error_response(404, f"there is no {error.args[0]}")

    def _in_loop(self, call: Callable[[Values], Awaitable[Any]], values: Values) -> Any:
        """Call a function in the loop's thread, and wait for its result."""

        async def run() -> Any:
            return await call(values)

        return in_loop(self._control.server.loop, run())


def _route(control: Control, method: str, path: str) -> Callable[[Values], Awaitable[Any]] | None:
    """The function for a method and a path; see the table in the module docstring."""
    parts = [part for part in path.split("/") if part]
    calls = _Calls(control)
    call = _CALLS_BY_PATH.get((method, *parts))
    if call is not None:
        return partial(call, calls)
    match (method, *parts):
        case ("POST", "time", "freeze" | "unfreeze" as verb):
            return lambda _: calls.freeze(verb == "freeze")
        case ("POST", "faults", number, "release"):
            return lambda _: calls.release(_number(number))
        case ("DELETE", "faults", number):
            return lambda _: calls.remove_fault(_number(number))
        case ("POST", "connections", "refuse" | "accept" as verb):
            return lambda _: calls.refuse(verb == "refuse")
        case ("POST", "brokers", number, "take-away" | "give-back" | "controller" as verb):
            return lambda _: calls.change_broker(_node_id(number), verb)
    return None


def _number(text: str) -> int:
    """The number of a fault in a path. Raises: ValueError."""
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"{text!r} is not the number of a fault")
    return int(text)


def _node_id(value: object) -> int:
    """The id of a broker in a path or a body. Raises: ValueError."""
    if isinstance(value, bool) or not _NUMBER.fullmatch(str(value)):
        raise ValueError(f"{value!r} is not the id of a broker: see GET /brokers")
    return int(str(value))


class _Calls:
    """The functions that the endpoint calls. Each runs in the loop's thread."""

    def __init__(self, control: Control) -> None:
        self._control = control

    async def help(self, _: Values) -> Any:
        lines = (__doc__ or "").partition("\n\n")[2].partition("\n\n")[0].splitlines()
        return {"barnabas": "test control", "requests": [line.strip() for line in lines]}

    async def time(self, _: Values) -> Any:
        clock = self._control.clock
        return {
            "wall_ms": clock.wall_ms(),
            "ahead_ms": clock.ahead_ms,
            "frozen": clock.is_frozen,
        }

    async def advance(self, values: Values) -> Any:
        """Move the time forward by the sum of the given units (such as minutes and seconds), and
        wait until all due work is done.
        """
        unknown = [name for name in values if name not in _UNITS_MS]
        if unknown or not values:
            raise ValueError(f"say by how much, with numbers in any of {', '.join(_UNITS_MS)}")
        by_ms = 0.0
        for name, value in values.items():
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise ValueError(f"`{name}` has to be a number, not {value!r}")
            by_ms += value * _UNITS_MS[name]
        if not by_ms <= LONGEST_ADVANCE_MS:
            raise ValueError("the clock can be moved by a hundred years at most")
        await self._control.advance(round(by_ms))
        return await self.time({})

    async def freeze(self, freeze: bool) -> Any:
        self._control.set_frozen(freeze)
        return await self.time({})

    async def faults(self, _: Values) -> Any:
        return [fault.as_values() for fault in self._control.faults]

    async def add_fault(self, values: Values) -> Any:
        return self._control.add_fault(fault_of(values)).as_values()

    async def release(self, number: int) -> Any:
        """Release the requests that a fault of the action HOLD holds; later requests are held
        again.
        """
        fault = self._control.faults[number]
        if fault.action is not Action.HOLD:
            raise ValueError(f"a fault that is `{fault.action.value}` holds no request")
        self._control.release(number)
        return {}

    async def remove_fault(self, number: int) -> Any:
        return self._control.remove_fault(number).as_values()

    async def remove_all_faults(self, _: Values) -> Any:
        return [fault.as_values() for fault in self._control.remove_all_faults()]

    async def requests(self, values: Values) -> Any:
        """The requests in the journal that pass all filters."""
        unknown = [name for name in values if name not in _FILTERS]
        if unknown:
            raise ValueError(f"unknown filter {unknown[0]!r}: use {', '.join(_FILTERS)}")
        for name, value in values.items():
            if name != "after" and not isinstance(value, str):
                raise ValueError(f"`{name}` has to be a text, not {value!r}")
        if "api" in values:
            api_named(str(values["api"]))
        if values.get("outcome", OUTCOMES[0]) not in OUTCOMES:
            raise ValueError(f"`outcome` has to be one of: {', '.join(OUTCOMES)}")
        if not _NUMBER.fullmatch(str(values.get("after", 0))):
            raise ValueError(f"`after` has to be the number of a request, not {values['after']!r}")
        after = int(str(values.get("after", 0)))
        return [
            exchange.as_values()
            for exchange in self._control.journal
            if exchange.number > after and _is_wanted(exchange, values)
        ]

    async def forget_requests(self, _: Values) -> Any:
        self._control.journal.clear()
        return {}

    async def connections(self, _: Values) -> Any:
        return self._control.connection_values()

    async def close_connections(self, values: Values) -> Any:
        return {"closed": self._control.close_connections(values.get("client_id"))}

    async def refuse(self, refuse: bool) -> Any:
        self._control.refuse_connections(refuse)
        return {"refused": refuse}

    async def brokers(self, _: Values) -> Any:
        return self._control.broker_values()

    async def change_broker(self, node_id: int, verb: str) -> Any:
        if verb == "take-away":
            self._control.take_away(node_id)
        elif verb == "give-back":
            self._control.give_back(node_id)
        else:
            self._control.change(self._control.server.nodes.set_controller, node_id)
        return await self.brokers({})

    async def leader(self, values: Values) -> Any:
        """The leader of a partition; null if it has none. Raises: KeyError if the partition does
        not exist.
        """
        topic, index = _values_of(values, "topic", "partition")
        leaders = dict(enumerate(self._control.server.nodes.leaders(str(topic))))
        leader = leaders.get(int(str(index))) if _NUMBER.fullmatch(str(index)) else None
        if leader is None:
            raise KeyError(f"partition {topic}-{index}")
        return {"leader": leader if leader >= 0 else None}

    async def move_leader(self, values: Values) -> Any:
        topic, index, node_id = _values_of(values, "topic", "partition", "broker")
        if not _NUMBER.fullmatch(str(index)):
            raise ValueError(f"`partition` has to be a partition's index, not {index!r}")
        self._control.change(
            self._control.server.nodes.move_leader,
            str(topic), int(index), _node_id(node_id), self._control.server.now_ms(),
        )  # fmt: skip
        return await self.brokers({})

    async def move_coordinator(self, values: Values) -> Any:
        kind, name = ("group", "group")
        if "transactional_id" in values:
            kind, name = ("transaction", "transactional_id")
        key, node_id = _values_of(values, name, "broker")
        self._control.change(
            self._control.server.nodes.move_coordinator,
            kind, str(key), _node_id(node_id), self._control.server.now_ms(),
        )  # fmt: skip
        return await self.brokers({})

    async def lose_power(self, _: Values) -> Any:
        self._control.lose_power()
        return {}


_CALLS_BY_PATH: dict[tuple[str, ...], Callable[[_Calls, Values], Awaitable[Any]]] = {
    ("GET",): _Calls.help,
    ("GET", "time"): _Calls.time,
    ("POST", "time", "advance"): _Calls.advance,
    ("GET", "faults"): _Calls.faults,
    ("POST", "faults"): _Calls.add_fault,
    ("DELETE", "faults"): _Calls.remove_all_faults,
    ("GET", "requests"): _Calls.requests,
    ("DELETE", "requests"): _Calls.forget_requests,
    ("GET", "connections"): _Calls.connections,
    ("POST", "connections", "close"): _Calls.close_connections,
    ("GET", "brokers"): _Calls.brokers,
    ("GET", "leaders"): _Calls.leader,
    ("POST", "leaders"): _Calls.move_leader,
    ("POST", "coordinators"): _Calls.move_coordinator,
    ("POST", "lose-power"): _Calls.lose_power,
}
"""The calls whose paths have no variable parts."""


def _values_of(values: Values, *names: str) -> list[Any]:
    """The values with the given names, in their order. Raises: ValueError if one is missing, or if
    there are others.
    """
    if set(values) != set(names):
        raise ValueError(f"give {', '.join(names)}, and nothing else")
    return [values[name] for name in names]


def _is_wanted(exchange: Exchange, values: Values) -> bool:
    """Whether a request of the journal passes the filters; a missing filter passes all requests."""
    request = exchange.request
    return (
        values.get("api", request.api.name).lower() == request.api.name.lower()
        and values.get("client_id", request.client_id) == request.client_id
        and ("topic" not in values or values["topic"] in request.topics)
        and ("group" not in values or values["group"] in request.groups)
        and (
            "transactional_id" not in values
            or values["transactional_id"] in request.transactional_ids
        )
        and values.get("outcome", exchange.outcome) == exchange.outcome
    )

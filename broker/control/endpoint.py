"""The control endpoint: HTTP on 127.0.0.1, for a test in any language.

    GET    /                       what there is
    GET    /time                   {"wall_ms", "ahead_ms", "frozen"}
    POST   /time/advance           {"days", "hours", "minutes", "seconds", "ms"}: any of them
    POST   /time/freeze            and /time/unfreeze
    GET    /faults                 those that hold
    POST   /faults                 one more: broker/control/faults.py has its fields; gives its id
    POST   /faults/ID/release      let the requests go on that it holds
    DELETE /faults/ID              and /faults for all
    GET    /requests               the journal; ?api=, client_id=, topic=, group=,
                                   transactional_id=, outcome=, after=NUMBER
    DELETE /requests               begin it anew
    GET    /connections            who is connected
    POST   /connections/close      {"client_id"}: all, or those of a client
    POST   /connections/refuse     and /connections/accept
    POST   /lose-power             what was not flushed is lost, and the process ends as in a crash

Answers are JSON; an error is {"error": a sentence} with status 400 (the request is wrong), 404 or
500. A request whose Host or Origin is not this machine's own is refused (403): a page of elsewhere,
in a browser here, is not to reach it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from barnabas.broker.control.faults import fault_of
from barnabas.broker.control.server import ControlledServer, Exchange

logger = logging.getLogger("barnabas.control")

ANSWER_WITHIN_S = 60.0
LONGEST_BODY_BYTES = 1 << 20
LONGEST_ADVANCE_MS = 100 * 366 * 86_400_000
_OWN_HOSTS = ("127.0.0.1", "localhost")
_UNITS_MS = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1000, "ms": 1}
_FILTERS = ("api", "client_id", "topic", "group", "transactional_id", "outcome", "after")

Values = Mapping[str, Any]


class ControlEndpoint:
    """The HTTP server, in a thread of its own; what it is asked to do is done in the loop's."""

    def __init__(self, server: ControlledServer, port: int) -> None:
        self._server = server
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                endpoint._serve(self)

            do_POST = do_DELETE = do_GET

            def log_message(self, format: str, *arguments: object) -> None:
                logger.debug(format, *arguments)

        self._http = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._http.daemon_threads = True
        threading.Thread(target=self._http.serve_forever, name="control", daemon=True).start()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._http.server_address[1])

    def close(self) -> None:
        """Listen no more."""
        self._http.shutdown()
        self._http.server_close()

    def _serve(self, request: BaseHTTPRequestHandler) -> None:
        status, answer = self._answer(request)
        body = json.dumps(answer).encode() + b"\n"
        request.send_response(status)
        request.send_header("Content-Type", "application/json")
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    def _answer(self, request: BaseHTTPRequestHandler) -> tuple[int, Any]:
        headers = request.headers
        host = (headers.get("Host") or "").rsplit(":", 1)[0]
        origin = headers.get("Origin")
        length = headers.get("Content-Length") or "0"
        if not (length.isascii() and length.isdigit()) or "Transfer-Encoding" in headers:
            request.close_connection = True  # where its body ends cannot be said
            return 400, {"error": "a body needs its Content-Length, and no Transfer-Encoding"}
        size = int(length[:20])
        is_own = host in _OWN_HOSTS and (origin is None or _host_of(origin) in _OWN_HOSTS)
        if not is_own or size > LONGEST_BODY_BYTES:
            request.close_connection = True  # its body is not read
            return 403, {"error": "only 127.0.0.1 may ask here, and no more than a mebibyte"}
        try:
            body = request.rfile.read(size)
            values = json.loads(body) if body else {}
            if not isinstance(values, dict):
                raise ValueError("the body has to be a JSON object")
            url = urlsplit(request.path)
            call = _route(self._server, str(request.command), url.path)
            if call is None:
                return 404, {"error": f"there is no {request.command} {url.path}: see GET /"}
            return 200, self._in_loop(call, {**dict(parse_qsl(url.query)), **values})
        except ValueError as error:
            return 400, {"error": str(error)}
        except KeyError as error:
            return 404, {"error": f"there is no {error.args[0]}"}
        except Exception as error:
            logger.exception("%s %s", request.command, request.path)
            return 500, {"error": repr(error)}

    def _in_loop(self, call: Callable[[Values], Awaitable[Any]], values: Values) -> Any:
        async def run() -> Any:
            return await call(values)

        return asyncio.run_coroutine_threadsafe(run(), self._server.loop).result(ANSWER_WITHIN_S)


def _route(
    server: ControlledServer, method: str, path: str
) -> Callable[[Values], Awaitable[Any]] | None:
    """What does it; the module's table tells each."""
    parts = [part for part in path.split("/") if part]
    calls = _Calls(server)
    match (method, *parts):
        case ("GET",):
            return calls.help
        case ("GET", "time"):
            return calls.time
        case ("POST", "time", "advance"):
            return calls.advance
        case ("POST", "time", "freeze" | "unfreeze" as verb):
            return lambda _: calls.freeze(verb == "freeze")
        case ("GET", "faults"):
            return calls.faults
        case ("POST", "faults"):
            return calls.add_fault
        case ("POST", "faults", number, "release"):
            return lambda _: calls.release(_number(number))
        case ("DELETE", "faults", number):
            return lambda _: calls.remove_fault(_number(number))
        case ("DELETE", "faults"):
            return calls.remove_all_faults
        case ("GET", "requests"):
            return calls.requests
        case ("DELETE", "requests"):
            return calls.forget_requests
        case ("GET", "connections"):
            return calls.connections
        case ("POST", "connections", "close"):
            return calls.close_connections
        case ("POST", "connections", "refuse" | "accept" as verb):
            return lambda _: calls.refuse(verb == "refuse")
        case ("POST", "lose-power"):
            return calls.lose_power
    return None


def _host_of(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def _number(text: str) -> int:
    if not text.isdigit():
        raise ValueError(f"{text!r} is no number of a fault")
    return int(text)


class _Calls:
    """What the endpoint can be asked to do; each runs in the loop's thread."""

    def __init__(self, server: ControlledServer) -> None:
        self._server = server

    async def help(self, _: Values) -> Any:
        lines = (__doc__ or "").partition("\n\n")[2].partition("\n\n")[0].splitlines()
        return {"barnabas": "test control", "requests": [line.strip() for line in lines]}

    async def time(self, _: Values) -> Any:
        clock = self._server.clock
        return {
            "wall_ms": clock.wall_ms(),
            "ahead_ms": clock.ahead_ms,
            "frozen": clock.is_frozen,
        }

    async def advance(self, values: Values) -> Any:
        unknown = [name for name in values if name not in _UNITS_MS]
        if unknown or not values:
            raise ValueError(f"by how much: any of {', '.join(_UNITS_MS)}, as numbers")
        by_ms = 0.0
        for name, value in values.items():
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise ValueError(f"`{name}` has to be a number, not {value!r}")
            by_ms += value * _UNITS_MS[name]
        if not by_ms <= LONGEST_ADVANCE_MS:
            raise ValueError("time goes on by a hundred years at most")
        await self._server.advance(round(by_ms))
        return await self.time({})

    async def freeze(self, freeze: bool) -> Any:
        self._server.set_frozen(freeze)
        return await self.time({})

    async def faults(self, _: Values) -> Any:
        return [fault.told() for fault in self._server.faults]

    async def add_fault(self, values: Values) -> Any:
        return self._server.add_fault(fault_of(values)).told()

    async def release(self, number: int) -> Any:
        self._server.release(number)
        return {}

    async def remove_fault(self, number: int) -> Any:
        return self._server.remove_fault(number).told()

    async def remove_all_faults(self, _: Values) -> Any:
        return [fault.told() for fault in self._server.remove_all_faults()]

    async def requests(self, values: Values) -> Any:
        unknown = [name for name in values if name not in _FILTERS]
        if unknown:
            raise ValueError(f"no filter {unknown[0]!r}: there are {', '.join(_FILTERS)}")
        for name, value in values.items():
            if name != "after" and not isinstance(value, str):
                raise ValueError(f"`{name}` has to be a text, not {value!r}")
        after = int(str(values.get("after", 0)))
        return [
            exchange.told()
            for exchange in self._server.journal
            if exchange.number > after and _is_wanted(exchange, values)
        ]

    async def forget_requests(self, _: Values) -> Any:
        self._server.journal.clear()
        return {}

    async def connections(self, _: Values) -> Any:
        return self._server.told_connections()

    async def close_connections(self, values: Values) -> Any:
        return {"closed": self._server.close_connections(values.get("client_id"))}

    async def refuse(self, refuse: bool) -> Any:
        self._server.refuse_connections(refuse)
        return {"refused": refuse}

    async def lose_power(self, _: Values) -> Any:
        self._server.lose_power()
        return {}


def _is_wanted(exchange: Exchange, values: Values) -> bool:
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

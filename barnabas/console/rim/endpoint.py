"""The console's HTTP server: the page's files, and its data as JSON.

    GET /                            the page; its scripts and styles have paths of their own
    GET /api/overview      ?search=&internal=           totals, topics with strips, the oldest
                                                        transactions, groups that wait or are behind
    GET /api/topics        ?search=&internal=&sort=&order=&first=&count=
                                                        a part of the list of all topics
    GET /api/topic         ?topic=&page=                strips of all partitions of a topic
    GET /api/partition     ?topic=&partition=&before=   a longer strip, and why it is stuck
    GET /api/records       ?topic=&partition=&offset=&count=
    GET /api/search        ?topic=&text=&filter=&from=&to=&partitions=&cursor=&after=&count=
                                                        records of a topic, the newest first
    GET /api/download      the same query, &decoded=    all records found, as lines of JSON
    GET /api/transactions  ?search=&sort=&order=&first=&count=
                                                        a part of the list of open transactions
    GET /api/transaction   ?producer=&sort=&order=&first=&count=
                                                        one transaction, a part of its partitions
    GET /api/groups        ?search=&sort=&order=&first=&count=
    GET /api/group         ?group=&of=&sort=&order=&first=&count=
                                                        a part of its offsets, members or in_flight
    GET /api/requests                                   requests and errors by API
    GET /api/settings      ?topic=
    GET /api/security                                   ACLs, users and quotas
    POST /api/login, /api/logout                        {user, password}; a session's cookie
    POST /api/produce, /api/replay                      with `barnabas.console.writes`; see `writes`

An error is {"error": a sentence}, with status 400, 401, 403, 404, 429 or 503; `at` is the position
of an error in a filter. If the broker has users, everything but the page's files needs a session
(`logins`), and shows only what its user may read. A POST needs a body of JSON, and an Origin equal
to its Host if there is one, so that pages of other sites and ports cannot send a POST.

The cost to the broker's loop: the broker is observed (`observation.observe`) in slices, and so
rarely that this takes at most a twentieth of the time, however many pages are open. Batches are
read in the connection's thread. Requests are counted only until WATCHED_S after the last response
to a page.
"""

from __future__ import annotations

import json
import logging
import mimetypes
import re
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from importlib import resources
from typing import TYPE_CHECKING, Any

from barnabas.broker.seams.host import Host
from barnabas.broker.security.acls import CLUSTER_NAME, Operation, ResourceType
from barnabas.broker.settings.config import BrokerConfig
from barnabas.console import views
from barnabas.console.rim.admin_views import AdminViews
from barnabas.console.rim.group_views import GroupViews
from barnabas.console.rim.inner_client import InnerClientError
from barnabas.console.rim.log_views import LogViews
from barnabas.console.rim.logins import LoginNeeded, Logins
from barnabas.console.rim.record_views import RecordViews
from barnabas.console.rim.source import BadRequest, Query, Source, Viewer
from barnabas.console.rim.watch import Watch
from barnabas.console.rim.writes import Writes
from barnabas.process.http_server import (
    HttpServer,
    Request,
    Response,
    error_response,
    json_response,
)
from barnabas.protocol.errors import KafkaError
from barnabas.storage.files.segment_files import CorruptLog
from barnabas.version import __version__

if TYPE_CHECKING:
    from barnabas.console.rim.decoder import Decoder

logger = logging.getLogger("barnabas.console")

SWITCH_INTERVAL_S = 0.001  # as for the broker's worker
BUSY_AFTER_S = 10.0
SEARCHES_AT_ONCE = 2
_MOST_SAFE = 2**53 - 1  # of a whole number in JavaScript
_LONG_NUMBER = re.compile(rb"\d{16}")

SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}

Call = Callable[[Viewer, Query], Any]


class Console:
    """The console's HTTP server.

    Each connection has a thread, which computes the responses. A lock ensures that only one thread
    at a time computes a view. Searches, records and writes do not take it while they read and
    decode, so that a page is not delayed by what records contain; SEARCHES_AT_ONCE bounds their
    share of the interpreter.
    """

    def __init__(self, server: Host, sock: socket.socket) -> None:
        self._server = server
        self._files = _files()
        self._turn = threading.Lock()
        self._writing = threading.Lock()  # all of them use one transactional id
        self._searches = threading.Semaphore(SEARCHES_AT_ONCE)
        self._source = source = Source(server)
        self._watch = Watch(server)
        self._logins = Logins(source, sock.getsockname()[1])
        groups = GroupViews(source)
        admin = AdminViews(source)
        self._decoder = _decoder(server.state.config)
        logs, self._records = LogViews(source, groups), RecordViews(source, self._decoder)
        self._calls: dict[str, Call] = {
            "/api/overview": logs.overview,
            "/api/topics": logs.topics,
            "/api/topic": logs.topic,
            "/api/partition": logs.partition,
            "/api/transactions": logs.transactions,
            "/api/transaction": logs.transaction,
            "/api/groups": groups.groups,
            "/api/group": groups.group,
            "/api/requests": self._requests,
            "/api/settings": admin.settings,
            "/api/security": admin.security,
        }
        self._searching: dict[str, Call] = {
            "/api/records": self._records.records,
            "/api/search": self._records.search,
        }
        writes = Writes(source, self._records)
        self._writes: dict[str, Callable[[Viewer, Mapping[str, Any]], Any]] = {
            "/api/produce": writes.produce,
            "/api/replay": writes.replay,
        }
        # A search keeps its thread busy. This interval limits how long the loop waits for the
        # interpreter.
        sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_INTERVAL_S))
        self._http = HttpServer(sock, self.answer, "console")

    @property
    def url(self) -> str:
        """The address of the page for a browser on this machine."""
        return self._http.url

    @property
    def needs_login(self) -> bool:
        """Whether the page requires a login."""
        return self._logins.are_needed

    def close(self) -> None:
        """Stop listening."""
        self._source.sampler.close()
        self._http.close()
        if self._decoder is not None:
            self._decoder.close()

    # --- requests --------------------------------------------------------------------------------

    def answer(self, request: Request) -> Response:
        """The response to one request."""
        response = self._answer(request)
        return response._replace(headers={**SECURITY_HEADERS, **response.headers})

    def _answer(self, request: Request) -> Response:
        """The answer without the security headers: a file of the page, data, or an error."""
        file = self._files.get(request.path)
        if file is not None and request.method == "GET":
            return Response(200, file[1], file[0])
        try:
            if request.method == "POST":
                return self._answer_post(request)
            if request.method != "GET":
                return error_response(405, "The console takes GET and POST only.")
            return self._answer_get(request)
        except LoginNeeded:
            return json_response({"error": "Log in first.", "login": True}, 401)
        except BadRequest as error:
            return _refusal(error)

    def _answer_get(self, request: Request) -> Response:
        """The answer to a GET of data: a download, or a view as JSON."""
        viewer = self._logins.viewer(request)
        if request.path == "/api/download":
            return self._guarded(self._searches, lambda: self._download(viewer, request.query))
        if search := self._searching.get(request.path):
            return self._guarded(
                self._searches, lambda: self._found(viewer, search(viewer, request.query))
            )
        call = self._calls.get(request.path)
        if call is None:
            return error_response(404, f"There is nothing at {request.path}.")
        return self._guarded(
            self._turn,
            lambda: _view_response({**call(viewer, request.query), **self._now(viewer)}),
        )

    def _found(self, viewer: Viewer, found: Mapping[str, Any]) -> Response:
        """The answer with what a search has found. Only now it takes its turn among the views."""
        return self._guarded(self._turn, lambda: _view_response({**found, **self._now(viewer)}))

    # --- changes ---------------------------------------------------------------------------------

    def _answer_post(self, request: Request) -> Response:
        """The answer to a POST."""
        body = _body(request)
        if request.path == "/api/login":
            cookie = self._logins.log_in(request, body.get("user"), body.get("password"))
            return json_response({})._replace(headers={"Set-Cookie": cookie})
        if request.path == "/api/logout":
            return json_response({})._replace(headers={"Set-Cookie": self._logins.log_out(request)})
        viewer = self._logins.viewer(request)
        write = self._writes.get(request.path)
        if write is None:
            return error_response(405, f"{request.path} takes GET only.")
        if not self._server.state.config.barnabas_console_writes:
            raise BadRequest(
                "The console is read-only. Start the broker with --console-writes to let it "
                "produce and replay records.",
                403,
            )
        return self._guarded(self._writing, lambda: _view_response(write(viewer, body)))

    def _guarded(
        self, turn: threading.Lock | threading.Semaphore, answer: Callable[[], Response]
    ) -> Response:
        """Compute a response under a lock. An exception becomes an error response."""
        if not turn.acquire(timeout=BUSY_AFTER_S):
            return error_response(503, "Too many requests at once: try again in a while.")
        try:
            self._source.run(self._watch.touch())
            return answer()
        except BadRequest as error:
            return _refusal(error)
        except InnerClientError as error:
            return error_response(503, f"The broker did not answer: {error}.")
        except KafkaError as error:
            return error_response(404, f"{error} ({error.code.name})")
        except (CorruptLog, OSError) as error:
            return error_response(503, f"The log cannot be read: {error}")
        finally:
            turn.release()

    def _download(self, viewer: Viewer, query: Query) -> Response:
        """The records that a search finds, as a file of JSON lines."""
        lines = self._records.download(viewer, query)
        name = "".join(
            letter for letter in query.get("topic", "") if letter.isalnum() or letter in "._-"
        )
        return Response(
            200,
            lines,
            "application/x-ndjson",
            {"Content-Disposition": f'attachment; filename="{name}.jsonl"'},
        )

    def _now(self, viewer: Viewer) -> dict[str, Any]:
        """The fields that every answer with data has: the broker, the user, and totals for the
        page's header.
        """
        broker, state = self._source.look(viewer), self._server.state
        addresses = [f"{host}:{port}" for host, port in self._server.addresses]
        return {
            "now_ms": broker.observed.wall_ms,
            "broker": {
                "version": __version__,
                "node_id": state.config.node_id,
                "address": ",".join(addresses),
                "connections": state.connection_count,
            },
            "user": viewer.principal.partition(":")[2] if self._logins.are_needed else None,
            "writes": bool(state.config.barnabas_console_writes),
            "registry": self._decoder is not None,
            "totals": views.totals(broker),
            "requests": self._watch.totals(),
            "problem": state.space_problem(),
        }

    def _requests(self, viewer: Viewer, query: Query) -> Any:
        self._source.require(viewer, Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
        return {"apis": self._watch.by_api(), "errors": self._watch.errors()}


def _decoder(config: BrokerConfig) -> Decoder | None:
    """The decoder of keys and values; None if there is no schema registry."""
    if not config.barnabas_console_registry:
        return None
    from barnabas.console.rim.decoder import Decoder

    return Decoder(
        {
            "url": config.barnabas_console_registry,
            "user_info": f"{config.barnabas_console_registry_user}:"
            f"{config.barnabas_console_registry_password or ''}"
            if config.barnabas_console_registry_user
            else "",
            "token": config.barnabas_console_registry_token or "",
            "ca": config.barnabas_console_registry_ca_file,
            "certificate": config.barnabas_console_registry_certificate_file,
            "key": config.barnabas_console_registry_key_file,
            "key_password": config.barnabas_console_registry_key_password or "",
        }
    )


def _view_response(value: Any) -> Response:
    """A view as JSON. A whole number that JavaScript cannot hold, such as an offset or a time that
    a client has chosen, is a string of its digits.
    """
    response = json_response(value)
    assert isinstance(response.body, bytes)
    return json_response(_for_javascript(value)) if _LONG_NUMBER.search(response.body) else response


def _for_javascript(value: Any) -> Any:
    """The value, with strings for whole numbers that JavaScript cannot hold."""
    if isinstance(value, dict):
        return {name: _for_javascript(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_for_javascript(one) for one in value]
    is_long = isinstance(value, int) and abs(value) > _MOST_SAFE
    return str(value) if is_long else value


def _refusal(error: BadRequest) -> Response:
    value = {"error": str(error)} | ({} if error.at is None else {"at": error.at})
    return json_response(value, error.status)


def _body(request: Request) -> dict[str, Any]:
    """The JSON object in the body of a POST. The POST has to come from this page, or from a client
    that is not a browser.

    Raises: BadRequest.
    """
    origin, host = request.headers.get("Origin"), request.headers.get("Host") or ""
    if origin is not None and origin.partition("://")[2].lower() != host.lower():
        raise BadRequest("Requests from pages of other hosts are refused.", 403)
    if request.headers.get_content_type() != "application/json":
        raise BadRequest("The body has to be JSON, with the Content-Type application/json.")
    try:
        body = json.loads(request.body)
    except (ValueError, RecursionError) as error:
        raise BadRequest("The body is not JSON.") from error
    if not isinstance(body, dict):
        raise BadRequest("The body has to be a JSON object.")
    return body


def _files() -> dict[str, tuple[str, bytes]]:
    """The page's files by path, each as its content type and its content."""
    files = {}
    for file in resources.files("barnabas.console").joinpath("static").iterdir():
        kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
        if kind in ("text/html", "text/css", "text/javascript"):
            kind += "; charset=utf-8"
        path = "/" if file.name == "index.html" else f"/{file.name}"
        files[path] = (kind, file.read_bytes())
    return files

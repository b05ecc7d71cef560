"""The console's HTTP server: the page's files, and its data as JSON. All of it is read-only.

    GET /                            the page; its scripts and styles have paths of their own
    GET /api/overview      ?search=&page=&internal=     totals, topics with strips, the oldest
                                                        transactions, groups that wait or are behind
    GET /api/topic         ?topic=&page=                strips of all partitions of a topic
    GET /api/partition     ?topic=&partition=&before=   a longer strip, and why it is stuck
    GET /api/records       ?topic=&partition=&offset=&count=
    GET /api/transactions  ?page=                       all open transactions
    GET /api/groups        ?search=&page=
    GET /api/group         ?group=&page=                members, and offsets by partition
    GET /api/requests                                   requests and errors by API

An error is {"error": a sentence}, with status 400, 404 or 503.

The cost to the broker's loop: the broker is observed (`observation.observe`) in slices, and at most
so often that this takes a twentieth of the time, however many pages are open. Batches are read in
the connection's thread. While no page is open nothing is computed: requests are counted only until
WATCHED_S after the last answer to a page.
"""

from __future__ import annotations

import asyncio
import logging
import mimetypes
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from importlib import resources
from typing import TYPE_CHECKING, Any, TypeVar

from barnabas.broker.console import views
from barnabas.broker.console.groups import describe_members
from barnabas.broker.console.records import MOST_RECORDS, read_records, take_records
from barnabas.broker.console.request_counts import RequestCounts
from barnabas.broker.console.spans import (
    MOST_INDEX_ENTRIES,
    Strip,
    Window,
    read_strip,
    take_window,
)
from barnabas.broker.handlers.transactions import client_host
from barnabas.broker.observation.error_counts import ErrorCounts
from barnabas.broker.observation.observe import (
    GroupState,
    Look,
    PartitionState,
    look_at_groups,
    look_at_partitions,
    look_at_transactional_ids,
)
from barnabas.broker.rim.http_server import (
    HttpServer,
    Request,
    Response,
    error_response,
    in_slices,
    json_response,
)
from barnabas.protocol.api_table import BY_KEY
from barnabas.protocol.errors import Code, KafkaError
from barnabas.storage.files.segment_files import CorruptLog
from barnabas.version import __version__
from barnabas.why_stuck import WaitingGroup, sentence

if TYPE_CHECKING:
    import socket

    from barnabas.broker.rim.server import Server

logger = logging.getLogger("barnabas.console")

T = TypeVar("T")

FRESH_S = 0.5
SHARE_OF_TIME = 20
"""A look is repeated after this many times as long as it took."""
WATCHED_S = 15.0
BUSY_AFTER_S = 10.0
SPANS_IN_OVERVIEW, SPANS_OF_PARTITION = 44, 160
MOST_CANDIDATES, MOST_STUCK_WINDOWS = 500, 20
PARTITION_INDEX_ENTRIES = 4 * MOST_INDEX_ENTRIES

SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}

Query = Mapping[str, str]


class BadRequest(Exception):
    """The request is wrong; the text says how. status: 400 or 404."""

    def __init__(self, text: str, status: int = 400) -> None:
        super().__init__(text)
        self.status = status


class Console:
    """The console's HTTP server.

    Each connection has a thread, which makes the answers. A lock makes only one thread at a time do
    that.
    """

    def __init__(self, server: Server, sock: socket.socket) -> None:
        self._server, self._loop = server, server.loop
        self._files = _files()
        self._turn = threading.Lock()
        self._broker: views.Broker | None = None
        self._fresh_until = 0.0
        self._watch = Watch(server)
        self._calls: dict[str, Callable[[Query], Any]] = {
            "/api/overview": self._overview,
            "/api/topic": self._topic,
            "/api/partition": self._partition,
            "/api/records": self._records,
            "/api/transactions": self._transactions,
            "/api/groups": self._groups,
            "/api/group": self._group,
            "/api/requests": self._requests,
        }
        self._http = HttpServer(sock, self.answer, "console")

    @property
    def url(self) -> str:
        """The address of the page for a browser on this machine."""
        return self._http.url

    def close(self) -> None:
        """Stop listening."""
        self._http.close()

    # --- requests --------------------------------------------------------------------------------

    def answer(self, request: Request) -> Response:
        """The answer to one request."""
        response = self._answer(request)
        return response._replace(headers={**SECURITY_HEADERS, **response.headers})

    def _answer(self, request: Request) -> Response:
        if request.method != "GET":
            return error_response(405, "The console only shows; it changes nothing.")
        file = self._files.get(request.path)
        if file is not None:
            return Response(200, file[1], file[0])
        call = self._calls.get(request.path)
        if call is None:
            return error_response(404, f"There is nothing at {request.path}.")
        if not self._turn.acquire(timeout=BUSY_AFTER_S):
            return error_response(503, "Too many look at once: try again in a while.")
        try:
            self._run(self._watch.touch())
            return json_response({**call(request.query), **self._now()})
        except BadRequest as error:
            return error_response(error.status, str(error))
        except KafkaError as error:
            return error_response(404, f"{error} ({error.code.name})")
        except (CorruptLog, OSError) as error:
            return error_response(503, f"The log cannot be read: {error}")
        finally:
            self._turn.release()

    def _run(self, look: Look[T]) -> T:
        return in_slices(self._loop, look)

    def _look(self) -> views.Broker:
        """The broker as it was a moment ago."""
        broker = self._broker
        if broker is None or time.monotonic() >= self._fresh_until:
            began = time.monotonic()
            broker = self._broker = views.Broker(self._run(self._observe()))
            took = time.monotonic() - began
            self._fresh_until = began + took + max(FRESH_S, SHARE_OF_TIME * took)
        return broker

    def _observe(self) -> Look[views.Observed]:
        broker, now_ms = self._server.broker, self._server.now_ms()
        wall_ms = now_ms + broker.wall.ahead_ms
        partitions = yield from look_at_partitions(broker.logs)
        ids = yield from look_at_transactional_ids(broker.transactions, wall_ms)
        stuck = frozenset((row.topic, row.partition) for row in partitions if row.stable_lag)
        groups = yield from look_at_groups(broker.groups, broker.topics, broker.shares, stuck)
        clients = {}
        for row in ids:
            if row.age_ms is not None:
                host = client_host(broker.connections, broker.transactions, row.transactional_id)
                if host is not None:
                    clients[row.transactional_id] = host
        return views.Observed(partitions, ids, groups, clients, wall_ms)

    def _now(self) -> dict[str, Any]:
        broker, server = self._look(), self._server.broker
        addresses = [f"{host}:{port}" for host, port in self._server.addresses]
        return {
            "now_ms": broker.observed.wall_ms,
            "broker": {
                "version": __version__,
                "node_id": server.config.node_id,
                "address": ",".join(addresses),
                "connections": len(server.connections),
            },
            "totals": views.totals(broker),
            "requests": self._watch.totals(),
        }

    # --- views -----------------------------------------------------------------------------------

    def _overview(self, query: Query) -> Any:
        broker = self._look()
        page = views.topics_page(
            broker,
            query.get("search", ""),
            _number(query, "page", 0),
            internal=query.get("internal") == "true",
        )
        shown = {name: views.shown_partitions(broker, name) for name in page.rows}
        strips = self._strips([row for rows in shown.values() for row in rows], SPANS_IN_OVERVIEW)
        groups = views.groups_by_need(broker)[: views.ROWS_IN_OVERVIEW]
        waits = self._waits(broker, groups)
        return {
            "topics": {
                **_bounds(page),
                "rows": [
                    {
                        **self._topic_value(broker, name),
                        "strips": self._strip_values(broker, shown[name], strips),
                    }
                    for name in page.rows
                ],
            },
            "transactions": [
                views.transaction_value(row, broker)
                for row in broker.open_transactions[: views.ROWS_IN_OVERVIEW]
            ],
            "groups": [views.group_value(group, broker, waits) for group in groups],
        }

    def _topic_value(self, broker: views.Broker, name: str) -> dict[str, Any]:
        rows = broker.topics[name]
        return {
            "topic": name,
            "partition_count": len(rows),
            "stuck_count": sum(map(broker.is_stuck, rows)),
            "size_bytes": sum(row.size_bytes for row in rows),
        }

    def _topic(self, query: Query) -> Any:
        broker, name = self._look(), query.get("topic", "")
        if name not in broker.topics:
            raise BadRequest(f"There is no topic {name!r}.", 404)
        page = views.page_of(broker.topics[name], _number(query, "page", 0), views.STRIPS_A_PAGE)
        strips = self._strips(page.rows, SPANS_IN_OVERVIEW)
        return {
            **self._topic_value(broker, name),
            **_bounds(page),
            "strips": self._strip_values(broker, page.rows, strips),
        }

    def _partition(self, query: Query) -> Any:
        topic, index = query.get("topic", ""), _number(query, "partition", 0)
        before = _number(query, "before", -1)
        broker = self._look()
        row = broker.partition.get((topic, index))
        if row is None:
            raise BadRequest(f"There is no partition {topic}-{index}, or it is offline.", 404)
        window = self._run(
            self._take([(row, before if before >= 0 else None)], PARTITION_INDEX_ENTRIES)
        )
        strips = [read_strip(window, SPANS_OF_PARTITION) for window in window]
        strip = strips[0] if strips else None
        groups = self._waiting_groups(broker, row)
        answer = views.answer_of(broker, row, groups)
        return {
            "strip": views.strip_value(strip, broker) if strip is not None else None,
            "stuck": answer.is_stuck,
            "explanation": sentence(answer),
            "transactions": [
                views.transaction_value(open_row, broker)
                for open_row in broker.open_transactions
                if any(place is row for place, _ in open_row.places)
            ],
            "groups": [
                {**group._asdict(), "lag": row.high_watermark - group.committed_offset}
                for group in self._reading_groups(broker, row, groups)
            ],
        }

    def _records(self, query: Query) -> Any:
        topic, index = query.get("topic", ""), _number(query, "partition", 0)
        offset = _number(query, "offset", 0)
        count = min(_number(query, "count", 20), MOST_RECORDS)
        log = self._server.broker.topics.partition(topic, index)
        if log is None:
            raise BadRequest(f"There is no partition {topic}-{index}, or it is offline.", 404)
        found = log

        def take() -> Look[Any]:
            yield
            return take_records(found, offset)

        return read_records(self._run(take()), count)

    def _transactions(self, query: Query) -> Any:
        broker = self._look()
        page = views.page_of(broker.open_transactions, _number(query, "page", 0), views.ROWS_A_PAGE)
        return {
            **_bounds(page),
            "rows": [views.transaction_value(row, broker) for row in page.rows],
        }

    def _groups(self, query: Query) -> Any:
        broker, search = self._look(), query.get("search", "").lower()
        rows = [row for row in views.groups_by_need(broker) if search in row.group_id.lower()]
        page = views.page_of(rows, _number(query, "page", 0), views.ROWS_A_PAGE)
        waits = self._waits(broker, page.rows)
        return {
            **_bounds(page),
            "rows": [views.group_value(group, broker, waits) for group in page.rows],
        }

    def _group(self, query: Query) -> Any:
        broker, name = self._look(), query.get("group", "")
        group = next((row for row in broker.observed.groups if row.group_id == name), None)
        if group is None:
            raise BadRequest(f"There is no group {name!r}.", 404)
        waits = self._waits(broker, [group])
        page = views.page_of(
            sorted(group.offsets, key=lambda row: -(row.lag or 0)),
            _number(query, "page", 0),
            views.ROWS_A_PAGE,
        )

        def members() -> Look[list[dict[str, Any]]]:
            yield
            return describe_members(self._server.broker.groups, name)

        return {
            **views.group_value(group, broker, waits),
            **_bounds(page),
            "rows": [
                {
                    **offset._asdict(),
                    "waits": waits.get((name, offset.topic, offset.partition), False),
                }
                for offset in page.rows
            ],
            "member_rows": self._run(members()),
        }

    def _requests(self, query: Query) -> Any:
        return {"apis": self._watch.by_api(), "errors": self._watch.errors()}

    # --- strips ----------------------------------------------------------------------------------

    def _take(
        self, rows: Iterable[tuple[PartitionState, int | None]], index_entries: int
    ) -> Look[list[Window]]:
        """The windows of the partitions that still exist and can be read."""
        windows = []
        for row, before in rows:
            log = self._server.broker.topics.partition(row.topic, row.partition)
            if log is not None:
                try:
                    windows.append(take_window(log, before, index_entries))
                except CorruptLog as error:
                    logger.warning("the console cannot show %r: %s", log, error)
            yield
        return windows

    def _strips(
        self, rows: Iterable[PartitionState], most_spans: int
    ) -> dict[tuple[str, int], Strip]:
        windows = self._run(self._take([(row, None) for row in rows], MOST_INDEX_ENTRIES))
        return {
            (window.topic, window.partition): read_strip(window, most_spans) for window in windows
        }

    def _strip_values(
        self,
        broker: views.Broker,
        rows: Iterable[PartitionState],
        strips: Mapping[tuple[str, int], Strip],
    ) -> list[dict[str, Any]]:
        return [
            views.strip_value(strips[row.topic, row.partition], broker)
            for row in rows
            if (row.topic, row.partition) in strips
        ]

    # --- who waits -------------------------------------------------------------------------------

    def _waits(
        self, broker: views.Broker, groups: Iterable[GroupState]
    ) -> dict[tuple[str, str, int], bool]:
        """For each stuck partition with a committed offset of a group: whether the group has
        nothing to read before the last stable offset.
        """
        rows = views.candidates(broker, groups)[:MOST_CANDIDATES]
        before_end = {
            (row.topic, row.partition): (row, row.last_stable_offset)
            for _, offset, row in rows
            if offset.offset < row.last_stable_offset
        }
        shown = list(before_end.values())[:MOST_STUCK_WINDOWS]
        windows = self._run(self._take(shown, MOST_INDEX_ENTRIES))
        strips = {
            (window.topic, window.partition): read_strip(window, SPANS_OF_PARTITION)
            for window in windows
        }
        waits = {}
        for group, offset, row in rows:
            key = (row.topic, row.partition)
            waits[group.group_id, *key] = offset.offset == row.last_stable_offset or (
                key in strips and not views.has_readable(strips[key], offset.offset)
            )
        return waits

    def _reading_groups(
        self, broker: views.Broker, row: PartitionState, waiting: list[WaitingGroup]
    ) -> list[WaitingGroup]:
        """The groups with a committed offset on a partition, waiting groups first."""
        by_name = {group.group: group for group in waiting}
        for group in broker.observed.groups:
            for offset in group.offsets:
                if (offset.topic, offset.partition) == (row.topic, row.partition):
                    by_name.setdefault(
                        group.group_id,
                        WaitingGroup(group.group_id, group.state, offset.offset, False, ()),
                    )
        return list(by_name.values())[: views.ROWS_A_PAGE]

    def _waiting_groups(self, broker: views.Broker, row: PartitionState) -> list[WaitingGroup]:
        """The groups that have not passed the last stable offset of a stuck partition."""
        if not row.stable_lag:
            return []
        groups = [
            group
            for group in broker.observed.groups
            if any(
                (offset.topic, offset.partition) == (row.topic, row.partition)
                and offset.offset <= row.last_stable_offset
                for offset in group.offsets
            )
        ][: views.ROWS_A_PAGE]
        waits = self._waits(broker, groups)

        def take() -> Look[list[WaitingGroup]]:
            found = []
            for group in groups:
                yield
                committed = next(
                    offset.offset
                    for offset in group.offsets
                    if (offset.topic, offset.partition) == (row.topic, row.partition)
                )
                members = tuple(
                    f"{member['client_id']} at {member['client_host']}"
                    for member in describe_members(self._server.broker.groups, group.group_id)
                    if [row.topic, row.partition] in member["assignment"]
                )
                is_waiting = waits.get((group.group_id, row.topic, row.partition), False)
                found.append(
                    WaitingGroup(group.group_id, group.state, committed, is_waiting, members)
                )
            return found

        return self._run(take())


class Watch:
    """Counts requests and errors while a page is shown, and for WATCHED_S after its last look."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._counts = RequestCounts()
        self._since = 0.0
        self._last_look = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def touch(self) -> Look[None]:
        """Note that a page has read the counts. Runs in the loop's thread."""
        yield
        self._last_look = time.monotonic()
        if self._timer is None:
            self._begin()

    def _begin(self) -> None:
        server = self._server
        self._counts, self._since = RequestCounts(), time.monotonic()
        on_frame = server.on_frame
        server.on_frame = self._counts.around(on_frame)
        has_own_errors = server.broker.requests.errors is None
        if has_own_errors:
            server.broker.requests.errors = ErrorCounts()

        def end_after_the_last_look() -> None:
            left = self._last_look + WATCHED_S - time.monotonic()
            if left > 0:
                self._timer = server.loop.call_later(left, end_after_the_last_look)
                return
            self._timer = None
            server.on_frame = on_frame
            if has_own_errors:
                server.broker.requests.errors = None

        self._timer = server.loop.call_later(WATCHED_S, end_after_the_last_look)

    def totals(self) -> dict[str, Any]:
        """All requests and errors since the counting began; it restarts after a pause."""
        errors = self._server.broker.requests.errors
        return {
            "counted_for_ms": round((time.monotonic() - self._since) * 1000),
            "requests": sum(self._counts.by_api().values()),
            "errors": sum(dict(errors.counts).values()) if errors is not None else 0,
        }

    def by_api(self) -> dict[str, int]:
        """Requests by the API's name."""
        return self._counts.by_api()

    def errors(self) -> list[dict[str, Any]]:
        """Errors by API and code."""
        errors = self._server.broker.requests.errors
        counts = dict(errors.counts) if errors is not None else {}
        return [
            {
                "api": BY_KEY[key].name,
                "error": Code(code).name if code in Code._value2member_map_ else str(code),
                "count": count,
            }
            for (key, code), count in sorted(counts.items(), key=lambda row: -row[1])
        ]


def _bounds(page: views.Page) -> dict[str, int]:
    return {"total": page.total, "page": page.page, "pages": page.pages}


def _number(query: Query, name: str, default: int) -> int:
    text = query.get(name)
    if text is None or text == "":
        return default
    if not (text.isascii() and text.isdigit()) or len(text) > 19:
        raise BadRequest(f"`{name}` has to be a number from 0 on, not {text!r}.")
    return int(text)


def _files() -> dict[str, tuple[str, bytes]]:
    """The page's files by their path: the type and the content."""
    files = {}
    for file in resources.files("barnabas.broker.console").joinpath("static").iterdir():
        kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
        if kind in ("text/html", "text/css", "text/javascript"):
            kind += "; charset=utf-8"
        path = "/" if file.name == "index.html" else f"/{file.name}"
        files[path] = (kind, file.read_bytes())
    return files

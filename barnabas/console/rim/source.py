"""The access of the views to the broker: observations, windows of logs, and permissions.

The broker's state is read only in the loop's thread, in slices (`in_slices`). All pages share an
observation of the whole state, which is repeated so rarely that it takes at most a twentieth of the
time. For a viewer with restricted permissions, topics and groups that it may not describe are
removed from the observation.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from barnabas.broker.audit import ANONYMOUS
from barnabas.broker.observe import Look, PartitionState
from barnabas.broker.seams.host import Host
from barnabas.broker.security.acls import Operation, ResourceType
from barnabas.broker.security.authorizer import Access
from barnabas.broker.security.refusals import command_that_allows, names_of
from barnabas.console import rights, views
from barnabas.console.history import History
from barnabas.console.lists import Columns, Part, in_order, part_of
from barnabas.console.rim.sampling import Sampler
from barnabas.console.spans import (
    MOST_INDEX_ENTRIES,
    Strip,
    Window,
    read_strip,
    take_window,
)
from barnabas.process.http_server import in_slices
from barnabas.protocol.request_context import RequestContext
from barnabas.storage.files.segment_files import CorruptLog
from barnabas.storage.log.log import Log

logger = logging.getLogger("barnabas.console")

T = TypeVar("T")
Query = Mapping[str, str]

FRESH_S = 0.5
SHARE_OF_TIME = 20
"""The time between two observations, as a multiple of the time that the last one took."""
_CLIENT_ID = "barnabas-console"
METADATA = 3
# The API keys of Fetch and Produce, under which the audit log records a READ and a WRITE.
_REQUESTS = {Operation.READ: 1, Operation.WRITE: 0}


def refusal_text(principal: str, operation: Operation, kind: ResourceType, name: str) -> str:
    """Why a view is refused, and the command that allows it."""
    what, resource = names_of(operation, kind, name)
    command = command_that_allows(principal, operation, kind, name)
    user = principal.removeprefix("User:")
    return f"User {user!r} may not {what} {resource}. An administrator allows it by `{command}`."


class BadRequest(Exception):
    """The request is invalid; the text explains why.

    status: 400, 403 or 404. at: the position of the error in a filter's text, counted from 0.
    """

    def __init__(self, text: str, status: int = 400, at: int | None = None) -> None:
        super().__init__(text)
        self.status, self.at = status, at


class Viewer(NamedTuple):
    """The user of a page: its principal, and the address of its browser."""

    principal: str = ANONYMOUS
    host: str = "127.0.0.1"


class Source:
    """The access to the broker for the views, which do not run in the loop's thread. Only one
    thread at a time may call `look`.
    """

    def __init__(self, server: Host) -> None:
        self.server, self._loop = server, server.loop
        self.state, self.snapshots = server.state, server.snapshots
        self._broker: views.Broker | None = None
        self._seen_by: dict[Viewer, views.Broker] = {}
        self._fresh_until = 0.0
        self.sampler = Sampler(self)

    def run(self, look: Look[T]) -> T:
        """Run a function in the loop's thread, in slices, and wait for its result."""
        return in_slices(self._loop, look)

    # --- observations ----------------------------------------------------------------------------

    def look(self, viewer: Viewer) -> views.Broker:
        """The latest observation of the broker, without the parts that the viewer may not
        describe.
        """
        broker = self._broker
        if broker is None or time.monotonic() >= self._fresh_until:
            began = time.monotonic()
            broker = self._broker = views.Broker(self.run(self.observe()))
            self._seen_by.clear()
            took = time.monotonic() - began
            # an observation that took long is used longer, so that observing takes a bounded share
            # of the time
            self._fresh_until = began + took + max(FRESH_S, SHARE_OF_TIME * took)
        if self.state.authorizer is None:
            return broker
        seen = self._seen_by.get(viewer)
        if seen is None:
            seen = views.Broker(self.run(self._restricted(broker.observed, viewer)))
            self._seen_by[viewer] = seen
        return seen

    def observe(self) -> Look[views.Observed]:
        """Observe the whole broker."""
        now_ms = self.server.now_ms()
        partitions, ids, groups, wall_ms = yield from self.snapshots.observe(now_ms)
        clients = {}
        for row in ids:
            if row.age_ms is not None:
                host = self.state.client_host(row.transactional_id)
                if host is not None:
                    clients[row.transactional_id] = host
        return views.Observed(partitions, ids, groups, clients, wall_ms)

    def _restricted(self, observed: views.Observed, viewer: Viewer) -> Look[views.Observed]:
        """The part of an observation that the viewer may see."""
        access = self._access(viewer)
        if access is None:
            return observed
        return (yield from rights.restricted(observed, access.sees))

    # --- rights ----------------------------------------------------------------------------------

    def _access(self, viewer: Viewer, api_key: int = METADATA) -> Access | None:
        """The viewer's permissions; None if every operation is allowed. Called in the loop's
        thread.

        Takes: api_key, the key of the equivalent client request, for the audit log.
        """
        authorizer = self.state.authorizer
        if authorizer is None:
            return None
        context = RequestContext(
            -1, 0, _CLIENT_ID, f"/{viewer.host}", api_key=api_key, now_ms=self.server.now_ms()
        )
        return authorizer.access(viewer.principal, f"/{viewer.host}", context)

    def require(self, viewer: Viewer, operation: Operation, kind: ResourceType, name: str) -> None:
        """Check that the viewer may perform an operation. Raises: BadRequest, with status 403."""

        def ask() -> Look[bool]:
            yield
            access = self._access(viewer, _REQUESTS.get(operation, METADATA))
            if access is None:
                return True
            is_allowed = access.may(operation, kind, name)
            self.server.carry_out()  # writes the check to the audit log, if it is recorded
            return is_allowed

        if not self.run(ask()):
            raise BadRequest(refusal_text(viewer.principal, operation, kind, name), 403)

    def history(self, read: Callable[[History], T]) -> T:
        """The result of a function that reads the history, called in the loop's thread."""

        def look() -> Look[T]:
            yield
            return read(self.sampler.history)

        return self.run(look())

    # --- logs ------------------------------------------------------------------------------------

    def log(self, topic: str, index: int) -> Log:
        """The log of a partition. Raises: BadRequest."""
        log = self.state.log(topic, index)
        if log is None:
            raise BadRequest(f"There is no partition {topic}-{index}, or it is offline.", 404)
        return log

    def take(
        self, rows: Iterable[tuple[PartitionState, int | None]], index_entries: int
    ) -> Look[list[Window]]:
        """The windows of the partitions that still exist and can be read."""
        windows = []
        for row, before in rows:
            window = self.window(row.topic, row.partition, before, index_entries)
            if window is not None:
                windows.append(window)
            yield
        return windows

    def window(
        self, topic: str, index: int, before: int | None, index_entries: int
    ) -> Window | None:
        """A window of a log; None if the log cannot be read. Called in the loop's thread."""
        log = self.state.log(topic, index)
        if log is None:
            return None
        try:
            return take_window(log, before, index_entries)
        except CorruptLog as error:
            logger.warning("the console cannot show %r: %s", log, error)
            return None

    def strips(
        self, rows: Iterable[PartitionState], most_spans: int
    ) -> dict[tuple[str, int], Strip]:
        """The strips of partitions, by topic and index."""
        windows = self.run(self.take([(row, None) for row in rows], MOST_INDEX_ENTRIES))
        return {
            (window.topic, window.partition): read_strip(window, most_spans) for window in windows
        }


def strip_values(
    broker: views.Broker,
    rows: Iterable[PartitionState],
    strips: Mapping[tuple[str, int], Strip],
) -> list[dict[str, Any]]:
    """The strips of these partitions as JSON values."""
    return [
        views.strip_value(strips[row.topic, row.partition], broker)
        for row in rows
        if (row.topic, row.partition) in strips
    ]


def bounds(page: views.Page) -> dict[str, int]:
    """The number of the page, the number of pages and the number of rows, as fields of a
    response.
    """
    return {"total": page.total, "page": page.page, "pages": page.pages}


def number(query: Query, name: str, default: int) -> int:
    """The number in a field of the query. Raises: BadRequest."""
    text = query.get(name)
    if text is None or text == "":
        return default
    if not (text.isascii() and text.isdigit()) or len(text) > 19:
        raise BadRequest(f"`{name}` has to be a number from 0 on, not {text!r}.")
    return int(text)


def listed(query: Query, rows: Sequence[T], columns: Columns[T]) -> Part:
    """The part of a list that a query requests, in the order that the query names. Raises:
    BadRequest.
    """
    column = choice(query, "sort", tuple(columns))
    descending = choice(query, "order", ("up", "down")) == "down"
    ordered = in_order(rows, columns[column], descending=descending)
    return part_of(ordered, number(query, "first", 0), number(query, "count", 50))


def choice(query: Query, name: str, choices: Sequence[str]) -> str:
    """The value of a field of the query, which has to be one of `choices`. The first choice is the
    default.

    Raises: BadRequest.
    """
    text = query.get(name) or choices[0]
    if text not in choices:
        raise BadRequest(f"`{name}` has to be one of {', '.join(choices)}, not {text[:40]!r}.")
    return text

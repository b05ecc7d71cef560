"""Requests with many names. Each name is answered once, and the request is handled in parts, within
bounds.

Most requests are lists of topics, partitions, groups or ids; each element is answered separately.
The cost of such a request grows with its names, which the client chooses. Three rules apply to all
such requests, as the shapes in the rows of APIs define them:

- Repeated names are left out when the request is read, if they would only repeat a part of the
response: a name of 6 bytes may cause a megabyte of response. Requests that change state keep
repeated names, since the order of changes matters and the responses are small. If a repeated name
is an error, two of its rows are kept, next to each other.
- A request with more than some hundred names is handled in parts. Each part passes authorization,
  coordinators and handler as a request of its own, and other clients are served between two parts.
  Clients with such requests take turns after each part.
- The rows of each part are encoded at once, and the size of the response is bounded: after
  MOST_ANSWER_BYTES the rest of the request is refused with POLICY_VIOLATION.

Between two parts anything may happen, as between two requests. When the connection closes, the
request ends after the current part. Requests whose lists have to be handled as a whole have their
rows handled in slices (`WideRequests.begin`), which take the same turns.
"""

from __future__ import annotations

import copy
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import Any, NamedTuple

from barnabas.broker.outbox import PARKED, Answer, Encoded, NoResponse, Parked
from barnabas.broker.requests.encoded_rows import EncodedRows
from barnabas.broker.requests.pending_requests import Requests
from barnabas.broker.requests.refusals import refused_rows
from barnabas.broker.requests.without_space import refusal
from barnabas.broker.routes import Handler, Read, Route
from barnabas.broker.slices import Slices
from barnabas.protocol.api import Api
from barnabas.protocol.errors import Code, ProtocolViolation
from barnabas.protocol.messages.message import Message
from barnabas.protocol.primitives import Buffer
from barnabas.protocol.request_context import RequestContext
from barnabas.storage.disk import NotWrittenError

logger = logging.getLogger("barnabas.broker")

AT_ONCE = 200
MOST_ANSWER_BYTES = 64 << 20
NULL_WEIGHT = 50  # a null list counts as this many rows, since null means everything
LAST = 1 << 15


class Repeats(Enum):
    """How repeated names are handled. ONCE: later rows are left out. LATEST: earlier rows are left
    out. KEPT: all rows are kept. PAIRED: two rows are kept, next to each other, and the handler
    refuses them.
    """

    ONCE = 0
    LATEST = 1
    KEPT = 2
    PAIRED = 3


class Level(NamedTuple):
    """A list of the request (or of the rows of the level above), and the matching list of the
    response. key: the fields that identify a row; if empty, the row is the name itself.
    """

    rows: str
    answers: str
    key: tuple[str, ...] = ()


class Shape(NamedTuple):
    """The nested lists of an API's requests, from the outermost inwards. at_once: the number of
    rows in a part, which is small if rows may be large or slow.
    """

    levels: tuple[Level, ...]
    repeats: Repeats = Repeats.ONCE
    at_once: int = AT_ONCE
    first_version: int = 0
    last_version: int = LAST


def of_rows(rows: str, answers: str, *key: str) -> tuple[Level, ...]:
    """The level of a request with one list."""
    return (Level(rows, answers, key),)


def of_partitions(
    topics: Level, rows: str = "partitions", answers: str = "partitions", *key: str
) -> tuple[Level, ...]:
    """The levels of a request with partitions in topics. Takes: key, the fields that identify a
    partition; without them the partitions are plain numbers.
    """
    return topics, Level(rows, answers, key)


def shape_of(shapes: Sequence[Shape], version: int) -> Shape | None:
    """The shape of an API's requests in a version; None if they have no lists of names."""
    for shape in shapes:
        if shape.first_version <= version <= shape.last_version:
            return shape
    return None


# --- repeated names -----------------------------------------------------------------------------


def reading_once(shapes: Sequence[Shape], read: Read[Any]) -> Read[Any]:
    """A reader of an API's requests that leaves out repeated names, unless all are kept."""
    if all(shape.repeats is Repeats.KEPT for shape in shapes):
        return read

    def read_once(data: Buffer, at: int, version: int) -> tuple[Message, int]:
        request, at = read(data, at, version)
        shape = shape_of(shapes, version)
        if shape is not None and shape.repeats is not Repeats.KEPT:
            leave_out_repeats(request, shape)
        return request, at

    return read_once


def leave_out_repeats(request: Message, shape: Shape) -> None:
    """Leave out repeated names of the request. If the handler refuses repeated names, two of each
    are kept.
    """
    levels, repeats = shape.levels, shape.repeats
    rows = getattr(request, levels[0].rows)
    if not rows or (len(rows) == 1 and len(levels) == 1):
        return
    if repeats is Repeats.PAIRED:
        if _weight(rows, levels) > shape.at_once:  # in a smaller request all rows are kept
            setattr(request, levels[0].rows, _in_pairs(rows, levels))
    else:
        is_latest = repeats is Repeats.LATEST
        setattr(request, levels[0].rows, _distinct(rows, levels, {}, is_latest=is_latest))


def _distinct(
    rows: list[Any], levels: tuple[Level, ...], seen: dict[Any, Any], *, is_latest: bool
) -> list[Any]:
    """The rows without repeated names. The first row of a name is kept, or, with is_latest, the
    last row. seen: the names so far, each with the names seen in its inner list.
    """
    key = levels[0].key
    if len(levels) == 1:
        return _distinct_leaves(rows, key, seen, is_latest=is_latest)
    field = levels[1].rows
    kept = []
    for row in reversed(rows) if is_latest else rows:
        inner = getattr(row, field)
        of_row = seen.setdefault(_name(row, key), {})
        if not inner:  # an empty list or null means everything
            which = None if inner is None else ()
            if which not in of_row:
                of_row[which] = None
                kept.append(row)
            continue
        left = _distinct(inner, levels[1:], of_row, is_latest=is_latest)
        if left:
            setattr(row, field, left)
            kept.append(row)
    return kept[::-1] if is_latest else kept


def _distinct_leaves(
    rows: list[Any], key: tuple[str, ...], seen: dict[Any, Any], *, is_latest: bool
) -> list[Any]:
    """`_distinct` for a list without inner lists. It is fast if no name is repeated."""
    names = [_name(row, key) for row in rows] if key else rows
    if not seen:
        seen.update(dict.fromkeys(names))
        if len(seen) == len(rows):
            return rows
        new = seen
    else:
        new = {name: None for name in names if name not in seen}
        seen.update(new)
    if not key:
        return list(new)
    if is_latest:
        of_name = dict(zip(names, rows, strict=True))
    else:
        of_name = dict(zip(reversed(names), reversed(rows), strict=True))
    return [of_name[name] for name in new]


def _in_pairs(rows: list[Any], levels: tuple[Level, ...]) -> list[Any]:
    """At most two rows of each name, next to each other. Rows of the same name that have inner
    lists are merged.
    """
    of_name: dict[Any, list[Any]] = {}
    for row in rows:
        of_name.setdefault(_name(row, levels[0].key), []).append(row)
    if len(levels) == 1:
        return [row for named in of_name.values() for row in named[:2]]
    field = levels[1].rows
    merged = []
    for named in of_name.values():
        first = named[0]
        inner = [row for one in named for row in getattr(one, field)]
        setattr(first, field, _in_pairs(inner, levels[1:]))
        merged.append(first)
    return merged


def _name(row: Any, key: tuple[str, ...]) -> Any:
    """The value by which a row is the same as another row: the value of its key field, or a tuple
    of the values of several key fields.
    """
    if len(key) == 1:
        return getattr(row, key[0])
    values = [getattr(row, field) for field in key]
    return tuple(tuple(one) if isinstance(one, list) else one for one in values)


# --- in parts -----------------------------------------------------------------------------------


def _weight(rows: Sequence[Any] | None, levels: tuple[Level, ...]) -> int:
    """The number of rows of all levels."""
    if rows is None:
        return NULL_WEIGHT
    if len(levels) == 1:
        return len(rows)
    field = levels[1].rows
    if len(levels) == 2:
        weight = len(rows)
        for row in rows:
            inner = getattr(row, field)
            weight += NULL_WEIGHT if inner is None else len(inner)
        return weight
    return len(rows) + sum(_weight(getattr(row, field), levels[1:]) for row in rows)


def parts_of(
    rows: list[Any], levels: tuple[Level, ...], at_once: int, *, is_paired: bool = False
) -> Iterator[tuple[list[Any], int]]:
    """Divide the rows into parts of about `at_once` rows, counted over all levels. Yields each part
    with the number of levels at which its first row continues the last row of the previous part.
    """
    if len(levels) == 1:
        yield from _leaf_parts(rows, levels[0].key, at_once, is_paired=is_paired)
        return
    field = levels[1].rows
    part: list[Any] = []
    weight = 0
    for row in rows:
        inner = getattr(row, field)
        of_row = 1 + _weight(inner, levels[1:])
        if part and weight + of_row > at_once:
            yield part, 0
            part, weight = [], 0
        if of_row <= at_once or inner is None:
            part.append(row)
            weight += of_row
            continue
        is_first = True
        for piece, depth in parts_of(inner, levels[1:], at_once, is_paired=is_paired):
            copied = copy.copy(row)
            setattr(copied, field, piece)
            yield [copied], 0 if is_first else 1 + depth
            is_first = False
    if part:
        yield part, 0


def _leaf_parts(
    rows: list[Any], key: tuple[str, ...], at_once: int, *, is_paired: bool
) -> Iterator[tuple[list[Any], int]]:
    """`parts_of` for a list without inner lists. Two rows of a pair stay in one part."""
    first = 0
    while first < len(rows):
        end = first + at_once
        if is_paired and end < len(rows) and _name(rows[end], key) == _name(rows[end - 1], key):
            end += 1
        yield rows[first:end], 0
        first = end


class _Open:
    """A row of a response, with its inner list, which may continue in the next part."""

    __slots__ = ("inner", "row")

    def __init__(self, row: Any) -> None:
        self.row, self.inner = row, EncodedRows()


def _code(answer: Any) -> int:
    code: int = getattr(answer, "error_code", Code.NONE)
    return code


class CollectedAnswer:
    """The responses to the parts, joined to one response. size_bytes: the size of its rows so far.

    Fields other than the lists have the values of the first part, or of the first part with an
    error.
    """

    def __init__(self, levels: tuple[Level, ...], version: int) -> None:
        self._levels, self._version = levels, version
        self._answer: Any = None
        self._rows = EncodedRows()
        self._open: list[_Open] = []  # open rows of each level but the last one

    @property
    def size_bytes(self) -> int:
        return self._rows.size_bytes + sum(one.inner.size_bytes for one in self._open)

    def add(self, answer: Any, continued: int) -> None:
        """Add the rows of the response to a part. Takes: continued, the number of levels at which
        the first row continues the last row of the previous part.
        """
        field = self._levels[0].answers
        rows = getattr(answer, field) or ()
        self._add(self._rows, rows, 0, continued)
        setattr(answer, field, [])
        if self._answer is None or (_code(answer) and not _code(self._answer)):
            self._answer = answer

    def _add(self, target: EncodedRows, rows: Sequence[Any], level: int, continued: int) -> None:
        """Add rows of a level: rows of the last level are encoded at once; others stay open, since
        the next part may continue them.
        """
        if level == len(self._levels) - 1:
            target.add(rows, self._version)
            return
        field = self._levels[level + 1].answers
        for row in rows:
            if not (continued and level < len(self._open)):
                self._close(target, level)
                self._open.append(_Open(row))
                continued = 0
            inner = self._open[level].inner
            self._add(inner, getattr(row, field) or (), level + 1, max(0, continued - 1))
            continued = 0

    def _close(self, target: EncodedRows, level: int) -> None:
        """Encode the open row of a level, after the open rows of the levels below it."""
        if level < len(self._open):
            one = self._open[level]
            self._close(one.inner, level + 1)
            del self._open[level:]
            setattr(one.row, self._levels[level + 1].answers, one.inner)
            target.add((one.row,), self._version)

    def whole(self) -> Message:
        """The answer to all parts."""
        self._close(self._rows, 0)
        setattr(self._answer, self._levels[0].answers, self._rows)
        answer: Message = self._answer
        return answer


class _Wide:
    """A request that is handled in parts. part_ticket: the ticket of the parked part; negative if
    no part is parked.
    """

    __slots__ = (
        "answer", "api", "context", "handle", "is_cut_short", "part_ticket", "parts", "request",
        "shape",
    )  # fmt: skip

    def __init__(
        self,
        api: Api,
        handle: Handler[Any],
        shape: Shape,
        request: Message,
        context: RequestContext,
    ) -> None:
        self.api, self.handle, self.shape = api, handle, shape
        self.request, self.context = request, context
        rows = getattr(request, shape.levels[0].rows)
        is_paired = shape.repeats is Repeats.PAIRED
        self.parts = parts_of(rows, shape.levels, shape.at_once, is_paired=is_paired)
        self.answer = CollectedAnswer(shape.levels, context.api_version)
        self.part_ticket = -1
        self.is_cut_short = False


class _InSlices:
    """Work in slices that does not change many logs, so that it can take turns with wide
    requests.
    """

    __slots__ = ("context", "work")

    def __init__(self, context: RequestContext, work: Slices) -> None:
        self.context, self.work = context, work

    def step(self, now_ms: int) -> tuple[bool, Any]:
        """Do a slice. Gives: whether it was the last one, and, if it was, the response."""
        try:
            self.work.send(now_ms)
        except StopIteration as end:
            return True, end.value
        return False, None


class WideRequests:
    """The requests that are handled in parts or in slices.

    queue: the requests whose next part or slice can be handled, in the order of their turns.
    """

    def __init__(self, requests: Requests) -> None:
        self._requests = requests
        self.queue: deque[_Wide | _InSlices] = deque()
        self._under_way: dict[int, _Wide | _InSlices] = {}  # requests by connection

    def around(self, api: Api, shapes: Sequence[Shape], row: Route) -> Route:
        """The route of an API whose requests may be wide, with the division into parts."""
        of_version = {
            version: shape_of(shapes, version)
            for version in range(api.min_version, api.max_version + 1)
        }

        def handle(request: Message, context: RequestContext) -> Answer:
            shape = of_version[context.api_version]
            if shape is None:
                return row.handle(request, context)
            rows = getattr(request, shape.levels[0].rows)
            if not rows or _weight(rows, shape.levels) <= shape.at_once:
                return row.handle(request, context)
            self._requests.park(context, keeps_request=True)
            wide = _Wide(api, row.handle, shape, request, context)
            self._under_way[context.connection_id] = wide
            self.queue.append(wide)
            return PARKED

        return row._replace(handle=handle)

    def begin(self, context: RequestContext, work: Slices) -> Answer:
        """Do the first slice of work now, and the other slices in turns. Gives: the response, or
        PARKED.
        """
        sliced = _InSlices(context, work)
        next(work)
        is_done, answer = sliced.step(context.now_ms)
        if is_done:
            done: Answer = answer
            return done
        self._requests.park(context, keeps_request=True)
        self._under_way[context.connection_id] = sliced
        self.queue.append(sliced)
        return PARKED

    def on_tick(self, now_ms: int) -> None:
        """Handle one part, or do one slice, of the request that is first in the queue."""
        if not self.queue:
            return
        one = self.queue.popleft()
        connection_id = one.context.connection_id
        try:
            if isinstance(one, _Wide):
                self._handle_part(one, now_ms)
            else:
                self._do_slice(one, now_ms)
        except ProtocolViolation as error:
            self._requests.close(connection_id, error)
            self.on_closed(connection_id)
        except Exception as error:
            self._requests.give_up(connection_id, error)
            self.on_closed(connection_id)

    def on_closed(self, connection_id: int) -> None:
        """Drop the rest of the connection's request."""
        one = self._under_way.pop(connection_id, None)
        if one is not None:
            self._requests.on_part_over(one.context.ticket)
            if isinstance(one, _Wide):
                self._requests.on_part_over(one.part_ticket)
            if one in self.queue:
                self.queue.remove(one)

    def _do_slice(self, one: _InSlices, now_ms: int) -> None:
        """Do a slice of work, and answer the request after the last one."""
        connection_id = one.context.connection_id
        # The entry is removed first, since the last slice may begin other work in slices.
        del self._under_way[connection_id]
        is_done, answer = one.step(now_ms)
        if not is_done:
            self._under_way[connection_id] = one
            self.queue.append(one)
            return
        if not isinstance(answer, Parked):
            self._requests.reply(one.context.ticket, answer)

    def _handle_part(self, wide: _Wide, now_ms: int) -> None:
        """Pass the next part to the handler; after the last part send the collected answer."""
        requests, shape = self._requests, wide.shape
        part = next(wide.parts, None)
        if part is None:
            self._answer(wide)
            return
        rows, continued = part
        request = copy.copy(wide.request)
        setattr(request, shape.levels[0].rows, rows)

        def take(answer: Message) -> None:
            wide.part_ticket = -1
            self._requests.park(wide.context)  # the part may have been parked in its place
            wide.answer.add(answer, continued)
            self.queue.append(wide)

        if wide.answer.size_bytes > MOST_ANSWER_BYTES:
            self._refuse_rest(wide, request, take)
            return
        ticket = wide.part_ticket = requests.new_part(take)
        context = wide.context.replace(ticket=ticket, now_ms=now_ms)
        try:
            answer = wide.handle(request, context)
        except NotWrittenError:
            answer = refusal(request, context)
        assert not isinstance(answer, Encoded | NoResponse), "answers to parts are messages"
        if not isinstance(answer, Parked):
            requests.reply_to_part(context, answer)

    def _refuse_rest(self, wide: _Wide, request: Message, take: Callable[[Message], None]) -> None:
        """Refuse a part without handling it, because the answer is already too long."""
        if not wide.is_cut_short:
            wide.is_cut_short = True
            logger.warning(
                "%s of %s asks in one %s for more than an answer may have: the elements after "
                "the first %d MiB of the answer are refused",
                wide.context.client_id or "a client",
                wide.context.client_host.removeprefix("/"),
                wide.api.name,
                MOST_ANSWER_BYTES >> 20,
            )
        take(refused_rows(request, wide.context.api_version, Code.POLICY_VIOLATION))

    def _answer(self, wide: _Wide) -> None:
        """Send the answer to all parts."""
        del self._under_way[wide.context.connection_id]
        self._requests.reply(wide.context.ticket, wide.answer.whole())

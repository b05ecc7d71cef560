"""The steps that check a request against the authorizer: as a whole, for each row, or by a special
function.

A rule consists of a few steps, which run before the handler of a request (`authorization.py` has a
rule for each API). A step either answers the request or returns None. If it returns None, the next
step runs, and after the last step the handler. A step that checks rows passes the allowed rows on,
and adds the refusals of the others to the handler's response.
"""

from __future__ import annotations

import copy
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from barnabas.broker.connections.access import ClientAccess
from barnabas.broker.logs.topics import TopicRegistry
from barnabas.broker.outbox import Answer
from barnabas.broker.requests.encoded_rows import EncodedRows, join_rows
from barnabas.broker.requests.pending_requests import Requests
from barnabas.broker.requests.refusals import refused_rows
from barnabas.broker.requests.wide_requests import WideRequests
from barnabas.broker.security.acls import CLUSTER_NAME, FAILED, Operation, ResourceType
from barnabas.broker.security.authorizer import Access
from barnabas.broker.settings.features import Release
from barnabas.broker.slices import Slices
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.message import Message
from barnabas.protocol.request_context import RequestContext

RequestT = TypeVar("RequestT", bound="Message")

CLUSTER, TOPIC = ResourceType.CLUSTER, ResourceType.TOPIC
DESCRIBE = Operation.DESCRIBE
NOT_ASKED = -(2**31)  # the value of authorized operations that the client did not request
NO_ID = uuid.UUID(int=0)
ROWS_AT_ONCE = 500


class GuardParts(NamedTuple):
    """The parts of the broker that guards use."""

    access: ClientAccess
    requests: Requests
    wide: WideRequests
    topics: TopicRegistry
    release: Release


class Case(Generic[RequestT]):
    """One request before its handler is called, with the permissions of its client.

    Amendments are functions that change the handler's response, for example by removing resources
    that the client may not see. They are not applied to a response that refuses the whole request:
    the handler did not make it, and its rows may be encoded already. They take the case as an
    argument: a function that refers to its case would form a cycle with it.
    """

    __slots__ = ("_amendments", "_handle", "access", "context", "parts", "request", "version")

    def __init__(
        self,
        parts: GuardParts,
        handle: Callable[..., Answer],
        request: RequestT,
        context: RequestContext,
        access: Access,
    ) -> None:
        """Takes: handle, the API's handler, which `proceed` calls with the request."""
        self.parts, self._handle = parts, handle
        self.request, self.context, self.access = request, context, access
        self.version = context.api_version
        self._amendments: tuple[Amendment, ...] = ()  # most requests have no amendments

    def proceed(self) -> Answer:
        """The handler's answer."""
        for amendment in self._amendments:
            self.parts.requests.amend(self.context.ticket, partial(amendment, self))
        return self._handle(self.request, self.context)

    def proceed_beside(self, denied: list[Any], code: Code) -> Answer:
        """Return the response of a handler that also takes the denied rows, and refuses them with
        the code.
        """
        return self._handle(self.request, self.context, denied, code)

    def refuse(self, code: Code) -> Message:
        """The response that refuses the whole request."""
        return self.request.error_response(self.version, code)

    def amend(self, amendment: Amendment) -> None:
        """Change the handler's response before it is sent, if the handler is called."""
        self._amendments += (amendment,)

    def split(
        self,
        field: str,
        is_allowed: Callable[[Any], bool],
        code: Code,
        refused: Callable[[list[Any]], Any] | None = None,
    ) -> Answer:
        """Pass the allowed rows of one of the request's lists to the handler, and add the refusals
        of the others to its response. A long list is checked in slices.

        Takes: refused, which makes the response with the refusals of some rows; None if each row
               gets the error code.
        """

        def refuse(denied: list[Any]) -> Any:
            return self._refused(field, denied, code) if refused is None else refused(denied)

        rows, asked = self.request.ROWS[field], getattr(self.request, field)
        if len(asked) > ROWS_AT_ONCE:
            work = self._split_in_slices(field, rows, is_allowed, refuse)
            return self.parts.wide.begin(self.context, work)
        allowed, denied = parted(asked, is_allowed)
        if not denied:
            return self.proceed()
        answer = refuse(denied)
        return answer if not allowed else self._with_others(field, allowed, rows, answer)

    def _split_in_slices(
        self,
        field: str,
        rows: str,
        is_allowed: Callable[[Any], bool],
        refuse: Callable[[list[Any]], Any],
    ) -> Slices:
        """Do the work of `split` with a long list, one slice of rows at a time; at each `yield` the
        broker may serve other requests. Refused rows are encoded at once, which takes less memory.
        """
        yield
        asked = getattr(self.request, field)
        allowed: list[Any] = []
        refusals: Any = None
        for first in range(0, len(asked), ROWS_AT_ONCE):
            if first:
                yield
            some, denied = parted(asked[first : first + ROWS_AT_ONCE], is_allowed)
            allowed += some
            if denied:
                answer = refuse(denied)
                refused, encoded = getattr(answer, rows), EncodedRows()
                encoded.add(refused, self.version)
                setattr(answer, rows, encoded)
                if refusals is None:
                    refusals = answer
                else:
                    join_rows(refusals, rows, encoded, self.version)
        now_ms = yield
        if refusals is not None and not allowed:
            return refusals
        self.context = self.context.replace(now_ms=now_ms)
        if refusals is None:
            return self.proceed()
        return self._with_others(field, allowed, rows, refusals)

    def _with_others(self, field: str, allowed: list[Any], rows: str, refused: Any) -> Answer:
        """The handler's response about the allowed rows, with the refusals of the others added."""
        setattr(self.request, field, allowed)
        self.amend(
            lambda case, answer: join_rows(answer, rows, getattr(refused, rows), case.version)
        )
        return self.proceed()

    def _refused(self, field: str, denied: list[Any], code: Code) -> Message:
        """The answer with the error code for the refused rows only."""
        request = copy.copy(self.request)
        setattr(request, field, denied)
        return refused_rows(request, self.version, code)

    def topic_name(self, row: Any) -> str | None:
        """The name of a row's topic, which is looked up if the row has a topic id. None for an
        unknown topic.
        """
        topic_id = getattr(row, "topic_id", None)
        if topic_id is None or topic_id == NO_ID:
            name: str = row.name
            return name
        topic = self.parts.topics.metadata.topic_by_id(topic_id)
        return None if topic is None else topic.name

    def may_topic(self, operation: Operation) -> Callable[[Any], bool]:
        """Return a check of whether the operation on a row's topic is allowed. It lets unknown
        topic ids pass, since the handler refuses them.
        """

        def is_allowed(row: Any) -> bool:
            name = self.topic_name(row)
            return name is None or self.access.may(operation, TOPIC, name)

        return is_allowed

    def sees_topic(self, row: Any) -> bool:
        """Whether the client may describe the topic of a row in a response."""
        name = self.topic_name(row)
        return name is not None and self.access.sees(DESCRIBE, TOPIC, name)

    def mask(self, rows: Any, resource_type: ResourceType, key: str, field: str) -> None:
        """Remove the operations that are not allowed from the rows of a response."""
        for row in rows:
            bits = getattr(row, field)
            if bits != NOT_ASKED:
                name = getattr(row, key)
                setattr(row, field, self.access.operations(bits, resource_type, name))


Amendment = Callable[[Case[Any], Any], None]
"""A change of a handler's response. It takes the case and the response."""


def parted(items: list[Any], is_allowed: Callable[[Any], bool]) -> tuple[list[Any], list[Any]]:
    """The allowed items of a list, and its other items."""
    allowed: list[Any] = []
    denied: list[Any] = []
    for item in items:
        (allowed if is_allowed(item) else denied).append(item)
    return allowed, denied


class Ask(NamedTuple):
    """An operation that a request requires on a type of resource, for the documentation. when: the
    case in which it is required; empty if it is required for each resource that the request names.
    """

    operation: Operation
    resource_type: ResourceType
    when: str = ""


Take = Callable[[Case[Any]], Answer | None]


class Step(NamedTuple):
    """A step of a rule.

    take: a function that answers a request, or returns None to continue with the next step; None
    instead of a function if the handler makes the check. is_about_answer: whether the step only
    adds an amendment of the handler's response. Such steps come before those that call the handler.
    """

    asks: tuple[Ask, ...]
    take: Take | None
    is_about_answer: bool = False


class Rule(NamedTuple):
    """The checks of an API's requests. If `asks` is empty, every client may send the request.

    takes: the functions of the steps, in order. is_all_allowed: for frequent requests, a quick test
    of whether the steps would pass the request on unchanged.
    """

    asks: tuple[Ask, ...]
    takes: tuple[Take, ...]
    is_all_allowed: Callable[[Any, Access], bool] | None = None


def rule(*steps: Step, is_all_allowed: Callable[[Any, Access], bool] | None = None) -> Rule:
    """Make a rule from steps."""
    in_order = sorted(steps, key=lambda step: not step.is_about_answer)
    return Rule(
        tuple(ask for step in steps for ask in step.asks),
        tuple(step.take for step in in_order if step.take is not None),
        is_all_allowed,
    )


# --- steps ----------------------------------------------------------------------------------------


def on_cluster(*operations: Operation) -> Step:
    """Make a step that requires one of these operations on the cluster for the whole request."""
    first, *others = operations

    def take(case: Case[Any]) -> Answer | None:
        access = case.access
        if any(access.is_enough_on_cluster(operation) for operation in others):
            return None
        return None if access.may_on_cluster(first) else case.refuse(FAILED[CLUSTER])

    return Step(
        (Ask(first, CLUSTER), *(Ask(operation, CLUSTER, "or this") for operation in others)), take
    )


def enough_on_cluster(operation: Operation, *, is_audited: bool = True) -> Step:
    """Make a step for which an operation on the cluster is sufficient. If the client may not do it,
    the next steps decide.
    """

    def take(case: Case[Any]) -> Answer | None:
        access = case.access
        if is_audited:
            is_enough = access.is_enough_on_cluster(operation)
        else:
            is_enough = access.sees(operation, CLUSTER, CLUSTER_NAME)
        return case.proceed() if is_enough else None

    return Step((Ask(operation, CLUSTER),), take)


def whole(operation: Operation, resource_type: ResourceType, field: str) -> Step:
    """Make a step that requires an operation on the resource that is named by one of the request's
    fields.
    """

    def take(case: Case[Any]) -> Answer | None:
        name = getattr(case.request, field) or ""  # the field may be null
        if case.access.may(operation, resource_type, name):
            return None
        return case.refuse(FAILED[resource_type])

    return Step((Ask(operation, resource_type),), take)


def named(operation: Operation, resource_type: ResourceType, field: str) -> Step:
    """Make a step like `whole`, for a request that the handler refuses if the field is null,
    whatever the client may do.
    """

    def take(case: Case[Any]) -> Answer | None:
        name = getattr(case.request, field)
        if name is None or case.access.may(operation, resource_type, name):
            return None
        return case.refuse(FAILED[resource_type])

    return Step((Ask(operation, resource_type),), take)


def every(operation: Operation, resource_type: ResourceType, field: str, when: str) -> Step:
    """Make a step that requires an operation on each name in one of the request's lists. If one is
    denied, the whole request is refused.
    """

    def take(case: Case[Any]) -> Answer | None:
        names = getattr(case.request, field) or ()
        if all(case.access.may(operation, resource_type, name) for name in names):
            return None
        return case.refuse(FAILED[resource_type])

    return Step((Ask(operation, resource_type, when),), take)


def each(
    operation: Operation,
    resource_type: ResourceType,
    path: str,
    when: str = "",
    *,
    by_id: bool = False,
) -> Step:
    """Make a step that requires an operation on the resource of each row of a request, and refuses
    only the rows for which it is denied.

    Takes: path, the list of the request, and the field that contains the name ("topics.name");
           without a field, the rows themselves are names; by_id, whether a row may have a topic id
           instead of the name.
    """
    field, _, key = path.partition(".")
    code = FAILED[resource_type]

    def take(case: Case[Any]) -> Answer | None:
        def is_allowed(row: Any) -> bool:
            return case.access.may(operation, resource_type, getattr(row, key) if key else row)

        return case.split(field, is_allowed, code)

    def take_by_id(case: Case[Any]) -> Answer | None:
        return case.split(field, case.may_topic(operation), code)

    return Step((Ask(operation, resource_type, when),), take_by_id if by_id else take)


def by_hand(take: Callable[[Case[Any]], Answer | None], *asks: Ask) -> Step:
    """Make a step with a special function from `guards.py`."""
    return Step(asks, take)


def in_handler(*asks: Ask) -> Step:
    """Make a step without a function. The handler makes the check, since its response is not a
    message, or contains resources that the request does not name.
    """
    return Step(asks, None)


def in_answer(amendment: Amendment, *asks: Ask) -> Step:
    """Make a step that removes the resources that the client may not see from the response."""

    def take(case: Case[Any]) -> None:
        case.amend(amendment)

    return Step(asks, take, is_about_answer=True)


def operations_of(rows: str, resource_type: ResourceType, key: str, field: str) -> Step:
    """Make a step that limits the operations listed in the response's rows to those that the client
    may do, if the request asks for this list.
    """

    def mask(case: Case[Any], answer: Any) -> None:
        case.mask(getattr(answer, rows), resource_type, key, field)

    return in_answer(mask)

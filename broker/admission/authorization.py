"""The steps that check the rights of a request's client, around the handler.

With an authorizer, `authorized` puts the steps of the rule in an API's row around its handler.
Without an authorizer this module is not imported.
Source: KIP-11, KIP-98, KIP-290, KIP-430 (operations), KIP-679, KIP-848, KIP-932, KIP-939, and the
responses of Apache Kafka 3.9.
"""

from __future__ import annotations

from barnabas.broker.admission.guard_steps import Case, GuardParts, Rule
from barnabas.broker.outbox import Answer, Encoded
from barnabas.broker.routes import Route
from barnabas.protocol.messages.message import Message
from barnabas.protocol.request_context import RequestContext


def authorized(parts: GuardParts, right: Rule, route: Route) -> Route:
    """The route of an API, whose handler runs only after the steps of the API's rule."""
    _, takes, is_all_allowed = right
    if not takes:
        return route
    handle = route.handle

    def handle_authorized(request: Message, context: RequestContext) -> Answer:
        access = parts.access.of(context)
        assert access is not None, "there is an authorizer"
        if is_all_allowed is not None and is_all_allowed(request, access):
            return handle(request, context)
        case = Case(parts, handle, request, context, access)
        answer: Answer | None = None
        for take in takes:
            answer = take(case)
            if answer is not None:
                break
        else:
            answer = case.proceed()
        return parts.requests.amendable(context, answer) if isinstance(answer, Encoded) else answer

    return route._replace(handle=handle_authorized)

"""Which coordinator answers a request: the values for the rows of APIs. Every family of requests
needs this module, so it does not load the coordinators, and imports one for its type alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.broker.settings.current_features import CurrentFeatures
from barnabas.coordinator.result import Result
from barnabas.protocol.request_context import RequestContext

if TYPE_CHECKING:
    from barnabas.coordinator.groups.group_coordinator import GroupCoordinator


class One(NamedTuple):
    """The internal topic of a request's group or transactional id, and the name of the request's
    field for it.
    """

    topic: str
    field: str


class Several(NamedTuple):
    """The names for a list in a request. The list has groups or ids, or rows that have a group or
    id in the field `key`.

    rows: the list in the response, in the same order. since: the first version of the request that
    has the list.
    """

    topic: str
    field: str
    rows: str
    key: str | None = None
    since: int = 0


class Heartbeats(NamedTuple):
    """The function that decides the heartbeats of one type of group, and the function that checks
    whether the features enable this type.
    """

    decide: Callable[[GroupCoordinator], Callable[[Any, RequestContext, int], Result]]
    are_spoken: Callable[[CurrentFeatures], bool]


class Coordination(NamedTuple):
    """Which coordinator answers an API's requests, and what its answer needs.

    one: the group or transactional id of the whole request. several: a list of these, each of which
    is answered by itself. listed: the response lists all that the broker coordinates. heartbeats:
    for the heartbeats of members. writes: the answer is refused while too few replicas of the
    partition that stores the group or id are in sync. share_state_writes: the same for each row of
    a request about share partitions; None for other requests.
    """

    one: One | None = None
    several: Several | None = None
    listed: Several | None = None
    heartbeats: Heartbeats | None = None
    writes: bool = False
    share_state_writes: bool | None = None

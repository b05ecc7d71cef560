"""Removes from an observation of the broker everything that its viewer may not describe.

| shown | needs |
|---|---|
| a topic's partitions, and its rows in groups and transactions | DESCRIBE on the topic |
| a group | DESCRIBE on the group |
| the transactional id of a transaction, and its client | DESCRIBE on the transactional id |

The open transactions of a partition are shown with the partition, like its last stable offset. A
viewer without DESCRIBE on the transactional id sees only the producer id. The module does no I/O.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.broker.observe import ROWS_AT_ONCE, Look
from barnabas.broker.security.acls import Operation, ResourceType
from barnabas.console.views import UNNAMED, Observed

Sees = Callable[[int, int, str], bool]
"""Whether an operation on a resource (type, name) is allowed."""


def restricted(observed: Observed, sees: Sees) -> Look[Observed]:
    """The part of an observation that the viewer may describe, computed in slices."""
    describe, topic, group = Operation.DESCRIBE, ResourceType.TOPIC, ResourceType.GROUP
    topics: dict[str, bool] = {}

    def sees_topic(name: str) -> bool:
        answer = topics.get(name)
        if answer is None:
            answer = topics[name] = sees(describe, topic, name)
        return answer

    partitions = []
    for number, row in enumerate(observed.partitions, 1):
        if sees_topic(row.topic):
            partitions.append(row)
        if number % ROWS_AT_ONCE == 0:
            yield
    ids = []
    for number, state in enumerate(observed.transactional_ids, 1):
        places = tuple(place for place in state.partitions if sees_topic(place[0]))
        if sees(describe, ResourceType.TRANSACTIONAL_ID, state.transactional_id):
            ids.append(state._replace(partitions=places))
        elif places:  # Without its state, the transaction would be shown as hanging.
            ids.append(state._replace(transactional_id=UNNAMED, partitions=places))
        if number % ROWS_AT_ONCE == 0:
            yield
    groups = []
    for number, one in enumerate(observed.groups, 1):
        if sees(describe, group, one.group_id):
            offsets = tuple(row for row in one.offsets if sees_topic(row.topic))
            groups.append(one._replace(offsets=offsets))
        if number % ROWS_AT_ONCE == 0:
            yield
    names = {state.transactional_id for state in ids} - {UNNAMED}
    return Observed(
        tuple(partitions),
        tuple(ids),
        tuple(groups),
        {name: host for name, host in observed.clients.items() if name in names},
        observed.wall_ms,
    )

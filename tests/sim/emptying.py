"""The last check of a simulated broker: everything that it had is removed (connections, topics,
groups, and by advancing the clock everything else). Then it must not have more state than a broker
that is newly started on its directory.
"""

from __future__ import annotations

from typing import Any

from helpers.our_messages import request_frame
from helpers.strays import deadlines_of_nothing, sizes_of, surplus, traces_of

from barnabas.protocol.messages.delete_groups import DeleteGroupsRequest
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest
from barnabas.protocol.messages.message import Message

LONG_MS, LEAPS = 30 * 24 * 3600 * 1000, 3
CONNECTION = 1 << 40
MOST_TURNS = 400
KEPT_NAMES = {"group"}  # not searched for, since the word also occurs elsewhere


def keeps(world: Any) -> list[str]:
    """Remove everything from the running broker. Gives: descriptions of what it still has."""
    node, broker = world.node, world.node.broker
    world.is_emptied = True
    node.hang_up_clients()
    names = [name for name in broker.metadata.topics if not name.startswith("__")]
    gone = {*names, *broker.transactions.snapshot()}
    _ask(world, DeleteTopicsRequest(topic_names=names, timeout_ms=60_000), 5)
    found: list[str] = []
    for _ in range(LEAPS):
        world.loop.skip(LONG_MS)
        world.loop.run_until(world.loop.now_ms + 3_000)
        groups = [group.group_id for group in broker.groups.all_groups()]
        gone.update(groups)
        _ask(world, DeleteGroupsRequest(groups_names=groups), 1)
        found += deadlines_of_nothing(broker.groups)
    world.loop.run_until(world.loop.now_ms + 3_000)
    if node.broker is not broker:
        return ["the broker ended while it was emptied"]
    return [
        *found,
        *traces_of(broker, gone - KEPT_NAMES),
        *surplus(sizes_of(broker), sizes_of(node.started_on_a_copy())),
    ]


def _ask(world: Any, request: Message, version: int) -> None:
    """Send a request on a new connection, which is closed after the answer."""
    node = world.node
    node.connect_nobody(CONNECTION)
    node.on_frame(CONNECTION, node.generation, bytes(request_frame(request, version, 1)))
    for _ in range(MOST_TURNS):
        if not node.is_asked(CONNECTION):
            break
        world.loop.run_until(world.loop.now_ms + 50)
    else:
        world.history.incident("stuck", f"{type(request).__name__} is not answered")
    node.on_hang_up(CONNECTION, node.generation)

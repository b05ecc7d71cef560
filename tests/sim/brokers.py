"""Several brokers: a client of all of them, and a task that moves leaders and stops brokers.

A client uses a `Bundle` as it uses a `Link` to a single broker. The bundle has a link to each
broker, opened at first use, and sends each request to the broker that it believes to be the leader
or coordinator. A refusal corrects that belief, as Metadata does for real clients, and the bundle
repeats the request. Only a Produce is repeated by the client, which preserves its own order. When
one link breaks, all links do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from helpers.api_rows import ROWS

from barnabas.coordinator.internal_topics import INTERNAL_TOPICS
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.message import Message
from barnabas.test_control.observed import error_codes
from sim import wire
from sim.loop import Future
from sim.network import LOST, REQUEST_TIMEOUT_MS, Forgiving, Link

if TYPE_CHECKING:
    from barnabas.broker.brokers.cluster import Cluster
    from sim.clients import Asking
    from sim.world import World

Place = tuple[str, int]
REFUSED = frozenset({Code.NOT_LEADER_OR_FOLLOWER, Code.NOT_COORDINATOR})
REFUSED_NAMES = frozenset(code.name for code in REFUSED)
ONE_PARTITION = frozenset({"ListOffsets", "OffsetForLeaderEpoch", "DeleteRecords"})
MOST_TRIES = 60


def places(call: wire.Call, cluster: Cluster) -> list[Place]:
    """The partitions whose leaders may handle the request; empty if any broker may."""
    if isinstance(call.about, list):
        return call.about
    message: Any = call.about
    if call.name == "Produce":
        (topic,) = message.topic_data
        return [(topic.name, row.index) for row in topic.partition_data]
    if call.name in ONE_PARTITION:
        (topic,) = message.topics
        return [
            (
                getattr(topic, "name", None) or topic.topic,
                getattr(row, "partition_index", None) or getattr(row, "partition", 0),
            )
            for row in topic.partitions
        ]
    coordination = ROWS[call.name].coordination
    one = None if coordination is None else coordination.one
    key = getattr(message, one.field) if one is not None else None
    if one is None or not key:
        return []
    topic, index = cluster.coordinator_partition(one.topic, key)
    return [(topic, index)]


def is_refusal(answer: Any) -> bool:
    """Whether the response says that another broker is the leader or coordinator."""
    if isinstance(answer, wire.Produced):
        return answer.error_code in REFUSED
    if isinstance(answer, wire.FetchAnswer):
        rows = answer.partitions
        return bool(rows) and all(row.error_code in REFUSED for row in rows)
    return isinstance(answer, Message) and bool(REFUSED_NAMES & set(error_codes(answer)))


class Bundle:
    """A client's connections to all brokers. `resent` counts the requests that were sent to another
    broker after a refusal.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self._links: dict[int, Link] = {}
        self._view: dict[Place, int] = {}
        self._forgives = Forgiving.NEVER
        self._is_closed, self.resent = False, 0

    @property
    def is_open(self) -> bool:
        return not self._is_closed and all(link.is_open for link in self._links.values())

    @property
    def last_arrival_ms(self) -> int:
        return max((link.last_arrival_ms for link in self._links.values()), default=0)

    @property
    def forgives(self) -> Forgiving:
        return self._forgives

    @forgives.setter
    def forgives(self, forgives: Forgiving) -> None:
        self._forgives = forgives
        for link in self._links.values():
            link.forgives = forgives

    def call(self, call: wire.Call, timeout_ms: int = REQUEST_TIMEOUT_MS) -> Future:
        """Send a request to the right broker. The future's result is the decoded response, or
        LOST.
        """
        future = Future()
        self._try(call, timeout_ms, future, MOST_TRIES)
        return future

    def lose(self, broker_learns_ms: int) -> None:
        """Close the client's side. The broker notices it later."""
        self._is_closed = True
        for link in self._links.values():
            link.lose(broker_learns_ms)

    close = lose

    def _try(self, call: wire.Call, timeout_ms: int, future: Future, tries: int) -> None:
        """Send the request to the broker that it belongs to. A refused request is sent again to
        another one, except Produce and Fetch.
        """
        world, broker = self.world, self.world.node.broker
        if broker is None or not self.is_open or not tries:
            self._give_up(future)
            return
        wanted = places(call, broker.cluster)
        node_id = self._choose(wanted, broker.cluster)
        link = self._link_to(node_id, broker.cluster) if world.node.broker is broker else None
        if link is None:
            self._forget(wanted)
            self._give_up(future)
            return

        def answered(answer: Any) -> None:
            if answer is LOST or not self.is_open:  # if one link is lost, all are
                self._give_up(future)
                return
            if isinstance(answer, wire.FetchAnswer):
                for row in answer.partitions:
                    if row.error_code in REFUSED:
                        self._forget([(row.topic, row.partition)])
            if is_refusal(answer):
                self._forget(wanted)
                if not isinstance(answer, wire.Produced):
                    self.resent += 1
                    delay_ms = world.routing.randint(5, 60)
                    world.loop.later(delay_ms, self._try, call, timeout_ms, future, tries - 1)
                    return
            elif isinstance(answer, wire.FetchAnswer):
                rows = [row for row in answer.partitions if row.error_code not in REFUSED]
                answer = answer._replace(partitions=rows)
            future.resolve(answer)

        link.call(call, timeout_ms).then(answered)

    def _choose(self, wanted: list[Place], cluster: Cluster) -> int:
        """The node to send a request to: the leader of one of the wanted partitions, chosen at
        random, by the client's metadata, which may be stale. Any node if no partition is wanted.
        """
        rng = self.world.routing
        if not wanted:
            return rng.choice([node.node_id for node in cluster.nodes_there()])
        place = rng.choice(wanted)
        if place not in self._view:
            leadership = cluster.leadership(*place)
            broker = self.world.node.broker
            if leadership is None and place[0] in INTERNAL_TOPICS and broker is not None:
                # as FindCoordinator does
                self.world.node.change(broker.topics.ensure_internal_topic, place[0])
                leadership = cluster.leadership(*place)
            there = cluster.nodes_there()[0].node_id
            self._view[place] = (
                there if leadership is None or leadership.leader < 0 else leadership.leader
            )
        return self._view[place]

    def _link_to(self, node_id: int, cluster: Cluster) -> Link | None:
        link = self._links.get(node_id)
        if link is None and cluster.nodes[node_id].is_there:
            link = self._links[node_id] = self.world.connect_to(node_id)
            link.forgives = self._forgives
        return link

    def _forget(self, wanted: list[Place]) -> None:
        for place in wanted:
            self._view.pop(place, None)

    def _give_up(self, future: Future) -> None:
        self.lose(self.world.loop.now_ms)
        self.world.loop.later(1, future.resolve, LOST)


class Unled:
    """Requests that reached a broker which was not the leader of their partitions. Each must be
    refused.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._heard: set[tuple[int, int]] = set()

    def on_heard(self, link: Link, frame: bytes) -> None:
        """Record a request if the broker that receives it does not lead its partitions."""
        correlation_id = int.from_bytes(frame[4:8], "big")
        call = link.call_of(correlation_id)
        broker = self._world.node.broker
        if call is None or broker is None or broker.cluster.is_one or call.name == "Fetch":
            return
        wanted = places(call, broker.cluster)
        if wanted and not any(broker.cluster.leads(link.node_id, *place) for place in wanted):
            self._heard.add((link.link_id, correlation_id))

    def on_answered(self, link: Link, data: bytes) -> None:
        """Report an incident if a broker answers such a request without a refusal."""
        correlation_id = int.from_bytes(data[4:8], "big")
        call = link.call_of(correlation_id)
        key = (link.link_id, correlation_id)
        if key in self._heard and call is not None:
            self._heard.discard(key)
            answer = call.decode(data[8:])
            is_ours = not isinstance(answer, wire.Produced) or answer.error_code == 0
            if is_ours and not is_refusal(answer) and not _is_other_error(answer):
                self._world.history.incident(
                    "misled", f"broker {link.node_id} answers {call.name}, which is another's"
                )


def _is_other_error(answer: Any) -> bool:
    return isinstance(answer, Message) and bool(error_codes(answer))


def move_leaders(world: World) -> Asking:
    """Move leaders and coordinators, and stop and restart brokers."""
    rng = world.routing
    for _ in range(world.scenario.moves):
        yield rng.randint(150, 900)
        broker = world.node.broker
        if world.is_draining:
            return
        if broker is None:
            continue
        before = _epochs(world)
        kind = rng.randrange(3)
        if kind == 0:
            away = rng.choice(list(broker.cluster.nodes))
            world.trace("away", away, "", 0, b"")
            world.node.change(broker.failover.take_away, away)
            _check_epochs(world, before)
            yield rng.randint(50, 600)
            if world.node.broker is broker:
                world.node.change(broker.failover.give_back, away)
            continue
        name = rng.choice(sorted(broker.metadata.topics))
        leaderships = broker.cluster.leaderships(name)
        index = rng.randrange(len(leaderships))
        others = [one for one in leaderships[index].in_sync if one != leaderships[index].leader]
        if others:
            world.trace("moved", others[0], name, index, b"")
            world.node.change(broker.failover.move_leader, name, index, others[0])
            _check_epochs(world, before)


def _epochs(world: World) -> dict[Place, tuple[int, int]]:
    """The leader and the leader epoch of each partition."""
    broker = world.node.broker
    if broker is None:
        return {}
    return {
        (name, index): (leadership.leader, epoch)
        for name in broker.metadata.topics
        for index, (leadership, epoch) in enumerate(
            zip(broker.cluster.leaderships(name), broker.topics.leader_epochs(name), strict=True)
        )
    }


def _check_epochs(world: World, before: dict[Place, tuple[int, int]]) -> None:
    """Check that each partition with a new leader has a higher leader epoch."""
    for place, (leader, epoch) in _epochs(world).items():
        leader_before, epoch_before = before.get(place, (leader, -1))
        if leader != leader_before and epoch <= epoch_before:
            world.history.incident(
                "epoch", f"{place} has another leader in the same leader epoch {epoch}"
            )

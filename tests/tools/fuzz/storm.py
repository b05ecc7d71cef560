"""The storm: a real Broker in this process, with a dozen connections. It receives valid and invalid
requests while time passes, flushes complete in any order, and clients disconnect.

After each request these must hold. An undecodable frame gets no response, and its connection is
closed. A decodable frame gets one response, with its correlation id and in the format of its
version, or the request is parked. `Broker.on_frame` raises nothing but ProtocolViolation. No
request leaves objects that only the garbage collector would free.
"""

from __future__ import annotations

import gc
import hashlib
import shutil
import struct
import traceback
from pathlib import Path
from random import Random
from typing import Any

from helpers import kafka_messages as messages
from helpers.admin_host import HOST, NOW_MS, PORT, CountedIds
from helpers.core_host import delete_topic
from helpers.cycles import without_collector
from helpers.hard_state import hard_state
from helpers.leftovers import KEPT_OF_CONNECTIONS, places_of
from helpers.scratch import SamePlaceDisk

from barnabas.broker.core import Broker
from barnabas.broker.outbox import CloseReason
from barnabas.broker.parts import Parts
from barnabas.broker.settings.config import BrokerConfig
from barnabas.coordinator.internal_topics import SHARE_STATE_TOPIC, TRANSACTIONS_TOPIC
from barnabas.daemon.opening import open_broker
from barnabas.protocol.api_table import APIS, BY_KEY
from barnabas.protocol.errors import Code, DelayedRequest
from barnabas.protocol.framing import response_has_tagged_header
from barnabas.protocol.hot_responses import Piece
from barnabas.storage.disk import Slice
from barnabas.storage.log.log import Log
from fuzz.making import BASE_TOPICS, Knowledge, Maker, Producer, mutated
from fuzz.reading import PRODUCE, Reading, Verdict, read

CONNECTIONS = 12
MOST_PARTITIONS = 60
HOUR_MS = 3_600_000
OF_A_TRANSACTION = (
    "AddPartitionsToTxn",
    "AddOffsetsToTxn",
    "EndTxn",
    "Produce",
    "TxnOffsetCommit",
)
OF_ACLS = ("CreateAcls", "DescribeAcls", "DeleteAcls")
CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS = 19, 20, 37
JOIN_GROUP, INIT_PRODUCER_ID, FETCH, WRITE_TXN_MARKERS = 11, 22, 1, 27
OFTEN = (
    0,
    0,
    0,
    0,
    1,
    1,
    8,
    11,
    11,
    12,
    14,
    14,
    24,
    24,
    25,
    26,
    28,
    28,
)  # requests that make the logs grow and the coordinators work
SETTINGS = {
    "node.id": "1",
    "group.initial.rebalance.delay.ms": "100",
    "group.min.session.timeout.ms": "1",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "log.initial.task.delay.ms": "1000",
}

FIRST_CONNECTION = 7_000_000_001  # a number that occurs nowhere else in the broker's state


class Storm:
    """The broker, its connections and the random requests. `findings` has the failures, each with
    the seed, the request's number and its bytes.
    """

    def __init__(self, directory: Path, seed: int, **settings: str) -> None:
        self.directory, self.seed = directory, seed
        self.random = Random(seed)
        self.ids = CountedIds()
        self.now_ms = NOW_MS
        self.properties = {**SETTINGS, "log.dirs": str(directory), **settings}
        self.findings: dict[str, str] = {}
        self.counts: dict[str, int] = {"mutated": 0, "answered": 0, "parked": 0, "hung up": 0}
        self.fine: dict[str, int] = {}
        self.asked: dict[int, Reading] = {}
        self.flushes: list[Any] = []
        self.free: list[int] = []
        self._next_connection = FIRST_CONNECTION
        self._number = 0
        self.knowledge = Knowledge()
        self.broker = self.open()
        for name, partitions in BASE_TOPICS.items():
            configs = {
                "compacted": {"cleanup.policy": "compact"},
                "small-segments": {"segment.bytes": "2000"},
            }.get(name, {})
            self.broker.topics.create_topic(name, partitions, configs, now_ms=self.now_ms)
        self.maker = Maker(self.random, self.knowledge, self.now_ms)

    # --- the broker and its rim ------------------------------------------------------------------

    @property
    def parts(self) -> Parts:
        """All parts of the broker."""
        return self.broker.routes.parts

    def open(self, directory: Path | None = None) -> Broker:
        """Open the broker on its directory, or on another one."""
        properties = (
            self.properties
            if directory is None
            else {**self.properties, "log.dirs": str(directory)}
        )
        return open_broker(
            BrokerConfig.from_properties(properties),
            self.ids,
            disk=SamePlaceDisk(),
            now_ms=self.now_ms,
        )

    def connect(self) -> int:
        """Open a connection, and return its number."""
        connection = self._next_connection
        self._next_connection += 1
        self.broker.on_connected(connection, "192.0.2.9", HOST, PORT)
        return connection

    def hang_up(self, connection: int) -> None:
        """Close a connection from the client's side."""
        self.asked.pop(connection, None)
        if connection in self.free:
            self.free.remove(connection)
        self.broker.on_closed(connection)

    def carry_out(self) -> list[int]:
        """Take what the broker sends, check it, and close the connections that the broker wants to
        close. Return these connections.
        """
        outbox = self.broker.outbox
        closed: list[int] = []
        self.last_reason: CloseReason = ""
        while outbox.sends or outbox.closes or outbox.work or outbox.deferred:
            sends, outbox.sends = outbox.sends, []
            for connection, pieces in sends:
                asked = self.asked.pop(connection, None)
                assert asked is not None, "an answer to an unknown request"
                self.free.append(connection)
                self.check_answer(asked, b"".join(content(piece) for piece in pieces))
            closes, outbox.closes = outbox.closes, []
            for connection, self.last_reason in closes:
                assert connection in self.broker.connections
                closed.append(connection)
                self.hang_up(connection)
            works, outbox.work = outbox.work, []
            for work in works:
                self.broker.on_worked(work, work.run(), None, self.now_ms)
            self.broker.on_sent(self.now_ms)
        self.flushes += outbox.flushes
        outbox.flushes = []
        return closed

    def pass_time(self, ms: int) -> None:
        """Advance the clock. If the broker's deadline has passed, call `on_tick`."""
        self.now_ms += ms
        self.maker.now_ms = self.now_ms
        deadline = self.broker.next_deadline_ms()
        if deadline is not None and deadline <= self.now_ms:
            self.broker.on_tick(self.now_ms)
            self.carry_out()

    def flush(self) -> None:
        """Complete all requested flushes."""
        while self.flushes:
            self.broker.on_flushed(self.flushes.pop(0), self.now_ms)
            self.carry_out()

    # --- one request -----------------------------------------------------------------------------

    def run(self, count: int) -> None:
        """Send `count` mutated requests, with valid ones in between. Nothing that they leave may
        need the garbage collector.
        """
        until = self.counts["mutated"] + count
        with without_collector() as cycles:
            while self.counts["mutated"] < until:
                self._number += 1
                self.step()
                if self._number % 100 == 0:
                    self.check_between()
        if cycles.kinds:
            self.findings["cycles"] = f"seed {self.seed}, until {self._number}: {cycles}"

    def step(self) -> None:
        """Make one request, valid or not, and send it; then let some time pass."""
        random = self.random
        api = BY_KEY[random.choice(OFTEN)] if random.random() < 0.4 else random.choice(APIS)
        version = random.randint(api.min_version, api.max_version)
        kind = random.random()
        if kind < 0.25:
            frame = self.maker.request(api, version, self._number)
        elif kind < 0.5:
            frame = self.maker.request(
                api, version, self._number, wild=random.choice((0.05, 0.2, 0.5))
            )
        else:
            other = random.choice(APIS)
            frame = mutated(
                self.maker.request(api, version, self._number, wild=random.choice((0.0, 0.1))),
                self.maker.request(
                    other, random.randint(other.min_version, other.max_version), self._number
                ),
                random,
            )
        reading = read(frame)
        if not self.is_bearable(reading) or (api.key == DELETE_TOPICS and random.random() < 0.8):
            return
        self.counts["mutated"] += kind >= 0.25
        self.offer(frame, reading)
        if random.random() < 0.6:
            self.flush()
        self.pass_time(random.choices((0, 1, 20, 400, 5_000, 100_000), (70, 20, 20, 5, 1, 0.2))[0])

    def is_bearable(self, reading: Reading) -> bool:
        """Whether a healthy broker can handle the request in reasonable time and without lasting
        damage.

        Two kinds of request are excluded. A request for thousands of partitions is legitimate, but
        slow. A marker whose epoch is later than that of any coordinator or producer fences both
        from the partition for good, as in Apache Kafka (such markers come from an operator's tool,
        KIP-664).
        """
        if reading.values is None or reading.api is None:
            return True
        if reading.api.key == WRITE_TXN_MARKERS:
            epochs = {
                producer.producer_id: producer.producer_epoch
                for producer in self.knowledge.producers
            }
            return all(
                marker["coordinator_epoch"] <= 0
                and marker["producer_epoch"] <= epochs.get(marker["producer_id"], -1)
                for marker in reading.values["markers"]
            )
        if reading.api.key not in (CREATE_TOPICS, CREATE_PARTITIONS):
            return True
        asked = sum(
            max(topic.get("num_partitions", 0), topic.get("count", 0))
            for topic in reading.values["topics"] or ()
        )
        return asked <= 30 and len(self.broker.logs.logs) < MOST_PARTITIONS

    def offer(self, frame: bytes, reading: Reading) -> None:
        """Send a frame over a free connection, and judge what the broker does with it."""
        if not self.free:
            self.make_room()
        connection = self.free.pop(self.random.randrange(len(self.free)))
        self.asked[connection] = reading
        memory = bytearray(frame)
        try:
            self.broker.on_frame(connection, memoryview(memory), self.now_ms)
            # the core must not keep a view of the frame after the call
            memory[:] = b"\xaa" * len(memory)
            answered_before = self.counts["answered"]
            closed = connection in self.carry_out()
        except Exception:
            self.find(traceback.format_exc(), frame, reading)
            self.broker.outbox.sends = [
                send for send in self.broker.outbox.sends if send[0] != connection
            ]
            self.broker.outbox.closes = [
                close for close in self.broker.outbox.closes if close[0] != connection
            ]
            if connection in self.broker.connections:
                self.hang_up(connection)
            return
        answered = self.counts["answered"] > answered_before
        self.counts["hung up"] += closed
        self.counts["parked"] += connection in self.asked
        self.judge(frame, reading, closed=closed, answered=answered)

    def make_room(self) -> None:
        """If all connections have waiting requests, close an old one and open a new one."""
        if len(self.broker.connections) >= CONNECTIONS:
            self.flush()
        if not self.free and len(self.broker.connections) >= CONNECTIONS:
            self.hang_up(self.random.choice(list(self.broker.connections)))
        if not self.free:
            self.free.append(self.connect())

    def judge(self, frame: bytes, reading: Reading, *, closed: bool, answered: bool) -> None:
        """Report a valid frame after which the broker closed the connection, or an invalid one
        after which it did not.
        """
        verdict = reading.verdict
        if verdict is Verdict.NOT_UNDERSTOOD and not closed:
            self.find(f"not understood ({reading.why}), but not hung up on", frame, reading)
        elif verdict is Verdict.OTHER_VERSION and (closed or not answered):
            self.find("ApiVersions in a version to come is not answered", frame, reading)
        elif verdict is Verdict.UNDERSTOOD and closed and not self.may_hang_up(reading):
            self.find("understood, but hung up on", frame, reading)

    def may_hang_up(self, reading: Reading) -> bool:
        """Whether the broker may close the connection after a valid request. There are three cases:

        - a Produce request with acks=0, since it has no response that could report an error;
        - a delayed request of a transaction whose producer has since used another connection
          (all connections here use the same few transactional ids);
        - an ACL request with an enum value of 0, as in Apache Kafka.
        """
        assert reading.api is not None
        if reading.api.name in OF_ACLS:
            return True
        if reading.api.name in OF_A_TRANSACTION and isinstance(self.last_reason, DelayedRequest):
            return True
        return reading.api.key == PRODUCE and bool(reading.values["acks"] == 0)

    def check_answer(self, asked: Reading, answer: bytes) -> None:
        """Check that a response fits its request, byte for byte, and store what a client learns
        from it.
        """
        if not answer:
            assert asked.api is not None and asked.api.key == PRODUCE, (
                "only a Produce may go without an answer"
            )
            assert asked.values is None or asked.values["acks"] == 0
            return
        self.counts["answered"] += 1
        assert asked.verdict is not Verdict.NOT_UNDERSTOOD, "an answer to what was not understood"
        size, correlation_id = struct.unpack_from(">ii", answer)
        assert size == len(answer) - 4
        if asked.api is None:
            return
        assert correlation_id == asked.correlation_id
        version = 0 if asked.verdict is Verdict.OTHER_VERSION else asked.version
        start = 9 if response_has_tagged_header(asked.api, version) else 8
        response_class = messages.message_class(asked.api.name + "Response")
        response, end = messages.decoder(response_class, version)(memoryview(answer[start:]), 0)
        assert end == len(answer) - start, (
            f"the answer to {asked.api.name} {version} is longer than what it says"
        )
        if getattr(response, "error_code", 0) == 0 and b"\xff\xff" not in answer[:14]:
            self.fine[asked.api.name] = self.fine.get(asked.api.name, 0) + 1
        self.learn(asked, response)

    def learn(self, asked: Reading, response: Any) -> None:
        """Store what a client learns from a response."""
        knowledge, values = self.knowledge, asked.values
        assert asked.api is not None
        if values is None or getattr(response, "error_code", 1) not in (
            Code.NONE,
            Code.MEMBER_ID_REQUIRED,
        ):
            return
        if asked.api.key == INIT_PRODUCER_ID:
            knowledge.remember_producer(
                Producer(values["transactional_id"], response.producer_id, response.producer_epoch)
            )
        elif asked.api.key == JOIN_GROUP:
            knowledge.remember_member(
                values["group_id"], response.member_id, response.generation_id
            )
        elif asked.api.key == FETCH and getattr(response, "session_id", 0):
            epoch = values.get("session_epoch", 0)
            knowledge.remember_session(
                response.session_id, max(1, epoch + 1) if epoch < 2**31 - 1 else 1
            )

    def find(self, what: str, frame: bytes, reading: Reading) -> None:
        """Record a finding. Of equal findings at the same place, only the first is recorded."""
        api = reading.api or BY_KEY.get(
            struct.unpack_from(">h", frame)[0] if len(frame) >= 2 else -1
        )
        lines = what.strip().splitlines()
        place = next(
            (line.strip() for line in reversed(lines[:-1]) if line.strip().startswith("File")), ""
        )
        key = f"{lines[-1][:150]} {place} [{api.name if api else '?'}]"
        self.findings.setdefault(
            key, f"seed {self.seed}, request {self._number}: {reading}\n{frame.hex()}\n{what}"
        )

    # --- now and then ----------------------------------------------------------------------------

    def check_between(self) -> None:
        """Update the knowledge with what clients could find out by other requests, and check the
        invariants.
        """
        broker, knowledge = self.broker, self.knowledge
        knowledge.topic_ids = {
            name: topic.topic_id for name, topic in broker.metadata.topics.items()
        }
        knowledge.end_offsets = {key: log.log_end_offset for key, log in broker.logs.logs.items()}
        knowledge.next_sequence.clear()
        for (name, index), log in broker.logs.logs.items():
            for producer in log.producer_state.active_producers():
                sequence = (producer.last_sequence + 1) % 2**31
                knowledge.next_sequence[
                    producer.producer_id, producer.producer_epoch, name, index
                ] = sequence
        self.check_invariants()
        for name in list(broker.metadata.topics):
            if (
                name not in BASE_TOPICS
                and not name.startswith("__")
                and len(broker.logs.logs) > MOST_PARTITIONS // 2
            ):
                delete_topic(broker.routes.parts.deletion, name, self.now_ms)
        for name, partitions in BASE_TOPICS.items():
            if name not in broker.metadata.topics:
                broker.topics.create_topic(name, partitions, {}, now_ms=self.now_ms)
            elif (
                self.random.random() < 0.3
                # undo changes of the configuration by random requests, which could make the topic
                # unusable
            ):
                configs = {
                    "compacted": {"cleanup.policy": "compact"},
                    "small-segments": {"segment.bytes": "2000"},
                }.get(name, {})
                broker.topics.set_topic_configs(name, configs)
                broker.progress.on_appended(broker.topics.logs_of(name), self.now_ms)
        self.carry_out()

    def check_invariants(self) -> None:
        """Check the order of each log's offsets, and that each waiting request belongs to a busy
        connection and each busy connection has a waiting request.
        """
        broker = self.broker
        for log in broker.logs.logs.values():
            assert (
                log.log_start_offset
                <= log.last_stable_offset
                <= log.high_watermark
                <= log.log_end_offset
            ), log
        # by connection, since a request that is handled in parts also has a ticket for its part
        waiting = {
            connection
            for connection, session in broker.connections.items()
            if session.parked_ticket >= 0
        }
        for log in broker.topics.logs_of(TRANSACTIONS_TOPIC):
            assert not list(log.producer_state.active_producers()), f"a marker in {log}"
        parked = {context.connection_id for context in broker.requests._parked.values()}
        assert waiting == parked, "what is parked is not what connections wait for"
        assert set(broker.requests._waiting_fetches) <= set(broker.requests._parked)
        assert {
            connection for connection, session in broker.connections.items() if session.in_flight
        } == set(self.asked)
        assert set(self.free) | set(self.asked) == set(broker.connections)

    def calm(self) -> None:
        """Disconnect all clients, let two hours pass and every flush complete; then check that
        nothing is left waiting.
        """
        broker = self.broker
        for connection in list(broker.connections):
            self.hang_up(connection)
        for _ in range(50):
            self.flush()
            self.pass_time(HOUR_MS // 25)
        self.flush()
        assert (
            not broker.requests._parked
            and not broker.requests._waiting_fetches
            and not broker.connections
            and not self.asked
        )
        assert not broker.purgatory._by_log and broker.purgatory.next_deadline_ms() is None
        assert broker.flushes.is_idle and broker.routes.parts.transaction_ends.is_idle
        assert (
            len(broker.cluster.nodes[broker.config.node_id].fetch_sessions)
            <= broker.config["max.incremental.fetch.session.cache.slots"]
        )
        assert not any(
            metadata.partitions for metadata in broker.transactions.snapshot().values()
        ), "a transaction outlived its time"
        for log in broker.logs.logs.values():
            assert not log.producer_state.open_transactions(), log
            assert log.last_stable_offset == log.log_end_offset
        self.check_nothing_is_kept_of_connections()
        self.check_invariants()
        gc.collect()

    def check_nothing_is_kept_of_connections(self) -> None:
        """Check that the broker keeps no state of closed connections."""
        ids = range(FIRST_CONNECTION, self._next_connection)
        self.broker.outbox.audit.clear()
        self.broker.outbox.mutes.clear()
        kept = places_of(
            self.broker, lambda value: type(value) is int and value in ids, KEPT_OF_CONNECTIONS
        )
        assert kept == [], kept[:9]

    # --- the same broker again -------------------------------------------------------------------

    def check_restarts(self, scratch: Path) -> None:
        """Check that the broker has the same state when it starts from a copy of its current
        directory (as after a kill), and when it starts after a clean stop. Offsets and share groups
        that a client has moved beyond the end of a log are reset first, because only a start after
        a kill would reset them.
        """
        self.take_back_offsets_beyond_logs()
        before = state_of(self.broker)
        shutil.copytree(self.directory, scratch, ignore=shutil.ignore_patterns(".lock"))
        killed = self.open(scratch)
        differences("after a kill", before, state_of(killed))
        killed.close_logs(self.now_ms)
        self.broker.close_logs(self.now_ms)
        self.broker = self.open()
        differences("after a clean stop", before, state_of(self.broker))

    def take_back_offsets_beyond_logs(self) -> None:
        """Reset committed offsets that are beyond the end of a log to its end, as a client may do.
        Do the same for share groups.
        """
        groups, topics = self.broker.groups, self.broker.topics

        def log_end(topic: str, index: int) -> int | None:
            log = topics.partition(topic, index)
            return None if log is None else log.log_end_offset

        rows = groups.offsets_beyond_log_end(log_end, lambda *_: (0, 0), lost_power=True)
        if rows:
            self.parts.group_runtime.run(groups.reset_offsets(rows), self.now_ms)
            self.flush()
        if topics.logs_of(SHARE_STATE_TOPIC):
            self.broker.shares.get().set_back(self.now_ms)


def content(piece: Piece) -> bytes:
    return piece.file.pread(piece.size, piece.position) if type(piece) is Slice else bytes(piece)


def state_of(broker: Broker) -> dict[str, Any]:
    """The state that must survive a restart."""
    topics = {
        name: (topic.topic_id, topic.partition_count, dict(topic.configs))
        for name, topic in broker.metadata.topics.items()
    }
    state: dict[str, Any] = {f"topic {name}": topic for name, topic in topics.items()}
    state["broker configs"] = dict(broker.metadata.broker_configs)
    state["next producer id"] = broker.metadata.next_producer_id
    state |= {
        f"transactional id {name!r}": metadata
        for name, metadata in broker.transactions.snapshot().items()
    }
    state["groups"] = hard_state(broker.groups)
    for (name, index), log in broker.logs.logs.items():
        state[f"log {name}-{index}"] = state_of_log(log)
    return state


def state_of_log(log: Log) -> dict[str, Any]:
    """Offsets, producers and settings of a log, and a digest of its batches."""
    digest = hashlib.sha256()
    for _, batch in log.read_batches():
        digest.update(batch)
    return {
        "offsets": (
            log.log_start_offset,
            log.last_stable_offset,
            log.high_watermark,
            log.log_end_offset,
        ),
        "batches": digest.hexdigest(),
        "producers": {
            producer.producer_id: producer for producer in log.producer_state.active_producers()
        },
        "config": log.config,
    }


def differences(
    when: str, before: dict[str, Any], after: dict[str, Any], path: str = "the state"
) -> None:
    """Compare two states, and fail at the first difference. The message names the path to it."""
    for key in dict.fromkeys([*before, *after]):
        left, right = before.get(key), after.get(key)
        if isinstance(left, dict) and isinstance(right, dict):
            # A producer that expired before the restart may be loaded again, which does no harm.
            if key == "producers":
                right = {producer: row for producer, row in right.items() if producer in left}
            differences(when, left, right, f"{path}, {key}")
            continue
        assert left == right, f"{when}, {path}, {key}: it was\n{left}\nand is\n{right}"

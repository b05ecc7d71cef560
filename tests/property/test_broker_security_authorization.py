"""A client without rights changes nothing and learns nothing. It sends requests of every API and
version to a broker, whose state is compared before and after.
"""

from __future__ import annotations

import logging
import struct
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from fuzz.making import Maker
from fuzz.storm import Storm, content, state_of
from helpers.admin_host import HOST, PORT, creatable
from helpers.api_rows import RULES
from helpers.our_messages import request_frame

from barnabas.broker.audit import AuditRecord
from barnabas.broker.security.authorizer import Authorizer
from barnabas.broker.security.stored import Acl, ScramCredential
from barnabas.protocol.api import Api
from barnabas.protocol.api_table import APIS
from barnabas.protocol.messages.create_topics import CreateTopicsRequest

SETTINGS = {
    "authorizer.class.name": "StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "auto.create.topics.enable": "true",
}
NOBODY, READER = "User:nobody", "User:reader"
READERS_ACL = uuid.UUID(int=8)
REQUESTS_OF_EACH_VERSION = 6
STEPS = 400  # the number of requests that build the broker's state


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Disable logging, since thousands of requests are refused."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


class Past:
    """A used broker with users and ACLs. It also has the names that no response may contain."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.storm = Storm(directory / "data", seed, **SETTINGS)
        self.storm.run(STEPS)
        self.storm.calm()
        assert self.storm.findings == {}
        broker = self.storm.broker
        self.broker = broker
        broker.metadata.set_scram_credentials(
            {("secret-user", 1): ScramCredential(b"salt", b"stored", b"server", 4096)}
        )
        assert broker.routes.parts.access.authorizer is not None
        broker.routes.parts.access.authorizer.add(
            {uuid.UUID(int=7): Acl(2, "secret-topic", 3, "User:secret-user", "*", 3, 3)}
        )
        self.audited: list[AuditRecord] = []
        self.storm.parts.access.authorizer = Authorizer(broker.metadata, audit=self.audited.append)
        names = {*broker.metadata.topics, *broker.transactions.snapshot()}
        names |= set(self.storm.knowledge.members)
        names |= {member for rows in self.storm.knowledge.members.values() for member, _ in rows}
        self.secrets = {name.encode() for name in names if len(name) > 3}
        self.secrets |= {b"secret-user", b"secret-topic"}
        self.secrets |= {topic.topic_id.bytes for topic in broker.metadata.topics.values()}
        assert len(self.secrets) > 15, "the broker has names that a response must not contain"

    def answer(self, frame: bytes, principal: str = NOBODY) -> bytes:
        """Send a request as the principal and return the response, which is empty if there is none
        or the connection is closed.
        """
        broker, outbox = self.broker, self.broker.outbox
        connection = self.storm._next_connection
        self.storm._next_connection += 1
        broker.on_connected(connection, "192.0.2.9", HOST, PORT)
        broker.connections[connection].principal = principal
        broker.on_frame(connection, memoryview(bytearray(frame)), self.storm.now_ms)
        for work in outbox.work:
            broker.on_worked(work, work.run(), None, self.storm.now_ms)
        outbox.work.clear()
        broker.on_sent(self.storm.now_ms)
        while connection in broker.connections and broker.wide.queue and not outbox.sends:
            broker.on_tick(self.storm.now_ms)  # the parts of a wide request
        answer = b"".join(content(piece) for _, pieces in outbox.sends for piece in pieces)
        is_done = bool(outbox.sends or outbox.closes)
        outbox.sends.clear()
        outbox.closes.clear()
        broker.on_closed(connection)
        assert is_done or principal != NOBODY, "it waits for something"
        return answer


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Past:
    return Past(tmp_path_factory.mktemp("past"), seed=11)


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_a_client_without_rights_changes_nothing_and_learns_nothing(past: Past, api: Api) -> None:
    past.audited.clear()
    before = state_of(past.broker), dict(past.broker.metadata.acls)
    credentials = dict(past.broker.metadata.scram_credentials)
    maker: Maker = past.storm.maker
    answered = 0
    for version in range(api.min_version, api.max_version + 1):
        for number in range(REQUESTS_OF_EACH_VERSION):
            wild = 0.0 if number < REQUESTS_OF_EACH_VERSION - 1 else 0.1
            frame = maker.request(api, version, 77, wild=wild)
            answer = past.answer(frame)
            if not answer:
                continue
            answered += 1
            assert struct.unpack_from(">i", answer, 4) == (77,)
            leaked = {secret for secret in past.secrets if secret in answer and secret not in frame}
            assert not leaked, f"{api.name} {version} shows {leaked}"
    assert answered, "no request was answered"
    assert (state_of(past.broker), dict(past.broker.metadata.acls)) == before
    assert dict(past.broker.metadata.scram_credentials) == credentials
    check_asked(past, api)


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_a_client_that_may_read_one_topic_changes_nothing_and_learns_nothing_else(
    past: Past, api: Api
) -> None:
    """A request may give the topic by name or by id. Half of the requests give the topic that may
    be read.
    """
    maker, metadata = past.storm.maker, past.broker.metadata
    name = max(metadata.topics, key=lambda name: len(past.broker.topics.partitions_of(name)))
    past.storm.parts.access.authorizer = Authorizer(metadata)
    past.storm.parts.access.authorizer.add({READERS_ACL: Acl(2, name, 3, READER, "*", 3, 3)})
    its_own = name.encode(), metadata.topics[name].topic_id.bytes
    before = state_of(past.broker), dict(metadata.acls), dict(metadata.scram_credentials)
    answered = 0
    for version in range(api.min_version, api.max_version + 1):
        for number in range(REQUESTS_OF_EACH_VERSION * 3):
            frame = maker.request(api, version, 77, wild=0.1 if number % 6 == 5 else 0.0)
            answer = past.answer(frame, READER)
            answered += bool(answer)
            audited = {
                secret
                for secret in past.secrets
                if secret in answer and secret not in frame and secret not in its_own
            }
            assert not audited, f"{api.name} {version} shows {audited}"
    assert answered, "not all of it was refused for other reasons"
    after = state_of(past.broker), dict(metadata.acls), dict(metadata.scram_credentials)
    past.storm.parts.access.authorizer.remove([READERS_ACL])
    past.storm.parts.access.authorizer = Authorizer(metadata, audit=past.audited.append)
    assert after == before


def check_asked(past: Past, api: Api) -> None:
    """Check that every right that the request asked for was denied, and is in the table."""
    rule = RULES[api.name]
    table = {(ask.operation.name, ask.resource_type.name) for ask in rule.asks}
    asked = {(record.operation, record.resource_type) for record in past.audited}
    assert asked <= table, "the table has less than is asked"
    assert not any(record.is_allowed for record in past.audited)
    assert asked or not rule.asks or _only_leaves_out(api), "nothing is asked"


def _only_leaves_out(api: Api) -> bool:
    """Whether the API never refuses a request, but leaves out what the client may not see."""
    return api.name in ("ListGroups", "ListTransactions", "DescribeCluster")


def test_the_state_that_is_compared_can_change(past: Past) -> None:
    """A request of a super user changes the compared state, which shows that the tests above can
    fail.
    """
    before = state_of(past.broker)
    frame = request_frame(CreateTopicsRequest([creatable("made")]), 7, 77)
    past.answer(frame)
    assert state_of(past.broker) == before
    past.storm.parts.access.authorizer = Authorizer(past.broker.metadata, [NOBODY])
    past.answer(frame)
    assert state_of(past.broker) != before

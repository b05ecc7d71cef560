"""Whatever bytes a client sends before it has authenticated, it is never admitted, and the broker
raises nothing unexpected.
"""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.core_host import CoreHost
from helpers.our_messages import request_frame
from helpers.sasl import PASSWORD, USER, plain_token, sasl_host
from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol.api_table import APIS
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeRequest

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI")
ALMOST = (
    plain_token(USER, PASSWORD[:-1]),
    plain_token(USER, PASSWORD + "\0"),
    plain_token(USER, ""),
    f"{USER}\0bob\0{PASSWORD}".encode(),
    f"n,,n={USER},r=nonce".encode(),
    b"c=biws,r=nonce,p=AAAA",
)

handshakes = st.builds(
    lambda mechanism, version: request_frame(SaslHandshakeRequest(mechanism), version, 1),
    st.sampled_from(MECHANISMS),
    st.integers(0, 1),
)
tokens = st.builds(
    lambda token, version: request_frame(SaslAuthenticateRequest(token), version, 2),
    st.one_of(st.binary(max_size=60), st.sampled_from(ALMOST)),
    st.integers(0, 2),
)
others = st.builds(
    lambda api, version, body: struct.pack(">hhih", api.key, version, 3, -1) + body,
    st.sampled_from(APIS),
    st.integers(0, 20),
    st.binary(max_size=30),
)
greetings = st.builds(
    lambda name: request_frame(
        ApiVersionsRequest(client_software_name=name, client_software_version="1"), 3, 4
    ),
    st.sampled_from(["tests", "with a blank", ""]),
)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A typical frame, truncated or with one byte changed."""
    frame = bytearray(draw(st.one_of(handshakes, tokens, greetings)))
    at = draw(st.integers(0, len(frame) - 1))
    if draw(st.booleans()):
        return bytes(frame[: at + 1])
    frame[at] = draw(st.integers(0, 255))
    return bytes(frame)


frames = st.one_of(
    handshakes, handshakes, tokens, tokens, greetings, others, damaged(), st.binary(min_size=1)
)


@pytest.fixture(scope="module")
def host() -> Iterator[CoreHost]:
    """A broker that requires a login."""
    with tempfile.TemporaryDirectory() as directory:
        host = sasl_host(Path(directory))
        yield host
        host.close()


@given(sent=st.lists(frames, max_size=6))
def test_no_client_is_admitted_without_the_password(host: CoreHost, sent: list[bytes]) -> None:
    broker, outbox = host.broker, host.broker.outbox
    topics = set(broker.metadata.topics)
    broker.on_connected(1, "192.0.2.9", "127.0.0.1", 9092)
    sent.append(request_frame(MetadataRequest(topics=None), 1, 5))
    for frame in sent:
        broker.on_frame(1, memoryview(bytearray(frame)), host.event_ms())
        host.now_ms += 100
        broker.on_tick(host.event_ms())
        assert len(outbox.sends) <= 1
        outbox.sends.clear()
        if outbox.closes:
            outbox.closes.clear()
            break
    else:
        raise AssertionError("a client without a login is served")
    broker.on_closed(1)
    assert outbox.admitted == []
    assert (outbox.work, outbox.flushes, set(broker.metadata.topics)) == ([], [], topics)
    assert broker.sasl is not None
    assert broker.sasl.next_deadline_ms() is None

"""Frames of a connection, without a socket: versions, the order of responses, and other peers."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.client.errors import RefusedError, UnsupportedRequestError, WrongPeerError
from barnabas.client.frames import API_VERSIONS, Frames, run
from barnabas.client.request_kind import RequestKind
from barnabas.client.sasl import HANDSHAKE, NoLoginError, PlainExchange, log_in
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
)
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.messages.message import Message
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeResponse

HEARTBEAT = RequestKind(HeartbeatRequest, HeartbeatResponse, 0, 3)


def frame_of(sent: bytes, response: Message, version: int) -> bytes:
    """The response to a request, as a broker sends it after its size."""
    return sent[8:12] + response.encode(version)


def opened(frames: Frames, *answers: tuple[ApiVersionsResponse, int]) -> list[int]:
    """Open a connection with these responses, each encoded in a version. Gives: the versions of
    the requests.
    """
    coming: Iterator[tuple[ApiVersionsResponse, int]] = iter(answers)
    versions = []

    def request(kind: RequestKind[Any, Any], message: Any) -> Any:
        sent = bytes(frames.encode(kind, message))
        versions.append(struct.unpack_from(">h", sent, 6)[0])
        return frames.decode(kind, frame_of(sent, *next(coming)))

    run(frames.open("a-test"), request)
    return versions


def spoken(*versions: tuple[int, int, int], **others: Any) -> ApiVersionsResponse:
    return ApiVersionsResponse(api_keys=[ApiVersion(*each) for each in versions], **others)


def test_a_broker_that_knows_the_newer_request_answers_with_its_features() -> None:
    frames = Frames("a:1", "me")
    features = [FinalizedFeatureKey("transaction.version", 2, 2)]
    answer = spoken((12, 0, 4), finalized_features_epoch=7, finalized_features=features)
    assert opened(frames, (answer, 3)) == [3]
    assert frames.versions == {12: (0, 4)}
    assert (frames.level_of("transaction.version"), frames.level_of("share.version")) == (2, 0)
    assert frames.version_of(HEARTBEAT) == 3


def test_a_broker_before_2_4_is_asked_again_in_version_0() -> None:
    """It answers a version that it does not know in version 0 (KIP-511)."""
    frames = Frames("a:1", "me")
    refusal = spoken((18, 0, 2), error_code=Code.UNSUPPORTED_VERSION)
    assert opened(frames, (refusal, 0), (spoken((12, 0, 2)), 0)) == [3, 0]
    assert frames.version_of(HEARTBEAT) == 2 and frames.level_of("transaction.version") == 0


def test_a_broker_that_refuses_every_version_is_an_error() -> None:
    refusal = spoken(error_code=Code.UNSUPPORTED_VERSION)
    with pytest.raises(RefusedError, match="refuses ApiVersions with UNSUPPORTED_VERSION"):
        opened(Frames("a:1", "me"), (refusal, 0), (refusal, 0))


def test_responses_are_read_in_the_order_of_the_requests() -> None:
    frames = Frames("a:1", "me")
    opened(frames, (spoken((12, 0, 1)), 3))
    sent = [bytes(frames.encode(HEARTBEAT, HeartbeatRequest(group_id="g"))) for _ in range(2)]
    assert len(frames.unanswered) == 2
    with pytest.raises(WrongPeerError, match="answers request 3 instead of 2"):
        frames.decode(HEARTBEAT, frame_of(sent[1], HeartbeatResponse(), 1))
    last = frames.decode(HEARTBEAT, frame_of(sent[1], HeartbeatResponse(error_code=27), 1))
    assert last.error_code == 27 and not frames.unanswered


def test_a_request_that_the_broker_lacks_is_not_sent() -> None:
    frames = Frames("a:1", "me")
    opened(frames, (spoken((12, 4, 4)), 3))
    says = "has HeartbeatRequest in versions 4 to 4; versions 0 to 3 are supported"
    with pytest.raises(UnsupportedRequestError, match=says) as refused:
        frames.encode(HEARTBEAT, HeartbeatRequest())
    assert refused.value.request == "Heartbeat" and not frames.unanswered


def test_a_field_that_the_broker_s_version_lacks_is_not_sent() -> None:
    frames = Frames("a:1", "me")
    opened(frames, (spoken((12, 0, 2)), 3))
    with pytest.raises(UnsupportedRequestError, match="does not support Heartbeat: "):
        frames.encode(HEARTBEAT, HeartbeatRequest(group_instance_id="one"))
    assert not frames.unanswered


@pytest.mark.parametrize(
    ("head", "reason"),
    [(b"HTTP", "HTTP"), (b"\x15\x03\x01\x00", "352,518,400"), (b"\0\0\0\3", "of 3 bytes")],
)
def test_what_is_no_broker_is_told_by_its_first_bytes(head: bytes, reason: str) -> None:
    frames = Frames("a:1", "me")
    frames.encode(API_VERSIONS, ApiVersionsRequest("a-test", "1"))
    with pytest.raises(WrongPeerError) as found:
        frames.size_of(head)
    assert reason in found.value.reason


def test_a_response_after_the_first_may_be_large() -> None:
    frames = Frames("a:1", "me", most_bytes=1 << 22)
    with pytest.raises(WrongPeerError):
        frames.size_of(struct.pack(">i", 1 << 21))
    opened(frames, (spoken((12, 0, 2)), 3))
    assert frames.size_of(struct.pack(">i", 1 << 21)) == 1 << 21
    with pytest.raises(WrongPeerError):
        frames.size_of(struct.pack(">i", (1 << 22) + 1))


def test_a_login_is_a_series_of_steps_without_a_connection() -> None:
    """Whoever has the socket, and however it waits, makes them."""
    steps = log_in("PLAIN", PlainExchange("alice", "secret"))
    kind, handshake = next(steps)
    assert kind is HANDSHAKE and handshake.mechanism == "PLAIN"
    _, authenticate = steps.send(SaslHandshakeResponse(0, ["PLAIN"]))
    assert authenticate.auth_bytes == b"\0alice\0secret"
    with pytest.raises(StopIteration) as end:
        steps.send(SaslAuthenticateResponse(session_lifetime_ms=500))
    assert end.value.value == 500


def test_a_broker_without_the_handshake_takes_no_login() -> None:
    with pytest.raises(NoLoginError):
        next(log_in("PLAIN", PlainExchange("alice", "secret"), has_handshake=False))

"""The intruder: clients without a password or token that try every message before authentication.

They send ApiVersions, handshakes, well-formed tokens and replayed tokens, all of them also mutated,
in any order.

After each frame these must hold: `Broker.on_frame` raises nothing but ProtocolViolation; no
connection has a principal or is admitted; only ApiVersions and authentication requests are served;
no request is parked or queued for the worker; nothing is flushed or changed. At the end, the broker
keeps nothing in memory for these clients.
"""

from __future__ import annotations

import gc
import sys
import time
import traceback
from pathlib import Path
from random import Random
from typing import Any

from helpers.core_host import CoreHost
from helpers.hard_state import hard_state
from helpers.our_messages import request_frame
from helpers.sasl import JAAS, PASSWORD, USER, final_message, plain_token, scram_log_in
from helpers.tokens import AUDIENCE, ISSUER, Issuer, bearer_message

from barnabas.broker.audit import ANONYMOUS
from barnabas.broker.security.authentication import Stage
from barnabas.broker.security.oauth import parse_keys
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeRequest
from fuzz.making import Knowledge, Maker
from fuzz.storm import APIS

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
MOST_FRAMES = 6
DELAY_MS = 100


class Intruder:
    """Sends the frames and checks the broker. `findings` has the failures, by the last line of the
    error. `served` counts the frames that got a response.
    """

    def __init__(self, directory: Path, seed: int) -> None:
        self.random, self.issuer = Random(seed), Issuer()
        self.host = CoreHost(
            directory,
            users={USER: PASSWORD},
            listeners="SASL://127.0.0.1:9092",
            listener_security_protocol_map="SASL:SASL_PLAINTEXT",
            sasl_enabled_mechanisms=",".join(MECHANISMS),
            sasl_oauthbearer_jwks_endpoint_url="file:///none",
            sasl_oauthbearer_expected_audience=AUDIENCE,
            sasl_oauthbearer_expected_issuer=ISSUER,
            **{"listener.name.sasl.plain.sasl.jaas.config": JAAS},
        )
        (listener,) = self.host.broker.config.listeners
        assert listener.oauth_keys is not None
        listener.oauth_keys.keys = parse_keys(self.issuer.jwks())
        self.host.wall_ahead_ms = int(time.time() * 1000) - self.host.now_ms
        self.findings: dict[str, str] = {}
        self.frames = self.served = self.hung_up = 0
        self._maker = Maker(Random(seed), Knowledge(), self.host.now_ms)
        self._tokens = self._near_misses()
        self._before = self._changeable()

    def _near_misses(self) -> dict[str, list[bytes]]:
        """For each mechanism, login messages with exactly one mistake each."""
        header, claims, signature = self.issuer.token().split(".")
        _, other_claims, _ = self.issuer.token("admin").split(".")
        tokens = [
            self.issuer.token(exp=1),
            self.issuer.token(aud="somebody"),
            Issuer().token(),
            f"{header}.{other_claims}.{signature}",
            f"{header}.{claims}.",
        ]
        bare = f"n={USER},r=nonce"
        first = f"n,,{bare}".encode()
        recorded = final_message(bare, "r=noncex,s=AAAA,i=4096").decode()
        return {
            "PLAIN": [
                plain_token(USER, PASSWORD[:-1]),
                plain_token(USER, ""),
                # alice tries to act for bob, which is not allowed
                f"{USER}\0bob\0{PASSWORD}".encode(),
            ],
            "SCRAM-SHA-256": [first, recorded.encode(), b"n,a=bob,n=alice,r=x"],
            "SCRAM-SHA-512": [first, recorded.encode(), b"n,,n=nobody,r=x"],
            "OAUTHBEARER": [*(bearer_message(token) for token in tokens), b"\x01"],
        }

    def _changeable(self) -> tuple[Any, ...]:
        """The state that an unauthenticated client must not change."""
        broker = self.host.broker
        return (
            sorted(broker.metadata.topics),
            dict(broker.metadata.scram_credentials),
            dict(broker.metadata.broker_configs),
            hard_state(broker.groups),
        )

    # --- inputs ----------------------------------------------------------------------------------

    def run(self, frames: int) -> None:
        """Send this many frames, on as many connections as needed."""
        until = self.frames + frames
        while self.frames < until:
            self._connection()

    def _connection(self) -> None:
        """Send a few frames over one connection, until the broker closes it."""
        host, random = self.host, self.random
        host.broker.on_connected(1, "192.0.2.9", "127.0.0.1", 9092)
        mechanism, answer = random.choice(MECHANISMS), b""
        for step in range(random.randint(1, MOST_FRAMES)):
            frame = self._frame(step, mechanism, answer)
            if not frame:
                continue
            self.frames += 1
            is_open, answer = self._offer(frame)
            if not is_open:
                return
        host.broker.on_closed(1)

    def _frame(self, step: int, mechanism: str, answer: bytes) -> bytes:
        """The next frame. It is usually plausible, and sometimes random or mutated."""
        random, kind = self.random, self.random.random()
        if kind < 0.1:
            return random.randbytes(random.randrange(1, 80))
        if kind < 0.2:
            api = random.choice(APIS)
            version = random.randint(api.min_version, api.max_version)
            frame = self._maker.request(api, version, 1)
        elif step == 0 or kind < 0.25:
            frame = request_frame(SaslHandshakeRequest(mechanism), random.randint(0, 1), 1)
        elif kind < 0.3:
            frame = request_frame(ApiVersionsRequest(), 3, 1)
        else:
            token = self._token(mechanism, answer)
            frame = request_frame(SaslAuthenticateRequest(token), random.randint(0, 2), 1)
            frame = token if random.random() < 0.2 else frame
        return self._mutated(frame) if random.random() < 0.4 else frame

    def _token(self, mechanism: str, answer: bytes) -> bytes:
        """Return a login message: either one that is almost right, or a reply to the server's SCRAM
        message that was computed from a wrong password.
        """
        near = self._tokens[mechanism if self.random.random() < 0.9 else self._any_mechanism()]
        start = answer.find(b"r=nonce")
        # continue the exchange with the server's first message
        if start >= 0 and self.random.random() < 0.7:
            text = answer[start:].split(b"\0", 1)[0].decode("latin-1")
            try:
                return final_message(f"n={USER},r=nonce", text, "no-secret")
            except (KeyError, ValueError):
                return b""
        token = self.random.choice(near)
        return self._mutated(token) if self.random.random() < 0.5 else token

    def _any_mechanism(self) -> str:
        return self.random.choice(MECHANISMS)

    def _mutated(self, data: bytes) -> bytes:
        """Return the bytes after up to three random changes, insertions or deletions."""
        random, out = self.random, bytearray(data)
        for _ in range(random.randint(1, 3)):
            at = random.randrange(len(out)) if out else 0
            way = random.randrange(4)
            if way == 0 and out:
                out[at] = random.randrange(256)
            elif way == 1:
                del out[at : at + random.randint(1, 8)]
            elif way == 2:
                out[at:at] = random.randbytes(random.randint(1, 8))
            else:
                del out[at:]
        return bytes(out)

    # --- what comes of it ------------------------------------------------------------------------

    def _offer(self, frame: bytes) -> tuple[bool, bytes]:
        """Send the frame. Return whether the connection is still open, and the response."""
        host = self.host
        broker, outbox = host.broker, host.broker.outbox
        state = broker.connections[1].authentication
        assert state is not None
        before = state.stage
        try:
            broker.on_frame(1, memoryview(bytearray(frame)), host.event_ms())
            host.now_ms += DELAY_MS
            broker.on_tick(host.event_ms())
            answer = b"".join(bytes(piece) for _, pieces in outbox.sends for piece in pieces)
            assert len(outbox.sends) <= 1, "two answers"
            assert state.stage is not Stage.AUTHENTICATED, (
                "a client without the password is authenticated"
            )
            assert broker.connections[1].principal == ANONYMOUS
            assert outbox.admitted == []
            assert outbox.work == outbox.flushes == outbox.deferred == []
            if before is Stage.GREETING and not outbox.closes:
                assert frame[:2] in (b"\0\x11", b"\0\x12"), "a request was served"
        except Exception:
            lines = traceback.format_exc()
            self.findings.setdefault(lines.splitlines()[-1], f"{frame.hex()}\n{lines}")
            answer = b""
            outbox.closes.append((1, "a finding"))
        self.served += bool(outbox.sends)
        is_open = not outbox.closes
        for part in (outbox.sends, outbox.closes, outbox.admitted):
            part.clear()
        if not is_open:
            self.hung_up += 1
            broker.on_closed(1)
        return is_open, answer

    def check_state(self) -> None:
        """Check that nothing has changed, and that a client with the password can still log in."""
        host = self.host
        assert self._changeable() == self._before
        assert host.broker.connections == {}
        assert host.broker.sasl is not None
        assert host.broker.sasl.next_deadline_ms() is None
        host.connect(2)
        assert scram_log_in(host, 2).error_code == 0
        host.call(2, MetadataRequest(topics=None), 1)
        host.broker.outbox.admitted.clear()
        host.broker.on_closed(2)

    def close(self) -> None:
        self.host.close()


def blocks() -> int:
    """The number of allocated memory blocks, after a garbage collection."""
    gc.collect()
    return sys.getallocatedblocks()

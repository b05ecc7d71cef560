"""The process that decodes keys and values for the console. Its standard input is a socket to the
console.

The decoding libraries have no bounds on time and memory, and a fault in them could end their
process. So a separate process runs them: it has a memory limit (LIMIT_BYTES) and a low priority, a
decoding takes at most PART_S, and the process ends with its input. It connects only to the
configured registry. After a failed connection, or for a missing schema, the next request is sent
after AGAIN_S.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from typing import Any

from barnabas.schemas import wire_format
from barnabas.schemas.errors import SchemaError, SerdeError
from barnabas.schemas.exchange import (
    BEGUN,
    MOST_TEXT_BYTES,
    NO_TIME,
    PART_S,
    REGISTRY_TIMEOUT_S,
    REQUEST_S,
    SCHEMA_S,
    pack_answer,
    read_request,
    read_sized,
    receiver,
)
from barnabas.schemas.registry import (
    RegistrySettings,
    SchemaRegistry,
    UnreachableError,
    Wording,
)
from barnabas.schemas.serdes import RegisteredSerdes

LIMIT_BYTES = 1 << 30
NICENESS = 10
AGAIN_S = 10.0
MOST_FAILED = 10_000
WORDING = Wording(
    "--console-registry",
    "barnabas.console.registry.ca.file",
    "barnabas.console.registry.user and barnabas.console.registry.password, or "
    "barnabas.console.registry.token",
    "barnabas.console.registry.certificate.file",
)


class _TooLong(BaseException):
    """The time limit of a step has passed. It is not an Exception, so that no library catches
    it.
    """


class Decoding:
    """Decodes keys and values, each in a bounded time."""

    def __init__(self, registry: SchemaRegistry) -> None:
        self._serdes = RegisteredSerdes(registry)
        self._failed: dict[int, tuple[float, str]] = {}
        self._unreachable: tuple[float, str] = (0.0, "")

    def answers(self, data: bytes) -> Iterator[bytes]:
        """The messages about one key or value: the decoding begins, and the answer."""
        refusal = self._prepared(data)
        yield BEGUN
        yield refusal or self._decoded(data)

    def _prepared(self, data: bytes) -> bytes:
        """The answer, if the schema of a key or value cannot be had."""
        try:
            schema_id, _ = wire_format.split(data)
        except SerdeError as error:
            return pack_answer(False, 0, "", str(error))
        if text := self._failure(schema_id):
            return pack_answer(False, schema_id, "", text)
        try:
            with _at_most(SCHEMA_S):
                self._serdes.prepare(data)
        except UnreachableError as error:
            self._unreachable = (time.monotonic() + AGAIN_S, str(error))
            return pack_answer(False, schema_id, "", str(error))
        except (_TooLong, Exception) as error:
            return pack_answer(False, schema_id, "", self._fail(schema_id, error))
        return b""

    def _decoded(self, data: bytes) -> bytes:
        """The answer about a key or value whose schema is there."""
        schema_id, _ = wire_format.split(data)
        kind = self._serdes.kind(schema_id)
        try:
            with _at_most(PART_S):
                text = self._serdes.decode_text(data)
        except _TooLong:
            return pack_answer(False, schema_id, kind, f"decoding took more than {PART_S:g} s")
        except (SerdeError, SchemaError) as error:
            return pack_answer(False, schema_id, kind, str(error))
        except MemoryError:
            return pack_answer(False, schema_id, kind, "its decoded value takes too much memory")
        except Exception as error:
            return pack_answer(False, schema_id, kind, f"it cannot be decoded: {error!r}")
        if len(text) > MOST_TEXT_BYTES or len(text.encode("utf-8", "replace")) > MOST_TEXT_BYTES:
            words = f"its decoded value has {len(text):,} characters: more than are shown here"
            return pack_answer(False, schema_id, kind, words)
        return pack_answer(True, schema_id, kind, text)

    def _failure(self, schema_id: int) -> str:
        """Why a schema was unavailable a moment ago; empty if it may be requested again."""
        if self._serdes.kind(schema_id):
            return ""
        now_s = time.monotonic()
        for until_s, text in (self._unreachable, self._failed.get(schema_id, (0.0, ""))):
            if now_s < until_s:
                return text
        return ""

    def _fail(self, schema_id: int, error: BaseException) -> str:
        text = str(error) or repr(error)
        if isinstance(error, _TooLong):
            text = f"to get and compile schema {schema_id} took more than {SCHEMA_S:g} s"
        if len(self._failed) >= MOST_FAILED:
            self._failed.clear()
        self._failed[schema_id] = (time.monotonic() + AGAIN_S, text)
        return text


@contextlib.contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """End the block at a time limit. Raises: _TooLong."""
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _over(number: int, frame: Any) -> None:
    raise _TooLong


def main() -> None:
    """Answer requests until the input ends."""
    for number in (signal.SIGINT, signal.SIGHUP):  # a terminal sends them to both processes
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, _over)
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
    _limit_memory()
    with socket.socket(fileno=0) as sock, contextlib.suppress(EOFError, OSError):
        receive = receiver(sock)
        settings = RegistrySettings(**json.loads(read_sized(receive)))
        decoding = Decoding(SchemaRegistry(settings, REGISTRY_TIMEOUT_S, WORDING))
        while True:
            parts = read_request(receive)
            end_s = time.monotonic() + REQUEST_S
            for part in parts:
                if time.monotonic() < end_s:
                    for message in decoding.answers(part):
                        sock.sendall(message)
                else:
                    sock.sendall(BEGUN + pack_answer(False, 0, "", NO_TIME))


def _limit_memory() -> None:
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (LIMIT_BYTES, LIMIT_BYTES))
    except (ImportError, OSError, ValueError):  # elsewhere than on Linux
        pass

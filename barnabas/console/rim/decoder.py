"""The console's side of the process that decodes keys and values (`barnabas.schemas`).

The process starts with the first key or value in the wire format, and ends after IDLE_S without
one. Each request to it has a limited number of keys and values, and a limited size. If it does not
decode a key or value in DECODING_S, or dies while doing so, it is ended, that key or value gets an
error, and is not sent again. The remaining ones are sent to a new process if the time of the page's
request allows it (`RequestDecoding`). So records delay a search by a few seconds at most, whatever
their content, and other requests of the page only if they decode, too.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence

from barnabas.console.decoding import (
    NOT_DECODED,
    Decoded,
    Values,
    first_part,
    has_schema_id,
    schema_id_of,
)
from barnabas.protocol.records import Record
from barnabas.schemas.exchange import (
    BEGUN,
    DECODING_S,
    MOST_PART_BYTES,
    NO_TIME,
    SCHEMA_S,
    pack,
    pack_request,
    read_answer,
    receiver,
)

logger = logging.getLogger("barnabas.console")

SCHEMA_WAIT_S = SCHEMA_S + 1
"""How long a schema is waited for; the start of the process is included."""
BUSY_S = 3.0
"""How long a request waits while the process decodes for others."""
MOST_RESTARTS = 2
MOST_REFUSED = 1000
"""How many keys and values that ended the process are remembered."""
IDLE_S = 60.0
_BOOTSTRAP = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from barnabas.schemas.decoding_process import main; main()"
)


class Decoder:
    """Decodes the keys and values of records. Any thread may call its methods.

    Takes: settings, the fields of `RegistrySettings`.
    """

    def __init__(self, settings: Mapping[str, str], *, idle_s: float = IDLE_S) -> None:
        self._settings, self._idle_s = dict(settings), idle_s
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._sock: socket.socket | None = None
        self._used_s = 0.0
        self._is_closed = False
        # the errors of keys and values that ended the process, by a digest; the oldest first
        self._refused: dict[bytes, str] = {}

    def of_request(self) -> RequestDecoding:
        """The decoding for one request of the page."""
        return RequestDecoding(self)

    def __call__(self, records: Sequence[Record]) -> list[Values]:
        """The decoded keys and values of records, in their order."""
        found: list[Values] = []
        while len(found) < len(records):
            part = first_part(records[len(found) :])
            data = [one for record in part for one in (record.key, record.value)]
            decoded = iter(self.decode([one for one in data if has_schema_id(one) and one]))
            pairs = [next(decoded) if has_schema_id(one) else None for one in data]
            found += [
                Values(key, value) if key or value else NOT_DECODED
                for key, value in zip(pairs[::2], pairs[1::2], strict=True)
            ]
        return found

    def decode(self, parts: Sequence[bytes]) -> list[Decoded]:
        """Decode keys and values in the wire format.

        Gives: the decoded form of each of them, or its error.
        """
        refusals = [self._refusal(one) for one in parts]
        sent = [one for one, words in zip(parts, refusals, strict=True) if not words]
        decoded = iter(self._decode(sent)) if sent else iter(())
        return [
            _error(one, words) if words else next(decoded)
            for one, words in zip(parts, refusals, strict=True)
        ]

    def _refusal(self, data: bytes) -> str:
        """Why a key or value is not sent to the process; empty if it is."""
        if len(data) > MOST_PART_BYTES:
            return f"it has {len(data):,} bytes: more than the console decodes"
        return self._refused.get(_digest(data), "") if self._refused else ""

    def close(self) -> None:
        """End the process, and do not start another one."""
        self._is_closed = True
        process = self._process
        if process is not None:
            process.kill()  # ends a wait for its response
        with self._lock:
            self._end()

    # --- the process -----------------------------------------------------------------------------

    def _decode(self, parts: Sequence[bytes]) -> list[Decoded]:
        """Decode keys and values in the other process. If one of them takes too long, the others
        get an error. If one ends the process, a new one decodes the rest, at most MOST_RESTARTS
        times.
        """
        done: list[Decoded] = []
        restarts = 0
        if not self._lock.acquire(timeout=BUSY_S):
            return [_error(one, NO_TIME) for one in parts]
        try:
            while len(done) < len(parts):
                rest = parts[len(done) :]
                if restarts > MOST_RESTARTS or self._is_closed:
                    words = "it was not decoded, since other records ended the decoding process"
                    done += [_error(one, words) for one in rest]
                    break
                try:
                    self._ask(rest, done)
                except _Slow as error:
                    self._refuse(parts[len(done)], str(error), done)
                    done += [_error(one, NO_TIME) for one in parts[len(done) :]]
                except (OSError, EOFError):
                    self._refuse(parts[len(done)], "it ended the decoding process", done)
                    restarts += 1
            self._used_s = time.monotonic()
        finally:
            self._lock.release()
        return done

    def _refuse(self, data: bytes, words: str, done: list[Decoded]) -> None:
        """End the process, and remember the key or value that it could not decode."""
        logger.warning("schema %d: %s", schema_id_of(data), words)
        done.append(_error(data, words))
        self._end()
        if self._is_closed:
            return  # `close` has ended the process
        if len(self._refused) >= MOST_REFUSED:
            self._refused.pop(next(iter(self._refused)), None)
        self._refused[_digest(data)] = words

    def _ask(self, parts: Sequence[bytes], done: list[Decoded]) -> None:
        """Send keys and values to the process, and append each response to `done` as it arrives.

        Raises: _Slow; OSError, EOFError.
        """
        sock = self._running()
        sock.settimeout(SCHEMA_WAIT_S)
        sock.sendall(pack_request(parts))

        receive = receiver(sock)
        for part in parts:
            sock.settimeout(SCHEMA_WAIT_S)
            try:
                receive(len(BEGUN))
            except TimeoutError as error:
                raise _Slow(f"its schema took more than {SCHEMA_WAIT_S:g} s") from error
            sock.settimeout(DECODING_S)
            try:
                is_decoded, _, kind, text = read_answer(receive)
            except TimeoutError as error:
                raise _Slow(f"decoding took more than {DECODING_S:g} s") from error
            schema_id = schema_id_of(part)
            done.append(
                Decoded(schema_id, kind, text)
                if is_decoded
                else Decoded(schema_id, kind, "", text or "it cannot be decoded")
            )

    def _running(self) -> socket.socket:
        """The socket to the process, which is started if it does not run. Raises: OSError."""
        if self._sock is not None and self._process is not None and self._process.poll() is None:
            return self._sock
        self._end()
        ours, its = socket.socketpair()
        with its:
            command = [sys.executable, "-P", "-c", _BOOTSTRAP, json.dumps(sys.path)]
            self._process = subprocess.Popen(
                command, stdin=its.fileno(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
        ours.settimeout(SCHEMA_WAIT_S)
        self._sock = ours
        ours.sendall(pack(json.dumps(self._settings).encode()))
        self._end_later()
        return ours

    def _end_later(self) -> None:
        """Check after the idle time whether the process can end."""
        timer = threading.Timer(self._idle_s, self._maybe_end)
        timer.daemon = True
        timer.start()

    def _maybe_end(self) -> None:
        """End the process if it was not used for the idle time; otherwise check again later."""
        with self._lock:
            if self._process is None:
                return
            if time.monotonic() < self._used_s + self._idle_s:
                self._end_later()
                return
            self._end()

    def _end(self) -> None:
        """Close the socket and kill the process, if there is one. Called under the lock."""
        process, self._process = self._process, None
        sock, self._sock = self._sock, None
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.close()
        if process is not None:
            process.kill()  # killed, since the process has no work that it must finish
            process.wait()


class RequestDecoding:
    """The decoding for one request of the page, which may decode many times: each batch of a search
    that compares fields is decoded when it is opened.
    """

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._left_s = DECODING_S

    @property
    def is_over(self) -> bool:
        """Whether the request's time for decoding is used up. A search stops there, and continues
        with its next request.
        """
        return self._left_s <= 0

    def __call__(self, records: Sequence[Record]) -> list[Values]:
        """The decoded keys and values of records, in their order."""
        found: list[Values] = []
        while len(found) < len(records) and not self.is_over:
            began_s = time.monotonic()
            found += self._decoder(first_part(records[len(found) :]))
            self._left_s -= time.monotonic() - began_s
        return found + [_not_decoded(record) for record in records[len(found) :]]


class _Slow(Exception):
    """The process does not answer in time. The text says what took the time."""


def _not_decoded(record: Record) -> Values:
    return Values(
        *(
            _error(data, NO_TIME) if has_schema_id(data) and data else None
            for data in (record.key, record.value)
        )
    )


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


def _error(data: bytes, words: str) -> Decoded:
    return Decoded(schema_id_of(data), "", "", words)

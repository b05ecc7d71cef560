"""The console's side of the process that decodes keys and values (`barnabas.schemas`).

The process starts with the first key or value in the wire format, and ends after IDLE_S without
one. Each request has a limited number of keys and values, and a limited size. A key or value gets
an error if its response takes longer than ANSWER_S, or if the process ends while decoding it. The
remaining ones are sent to a new process, at most MOST_RESTARTS times in a request. So records delay
a search by a few seconds at most, whatever their content.
"""

from __future__ import annotations

import contextlib
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
    MOST_PART_BYTES,
    PART_S,
    REQUEST_S,
    SCHEMA_S,
    pack,
    pack_request,
    read_answer,
    receiver,
)

logger = logging.getLogger("barnabas.console")

ANSWER_S = SCHEMA_S + PART_S + REQUEST_S
MOST_RESTARTS = 2
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
        short = [one for one in parts if len(one) <= MOST_PART_BYTES]
        decoded = iter(self._decode(short)) if short else iter(())
        return [
            next(decoded)
            if len(one) <= MOST_PART_BYTES
            else _error(one, f"it has {len(one):,} bytes: more than the console decodes")
            for one in parts
        ]

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
        """Decode keys and values in the other process. If one of them ends that process or takes
        too long, it gets an error, and a new process decodes the rest. After MOST_RESTARTS, all
        others get an error.
        """
        done: list[Decoded] = []
        restarts = 0
        with self._lock:
            while len(done) < len(parts):
                rest = parts[len(done) :]
                if restarts > MOST_RESTARTS or self._is_closed:
                    words = "it was not decoded, since other records ended the decoding process"
                    done += [_error(one, words) for one in rest]
                    break
                try:
                    self._ask(rest, done)
                except (OSError, EOFError) as error:
                    at = len(done)
                    words = (
                        f"decoding took more than {ANSWER_S:g} s"
                        if isinstance(error, TimeoutError)
                        else "it ended the decoding process"
                    )
                    logger.warning("schema %d: %s", schema_id_of(parts[at]), words)
                    done.append(_error(parts[at], words))
                    restarts += 1
                    self._end()
            self._used_s = time.monotonic()
        return done

    def _ask(self, parts: Sequence[bytes], done: list[Decoded]) -> None:
        """Send keys and values to the process, and append each response to `done` as it arrives.

        Raises: OSError, EOFError.
        """
        sock = self._running()
        sock.sendall(pack_request(parts))

        receive = receiver(sock)
        for part in parts:
            is_decoded, _, kind, text = read_answer(receive)
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
        ours.settimeout(ANSWER_S)
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


def _error(data: bytes, words: str) -> Decoded:
    return Decoded(schema_id_of(data), "", "", words)

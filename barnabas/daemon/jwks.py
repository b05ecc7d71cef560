"""A thread that reads the keys that verify tokens from a file or a URL, and refreshes them.

The keys are read at the start, and then every `sasl.oauthbearer.jwks.endpoint.refresh.ms`. They are
also read when a token's key is unknown and `UnknownKeys` allows a read, at most once in
`...retry.backoff.ms`. If the keys cannot be read, the earlier keys stay in use. The read is tried
again, each time after twice the delay, up to `...retry.backoff.max.ms`.

Source: KIP-768.
"""

from __future__ import annotations

import logging
import threading
from http.client import OK, HTTPException
from urllib.parse import unquote, urlsplit

from barnabas.broker.security.oauth import KeySet, KeySetError, parse_keys
from barnabas.broker.settings.exposure import is_local, without_password
from barnabas.broker.settings.listeners import ListenerConfig
from barnabas.http_client import HttpClient, bounded_json

logger = logging.getLogger("barnabas.security")

LONGEST_SET_BYTES = 1 << 20
TIMEOUT_S = 10.0


class JwksReader:
    """Reads the keys of one listener repeatedly. Raises: KeySetError for an unknown kind of URL.

    Takes: keys, the set whose keys are replaced.
    """

    def __init__(self, listener: ListenerConfig, keys: KeySet) -> None:
        """Takes: keys, which receives the keys that are read. Raises: KeySetError for a wrong
        URL.
        """
        prefix = "sasl.oauthbearer.jwks.endpoint."
        self._url: str = listener[f"{prefix}url"]
        self._shown_url = without_password(self._url)
        self._refresh_s = listener[f"{prefix}refresh.ms"] / 1000
        self._backoff_s = listener[f"{prefix}retry.backoff.ms"] / 1000
        self._longest_backoff_s = listener[f"{prefix}retry.backoff.max.ms"] / 1000
        self._keys = keys
        self._is_asked, self._is_closed = threading.Event(), threading.Event()
        parts = urlsplit(self._url)
        if parts.scheme not in ("file", "https", "http"):
            raise KeySetError("it must begin with https://, http:// or file:///")
        if parts.scheme == "http" and not is_local(parts.hostname or ""):
            logger.warning(
                "the keys of %s are read without TLS: an attacker in the network can replace "
                "them, and log in as any user", self._shown_url,
            )  # fmt: skip
        self._client = HttpClient(TIMEOUT_S, LONGEST_SET_BYTES, uses_proxy=True)
        self._thread = threading.Thread(target=self._run, name="jwks", daemon=True)

    def start(self) -> None:
        """Read the keys now, and start the thread."""
        self._keys.on_unknown_key = self._is_asked.set
        self._thread.start()

    def close(self) -> None:
        """End the thread. A running request fails."""
        self._is_closed.set()
        self._is_asked.set()
        self._client.close()
        self._thread.join(TIMEOUT_S)

    def read(self) -> bool:
        """Read the keys once, and log errors. Gives: whether the keys were read."""
        try:
            keys = parse_keys(bounded_json(self._content()))
        except (OSError, ValueError, HTTPException) as error:
            reason: object = error
            # the URL contains a password, which the error's text may repeat
            if self._shown_url != self._url:
                reason = f"{type(error).__name__}; a user and a password in an address are not sent"
            logger.error(
                "the keys of %s cannot be read, and the %d former ones stay in use: %s",
                self._shown_url, len(self._keys.keys), reason,
            )  # fmt: skip
            return False
        if keys.keys() != self._keys.keys.keys():
            logger.info("the keys of tokens are %s, read from %s", ", ".join(keys), self._shown_url)
        self._keys.keys = keys
        return True

    def _content(self) -> bytes:
        """The bytes of the key set. Raises: OSError, ValueError, HTTPException, KeySetError."""
        parts = urlsplit(self._url)
        if parts.scheme == "file":
            with open(unquote(parts.path), "rb") as file:
                data = file.read(LONGEST_SET_BYTES + 1)
            if len(data) > LONGEST_SET_BYTES:
                raise KeySetError(f"it has more than {LONGEST_SET_BYTES} bytes")
            return data
        if parts.username is not None:
            raise KeySetError("a user and a password in an address are not sent")
        answer = self._client.send("GET", self._url, follows=True)
        if answer.status != OK:
            raise KeySetError(f"HTTP {answer.status} {answer.reason}")
        return answer.body

    def _run(self) -> None:
        """Read the keys again and again: after the refresh interval, or sooner if a token has an
        unknown key; after an error with a growing delay.
        """
        backoff_s = self._backoff_s
        while not self._is_closed.is_set():
            if self.read():
                backoff_s = self._backoff_s
                # Bound the rate of reads, since any client can send tokens with unknown keys.
                self._is_closed.wait(self._backoff_s)
                self._is_asked.wait(self._refresh_s)
            else:
                self._is_closed.wait(backoff_s)
                backoff_s = min(backoff_s * 2, self._longest_backoff_s)
            self._is_asked.clear()

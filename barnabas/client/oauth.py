"""Tokens for SASL's OAUTHBEARER (RFC 7628): their sources, and the client's first message.

    kafka.sasl.oauthbearer.token.endpoint.url
        https://...         the client's credentials are sent to this address (RFC 6749, section
                            4.4), and the response contains a token
        file:///...         the file contains the token; it is read for each login
    oauthTokenProvider
        module:function     the function is called without arguments, and returns a token, or a
                            token and its end in seconds since 1970

The function is imported in each process that logs in: that of the driver and that of each task.
With a few lines of code around a cloud's library it can provide the tokens of that cloud, such as
AWS MSK's IAM or Entra ID.

A token is used again in its process until most of its lifetime is over. The lifetime comes from the
claims `iat` and `exp`, from `expires_in` in the endpoint's response, or from the function. If it is
unknown, a new token is requested at each login. No message and no repr contains a secret or a
token.
"""

from __future__ import annotations

import base64
import binascii
import importlib
import json
import time
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from barnabas.client.security_options import TokenSource

LIFETIME_USED = 0.8
SEPARATOR = "\x01"  # separates the fields in a client's message
LONGEST_ANSWER_BYTES = 1 << 20


class TokenError(Exception):
    """No token could be obtained.

    passes: whether the failure is transient, in which case the request is repeated.
    """

    def __init__(self, message: str, *, passes: bool = False) -> None:
        super().__init__(message)
        self.passes = passes


@dataclass(frozen=True)
class Token:
    """A token.

    good_until_s: the time at which the next token has to be requested, in seconds since 1970.
    """

    text: str = field(repr=False)
    good_until_s: float = 0.0


# the tokens of this process, which a forked process inherits
_tokens: dict[TokenSource, Token] = {}


def token_of(source: TokenSource, clock: Callable[[], float] = time.time) -> str:
    """Return a token that is valid now.

    Raises: TokenError.
    """
    token = _tokens.get(source)
    if token is None or clock() >= token.good_until_s:
        token = _new_token(source, clock)
        _tokens[source] = token
    return token.text


def forget(source: TokenSource) -> None:
    """Discard a token that the broker has rejected, after which the next login requests a new
    one.
    """
    _tokens.pop(source, None)


def _new_token(source: TokenSource, clock: Callable[[], float]) -> Token:
    """A new token from the source: a function, a file or an endpoint. Raises: TokenError."""
    if source.provider:
        return _checked(*_provided(source.provider), clock())
    url = urllib.parse.urlsplit(source.endpoint_url)
    if url.scheme == "file":
        path = urllib.parse.unquote(url.path)
        try:
            return Token(_checked(Path(path).read_text().strip(), None, clock()).text)
        except (OSError, UnicodeDecodeError) as error:
            raise TokenError(
                f"the token in {path} cannot be read: {error}; the file has to be on each machine "
                "that runs tasks",
                passes=isinstance(error, OSError),
            ) from None
    return _checked(*_requested(source, clock), clock())


def _checked(text: object, end_s: float | None, now_s: float) -> Token:
    """Make a token, after checking that it has only visible ASCII characters (RFC 6750)."""
    if not isinstance(text, str) or not text or not text.isascii() or any(c <= " " for c in text):
        raise TokenError("the result is not a token: a token is a text of visible ASCII characters")
    begin_s, claimed_s = _claimed_lifetime(text)
    end_s = claimed_s if end_s is None else end_s
    if end_s is None:
        return Token(text)
    begin_s = now_s if begin_s is None else min(begin_s, now_s)
    return Token(text, begin_s + LIFETIME_USED * (end_s - begin_s))


def _claimed_lifetime(text: str) -> tuple[float | None, float | None]:
    """Read the claims `iat` and `exp` of a JWT. The broker verifies them, so this function does
    not.
    """
    try:
        payload = text.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        begin, end = claims.get("iat"), claims.get("exp")
        return (
            None if begin is None else float(begin),
            None if end is None else float(end),
        )
    except (IndexError, ValueError, TypeError, AttributeError, binascii.Error):
        return None, None  # the token has another format


def _provided(name: str) -> tuple[object, float | None]:
    """The token that a function of the user returns, and its expiry time if the function gives one.
    Takes: name, as module:function. Raises: TokenError.
    """
    what = f"option oauthTokenProvider={name!r}"
    module, _, function = name.partition(":")
    try:
        provider = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise TokenError(
            f"{what} cannot be imported ({error}): give module:function, with the module on the "
            "driver and on each machine that runs tasks"
        ) from error
    try:
        made = provider()
    except Exception as error:
        raise TokenError(
            f"{what} raised {type(error).__name__}: {error}", passes=isinstance(error, OSError)
        ) from error
    if isinstance(made, tuple):
        if len(made) != 2 or not isinstance(made[1], int | float):
            raise TokenError(
                f"{what} has to return a token, or a token and its expiry time in seconds"
            )
        return made[0], float(made[1])
    return made, None


def _requested(source: TokenSource, clock: Callable[[], float]) -> tuple[object, float | None]:
    """Request a token from the endpoint. After transient failures, repeat the request until the
    time limit.
    """
    begin_s, backoff_s = time.monotonic(), source.retry_backoff_ms / 1000
    while True:
        try:
            answer = _post(source)
            break
        except TokenError as error:
            is_over = time.monotonic() - begin_s + backoff_s > source.retry_backoff_max_ms / 1000
            if not error.passes or is_over:
                raise
        time.sleep(backoff_s)
        backoff_s *= 2
    try:
        values = json.loads(answer)
        token, lifetime = values["access_token"], values.get("expires_in")
        return token, None if lifetime is None else clock() + float(lifetime)
    except (ValueError, TypeError, KeyError, AttributeError):
        raise TokenError(f"{source.endpoint_url} answered without an access_token") from None


def _post(source: TokenSource) -> bytes:
    """The endpoint's answer to one request with the client credentials. Raises: TokenError, whose
    `passes` says whether to try again.
    """
    from http.client import HTTPException

    from barnabas.http_client import HttpClient

    form = {"grant_type": "client_credentials"}
    if source.scope:
        form["scope"] = source.scope
    encode = urllib.parse.quote_plus if source.encodes_header else str
    credentials = f"{encode(source.client_id)}:{encode(source.client_secret)}"
    headers = {
        "Authorization": "Basic " + base64.b64encode(credentials.encode()).decode(),
        "Content-Type": "application/x-www-form-urlencoded",
        "Accept": "application/json",
    }
    client = HttpClient(source.timeout_ms / 1000, LONGEST_ANSWER_BYTES, uses_proxy=True)
    body = urllib.parse.urlencode(form).encode()
    try:
        # a redirect is not followed: its target would get the credentials, too
        answer = client.send("POST", source.endpoint_url, body, headers)
    except (OSError, HTTPException, ValueError) as error:
        raise TokenError(f"{source.endpoint_url} cannot be reached: {error}", passes=True) from None
    finally:
        client.close()
    if answer.status >= 300:
        raise TokenError(
            f"{source.endpoint_url} answers {answer.status} {answer.reason} to client id "
            f"{source.client_id!r}",
            passes=answer.status >= 500 or answer.status == 429,
        )
    return answer.body


def first_message(token: str, extensions: tuple[tuple[str, str], ...]) -> bytes:
    """Make a client's first message (RFC 7628, section 3.1) with the extensions of KIP-342."""
    fields = [f"auth=Bearer {token}", *(f"{name}={value}" for name, value in extensions)]
    return ("n,," + "".join(SEPARATOR + each for each in fields) + 2 * SEPARATOR).encode()

"""Tokens from a file, an endpoint and a function: how long each token is used, and the error if
there is no token. The endpoint is a real server.
"""

from __future__ import annotations

import base64
import json
import sys
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from barnabas.client.oauth import TokenError, first_message, forget, token_of
from barnabas.client.security_options import TokenSource

SECRET = "the secret/of+me"


def jwt(**claims: int) -> str:
    """An unsigned token with these claims."""

    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    return ".".join((part({"alg": "none"}), part(claims), "signature"))


def at(now_s: float) -> Callable[[], float]:
    return lambda: now_s


class Endpoint:
    """An authorization server with prepared responses, which records its requests."""

    def __init__(self) -> None:
        """A token endpoint that returns the responses that were set, one after the other. The last
        response is then repeated.
        """
        self.answers: list[tuple[int, bytes]] = []
        self.asked: list[tuple[str, dict[str, list[str]]]] = []
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                endpoint.asked.append((self.headers["Authorization"], urllib.parse.parse_qs(body)))
                many = len(endpoint.answers) > 1
                code, answer = endpoint.answers.pop(0) if many else endpoint.answers[0]
                self.send_response(code)
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.source = TokenSource(
            endpoint_url=f"http://127.0.0.1:{self.server.server_port}/token",
            client_id="me",
            client_secret=SECRET,
            scope="kafka",
            retry_backoff_ms=1,
        )


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    made = Endpoint()
    thread = threading.Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join()


def answer(**values: object) -> tuple[int, bytes]:
    return 200, json.dumps(values).encode()


def test_client_credentials_are_sent_and_a_token_is_used_for_80_percent_of_its_lifetime(
    endpoint: Endpoint,
) -> None:
    endpoint.answers = [answer(access_token="one", expires_in=100), answer(access_token="two")]
    assert [token_of(endpoint.source, at(now)) for now in (1000.0, 1079.0)] == ["one", "one"]
    assert token_of(endpoint.source, lambda: 1080.0) == "two"
    assert token_of(endpoint.source, lambda: 1080.0) == "two", "of which no end is known"
    assert len(endpoint.asked) == 3
    authorization, form = endpoint.asked[0]
    assert base64.b64decode(authorization.removeprefix("Basic ")).decode() == f"me:{SECRET}"
    assert form == {"grant_type": ["client_credentials"], "scope": ["kafka"]}


def test_client_credentials_are_url_encoded_if_the_setting_says_so(endpoint: Endpoint) -> None:
    source = TokenSource(
        endpoint_url=endpoint.source.endpoint_url,
        client_id="me",
        client_secret=SECRET,
        encodes_header=True,
    )
    endpoint.answers = [answer(access_token="one")]
    token_of(source)
    sent = base64.b64decode(endpoint.asked[0][0].removeprefix("Basic ")).decode()
    assert sent == "me:the+secret%2Fof%2Bme"


def test_a_failure_that_passes_is_tried_again(endpoint: Endpoint) -> None:
    endpoint.answers = [(503, b""), (429, b""), answer(access_token="one")]
    assert token_of(endpoint.source) == "one"


@pytest.mark.parametrize(
    ("code", "body", "says", "passes"),
    [
        (401, b"", r"/token answers 401 Unauthorized to client id 'me'", False),
        (500, b"", r"/token answers 500 Internal Server Error", True),
        (200, b"no JSON", "answered without an access_token", False),
        (200, b'["x"]', "answered without an access_token", False),
        (200, b'{"token": "x"}', "answered without an access_token", False),
        (200, b'{"access_token": "a b"}', "the result is not a token", False),
        (200, b'{"access_token": 7}', "the result is not a token", False),
    ],
)
def test_the_errors_for_an_endpoint_that_returns_no_token(
    endpoint: Endpoint, code: int, body: bytes, says: str, passes: bool
) -> None:
    endpoint.answers = [(code, body)]
    source = TokenSource(
        endpoint_url=endpoint.source.endpoint_url,
        client_id="me",
        client_secret=SECRET,
        retry_backoff_ms=1,
        retry_backoff_max_ms=3,
    )
    with pytest.raises(TokenError, match=says) as caught:
        token_of(source)
    assert caught.value.passes == passes
    assert SECRET not in str(caught.value)


def test_the_error_for_an_unreachable_endpoint() -> None:
    source = TokenSource(endpoint_url="http://127.0.0.1:1/t", retry_backoff_max_ms=1)
    with pytest.raises(TokenError, match=r"http://127.0.0.1:1/t cannot be reached: ") as caught:
        token_of(source)
    assert caught.value.passes


def test_a_file_is_read_for_each_login(tmp_path: Path) -> None:
    path = tmp_path / "a token"
    path.write_text(jwt(exp=4_000_000_000) + "\n")
    source = TokenSource(endpoint_url=path.as_uri())
    assert token_of(source) == jwt(exp=4_000_000_000)
    path.write_text("another")
    assert token_of(source) == "another"
    path.unlink()
    with pytest.raises(TokenError, match=r"a token cannot be read: .*on each machine"):
        token_of(source)


PROVIDER = """
calls = 0
def plain():
    global calls
    calls += 1
    return f"token-{calls}"
def lasting():
    return plain(), 2000
def claimed():
    return CLAIMED
def failing():
    raise ConnectionError("no way")
def wrong():
    return ("a", "b")
"""


@pytest.fixture
def provider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "my_tokens.py").write_text(PROVIDER + f"CLAIMED = {jwt(iat=1000, exp=1100)!r}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "my_tokens"
    sys.modules.pop("my_tokens", None)


def test_tokens_come_from_a_function(provider: str) -> None:
    """A token without a known expiry is fetched for each login. A token with an expiry is used for
    80 % of its lifetime.
    """
    plain = TokenSource(provider=f"{provider}:plain")
    assert [token_of(plain) for _ in range(2)] == ["token-1", "token-2"]
    lasting = TokenSource(provider=f"{provider}:lasting")
    given = [token_of(lasting, at(now)) for now in (1000.0, 1799.0, 1800.0)]
    assert given == ["token-3", "token-3", "token-4"]
    forget(lasting)
    assert token_of(lasting, lambda: 1000.0) == "token-5", "the broker has refused the one before"
    claimed = TokenSource(provider=f"{provider}:claimed")
    assert token_of(claimed, lambda: 1050.0) == jwt(iat=1000, exp=1100)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("no_such_module:f", r"oauthTokenProvider='no_such_module:f' cannot be imported"),
        ("my_tokens:nothing", r"cannot be imported .*give module:function"),
        ("my_tokens", r"cannot be imported .*give module:function"),
        ("my_tokens:failing", r"raised ConnectionError: no way"),
        ("my_tokens:wrong", r"has to return a token, or a token and its expiry time in seconds"),
    ],
)
def test_a_function_that_gives_none(provider: str, name: str, says: str) -> None:
    with pytest.raises(TokenError, match=says):
        token_of(TokenSource(provider=name))


def test_the_message_of_rfc_7628() -> None:
    assert first_message("t", ()) == b"n,,\x01auth=Bearer t\x01\x01"
    assert first_message("t", (("a", "b"),)) == b"n,,\x01auth=Bearer t\x01a=b\x01\x01"

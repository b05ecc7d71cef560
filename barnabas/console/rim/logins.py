"""The viewers of the page: logins, if the broker has users, and the session of each request.

The password is sent to a listener of the broker, as a client would send it (`inner_client.login`).
So failed logins are delayed, counted and audited like those of clients. A session's cookie is only
for this page. It is HttpOnly and SameSite=Strict, and its name has the page's port, since all ports
of a host share its cookies.
"""

from __future__ import annotations

import secrets
import threading
from http.cookies import CookieError, SimpleCookie
from typing import Any

from barnabas.broker.observe import Look
from barnabas.broker.seams.nodes import Listener
from barnabas.broker.security.scram import MECHANISMS
from barnabas.console.rim.inner_client import InnerClientError, LoginRefused, login
from barnabas.console.rim.source import BadRequest, Source, Viewer
from barnabas.console.sessions import LONGEST_MS, Sessions
from barnabas.process.http_server import Request

BY_STRENGTH = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")
MOST_AT_ONCE = 4
LONGEST_NAME = LONGEST_PASSWORD = 1000


class LoginNeeded(Exception):
    """The request needs a login."""


class Logins:
    """The logins of one console. port: the page's port, which the cookie's name contains."""

    def __init__(self, source: Source, port: int) -> None:
        self._source, self._server = source, source.server
        self._cookie = f"barnabas-console-{port}"
        self._sessions = Sessions()
        self._lock = threading.Lock()
        self._at_once = threading.BoundedSemaphore(MOST_AT_ONCE)

    @property
    def are_needed(self) -> bool:
        """Whether any listener authenticates its clients, or an authorizer is active."""
        authorizer = self._server.state.authorizer
        if authorizer is not None and authorizer.is_on:
            return True
        return any(
            listener.config.has_sasl
            or (listener.config.tls is not None and listener.config.tls.asks_for_certificates)
            for listener in self._server.nodes.ports.listeners
        )

    def viewer(self, request: Request) -> Viewer:
        """The user that sent a request. Raises: LoginNeeded."""
        if not self.are_needed:
            return Viewer(host=request.client_host or "127.0.0.1")
        token = self._token(request)
        with self._lock:
            session = self._sessions.use(token, self._server.steady_ms()) if token else None
        if session is None:
            raise LoginNeeded
        # the password was changed or removed after the login
        if self._credential(session.user, session.mechanism) != session.credential:
            with self._lock:
                self._sessions.end(token)
            raise LoginNeeded
        return Viewer(f"User:{session.user}", request.client_host)

    def log_in(self, request: Request, user: Any, password: Any) -> str:
        """Log a user in. Gives: the header that sets the cookie of the new session.

        Raises: BadRequest: 401 for a wrong user or password, 429 after too many attempts, 400 if no
                listener accepts passwords.
        """
        is_text = isinstance(user, str) and isinstance(password, str)
        if not is_text or not user or len(user) > LONGEST_NAME or len(password) > LONGEST_PASSWORD:
            raise BadRequest("Give a user and a password.")
        listener = self._listener()
        host, now_ms = request.client_host, self._server.steady_ms()
        with self._lock:
            if not self._sessions.may_try(host, user, now_ms):
                raise BadRequest("There were too many attempts: try again in a minute.", 429)
            # Count the attempt as failed before the outcome is known, so that simultaneous attempts
            # are bounded as well. A success removes this failure.
            self._sessions.failed(host, user, now_ms)
        mechanism = self._mechanism(listener, user)
        if not self._at_once.acquire(timeout=10):
            raise BadRequest("Too many logins at once: try again.", 429)
        try:
            login(self._server, listener, mechanism, user, password, host)
        except LoginRefused:
            raise BadRequest("The user or the password is wrong.", 401) from None
        except InnerClientError as error:
            raise BadRequest(f"The login failed: {error}.", 401) from error
        finally:
            self._at_once.release()
        token, credential = secrets.token_urlsafe(32), self._credential(user, mechanism)
        with self._lock:
            self._sessions.succeeded(host, user, now_ms)
            self._sessions.begin(token, user, mechanism, credential, self._server.steady_ms())
        return self._header(token, LONGEST_MS // 1000)

    def log_out(self, request: Request) -> str:
        """End the request's session. Gives: the header that removes its cookie."""
        with self._lock:
            self._sessions.end(self._token(request))
        return self._header("", 0)

    def _header(self, token: str, seconds: int) -> str:
        return f"{self._cookie}={token}; Path=/; HttpOnly; SameSite=Strict; Max-Age={seconds}"

    def _token(self, request: Request) -> str:
        """The session's token in the request's cookie; empty without a valid cookie."""
        try:
            cookies = SimpleCookie(request.headers.get("Cookie") or "")
        except CookieError:
            return ""
        return cookies[self._cookie].value if self._cookie in cookies else ""

    def _listener(self) -> Listener:
        """The listener at which the page's users are authenticated."""
        for listener in self._server.nodes.ports.listeners:
            if set(BY_STRENGTH) & set(listener.config.sasl_mechanisms) and listener.config.has_sasl:
                return listener
        raise BadRequest(
            "No user can log in to this page: the broker needs a listener with SCRAM or PLAIN."
        )

    def _mechanism(self, listener: Listener, user: str) -> str:
        """The strongest mechanism by which the user may log in. For an unknown user it is the
        strongest of all, so that a response does not reveal which users exist.
        """
        config = self._server.state.config
        offered = [name for name in BY_STRENGTH if name in listener.config.sasl_mechanisms]
        for name in offered:
            is_plain = name == "PLAIN" and user in listener.config.plain_passwords
            if user in config.users or is_plain or self._credential(user, name) is not None:
                return name
        return offered[0]

    def _credential(self, user: str, mechanism: str) -> Any:
        """A user's stored SCRAM credential; None if the user has none."""
        known = MECHANISMS.get(mechanism)
        if known is None:
            return None

        def look() -> Look[Any]:
            yield
            return self._server.state.scram_credential(user, known.number)

        return self._source.run(look())

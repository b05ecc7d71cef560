"""The client of a schema registry with Confluent's REST interface, which other registries also
have.

    GET  /schemas/ids/ID                          a schema, by the id that a record has
    GET  /subjects/SUBJECT/versions/VERSION       a schema of a subject; `latest` is a version
    POST /subjects/SUBJECT                        the id and version of a schema, if it is there
    POST /subjects/SUBJECT/versions               registers a schema

A redirect is not followed: its target would get the password, too. If an address does not answer,
the next one is tried.

Source: Confluent Platform, "Schema Registry API Reference".
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from barnabas.http_client import AnswerError, HttpClient, bounded_json
from barnabas.schemas.errors import SchemaError
from barnabas.version import __version__

ANSWER_BYTES_MOST = 16 << 20
REFERENCES_MOST = 1000
CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
AVRO, PROTOBUF, JSON = "AVRO", "PROTOBUF", "JSON"
NOT_FOUND, SCHEMA_NOT_FOUND, SUBJECT_NOT_FOUND = 404, 40403, 40401


class RegistrySettings(NamedTuple):
    """The address of a registry, and a client's login. Files are PEM files."""

    url: str
    user_info: str = ""
    token: str = ""
    ca: str = ""
    certificate: str = ""
    key: str = ""
    key_password: str = ""


class Wording(NamedTuple):
    """Words for errors: the option of the address, and the settings of the CA, the login, the
    client's own certificate and the timeout.
    """

    option: str
    ca: str
    login: str
    certificate: str
    timeout: str = ""


Wait = Callable[[str, str, Callable[[], Any]], Any]
"""A function that runs a call that may block. It takes the address, a description of the wait, and
the call.
"""


class RegisteredSchema(NamedTuple):
    """A schema of a registry. references: the texts of the schemas that it names, by name, each
    after its own references.
    """

    kind: str
    text: str
    references: Mapping[str, str]


class Reference(NamedTuple):
    """A schema that another one names, and its subject and version in the registry."""

    name: str
    subject: str
    version: int

    def as_json(self) -> dict[str, Any]:
        """The reference in the form of a request."""
        return self._asdict()


class UnreachableError(SchemaError):
    """No address of the registry answered."""


class RegistryError(SchemaError):
    """An error in an answer of the registry. status: the HTTP status; code: the registry's own
    code.
    """

    def __init__(self, text: str, status: int, code: int) -> None:
        super().__init__(text)
        self.status = status
        self.code = code


class SchemaRegistry:
    """A schema registry.

    Takes:  wording, for errors; wait, the function that runs requests.
    Raises: SchemaError for an invalid address, and from each method if the registry cannot be
            reached; RegistryError where it refuses.
    """

    def __init__(
        self,
        settings: RegistrySettings,
        timeout_s: float,
        wording: Wording,
        wait: Wait = lambda address, what, call: call(),
    ) -> None:
        self._settings = settings
        self._timeout_s = timeout_s
        self._wording, self._wait = wording, wait
        self._urls = checked_urls(settings.url, wording.option)
        self._context: ssl.SSLContext | None = None
        self.address = ", ".join(_shown(url) for url in self._urls)

    def schema(self, schema_id: int) -> RegisteredSchema:
        """The schema with that id."""
        return self._complete(self._get(f"schema {schema_id}", f"/schemas/ids/{schema_id}"))

    def latest(self, subject: str) -> tuple[int, RegisteredSchema]:
        """The newest schema of a subject, and its id."""
        path = f"/subjects/{quote(subject, safe='')}/versions/latest"
        found = self._get(f"the newest schema of {subject}", path)
        return int(found["id"]), self._complete(found)

    def register(
        self, subject: str, kind: str, text: str, references: Sequence[Reference] = ()
    ) -> tuple[int, int, bool]:
        """Register a schema in a subject, unless it is already there.

        Gives: the schema's id and version, and whether it is new.
        """
        body: dict[str, Any] = {"schema": text, "schemaType": kind}
        if references:
            body["references"] = [one.as_json() for one in references]
        path = f"/subjects/{quote(subject, safe='')}"
        try:
            found = self._send(f"a look for the schema in {subject}", "POST", path, body)
            return int(found["id"]), int(found["version"]), False
        except RegistryError as error:
            if error.code not in (NOT_FOUND, SCHEMA_NOT_FOUND, SUBJECT_NOT_FOUND):
                raise
        self._send(f"the schema for {subject}", "POST", f"{path}/versions", body)
        found = self._send(f"a look for the schema in {subject}", "POST", path, body)
        return int(found["id"]), int(found["version"]), True

    def _complete(self, found: Mapping[str, Any]) -> RegisteredSchema:
        """The schema in an answer, with all schemas that it names."""
        references: dict[str, str] = {}
        self._collect(found, references, 0)
        kind = str(found.get("schemaType") or AVRO).upper()
        return RegisteredSchema(kind, str(found["schema"]), references)

    def _collect(self, found: Mapping[str, Any], references: dict[str, str], depth: int) -> None:
        for one in found.get("references") or ():
            name, subject, version = str(one["name"]), str(one["subject"]), int(one["version"])
            if name in references:
                continue
            if len(references) >= REFERENCES_MOST or depth > REFERENCES_MOST:
                raise SchemaError(f"a schema names more than {REFERENCES_MOST} others")
            path = f"/subjects/{quote(subject, safe='')}/versions/{version}"
            inner = self._get(f"version {version} of {subject}", path)
            self._collect(inner, references, depth + 1)
            references[name] = str(inner["schema"])

    def _get(self, what: str, path: str) -> dict[str, Any]:
        return self._send(what, "GET", path, None)

    def _send(
        self, what: str, method: str, path: str, body: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        """The answer of the first address that gives one."""
        problem = ""
        for url in self._urls:
            try:
                status, data = self._call(what, url, method, path, body)
            except (OSError, http.client.HTTPException) as error:
                problem = problem or self._problem(url, error)
                continue
            return self._answer(url, what, status, data)
        raise UnreachableError(problem)

    def _call(self, what: str, url: str, *arguments: Any) -> tuple[int, bytes]:
        """One request and its answer. Raises: OSError, HTTPException."""
        found: tuple[int, bytes] = self._wait(
            _shown(url), what, lambda: self._exchange(url, *arguments)
        )
        return found

    def _exchange(
        self, url: str, method: str, path: str, body: Mapping[str, Any] | None
    ) -> tuple[int, bytes]:
        """One request and its answer. Raises: OSError, HTTPException."""
        parts = urlsplit(url)
        data = None if body is None else json.dumps(body).encode()
        client = HttpClient(self._timeout_s, ANSWER_BYTES_MOST, tls=self._tls)
        target = parts._replace(path=parts.path.rstrip("/") + path, query="", fragment="").geturl()
        try:
            answer = client.send(method, target, data, self._headers(parts, data is not None))
        except AnswerError as error:
            raise SchemaError(f"{_shown(url)}: {error}") from error
        finally:
            client.close()
        return answer.status, answer.body

    def _headers(self, parts: Any, has_body: bool) -> dict[str, str]:
        headers = {"Accept": f"{CONTENT_TYPE}, application/json"}
        headers["User-Agent"] = f"barnabas/{__version__}"
        if has_body:
            headers["Content-Type"] = CONTENT_TYPE
        user_info = self._settings.user_info
        if parts.username is not None:
            user_info = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        if user_info:
            headers["Authorization"] = f"Basic {base64.b64encode(user_info.encode()).decode()}"
        elif self._settings.token:
            headers["Authorization"] = f"Bearer {self._settings.token}"
        return headers

    def _tls(self) -> ssl.SSLContext:
        if self._context is None:
            settings = self._settings
            for path in (settings.ca, settings.certificate, settings.key):
                if path and not Path(path).exists():
                    raise SchemaError(f"the schema registry's {path}: no such file")
            try:
                self._context = tls_context(settings)
            except (ssl.SSLError, OSError) as error:
                raise SchemaError(
                    f"the schema registry's certificates cannot be read: {error}; they have to be "
                    "PEM files"
                ) from error
        return self._context

    def _problem(self, url: str, error: Exception) -> str:
        """Why an address gives no answer, and what to do."""
        where = f"{self._wording.option} {_shown(url)}"
        if isinstance(error, ssl.SSLCertVerificationError):
            return (
                f"{where}: its certificate is not trusted ({error.verify_message}): set "
                f"{self._wording.ca} to a PEM file with its CA"
            )
        is_reset = isinstance(error, ConnectionResetError | BrokenPipeError)
        if isinstance(error, ssl.SSLError) or (is_reset and url.startswith("https:")):
            reason = getattr(error, "reason", None) or "the connection was closed"
            if _is_about_the_certificate(error, reason):
                if self._settings.certificate:
                    what = f"it refuses the certificate of {self._settings.certificate} ({reason})"
                    return f"{where}: {what}: set {self._wording.certificate} to one that it trusts"
                return (
                    f"{where}: TLS fails ({reason}), as where the registry requires a certificate "
                    f"of its clients: set {self._wording.certificate}"
                )
            return f"{where}: TLS fails ({reason}): is it http:// there?"
        if isinstance(error, TimeoutError):
            return f"{where}: no answer for {self._timeout_s:g} s{self._wording.timeout}"
        if isinstance(error, http.client.HTTPException | ConnectionResetError):
            return f"{where}: no answer of HTTP: is it https:// there, or another port?"
        reason = getattr(error, "strerror", None) or str(error)
        return f"{where}: {reason}: is the registry running there?"

    def _answer(self, url: str, what: str, status: int, data: bytes) -> dict[str, Any]:
        """The content of an answer. Raises: RegistryError."""
        try:
            found = bounded_json(data)
        except ValueError:
            found = None
        if status == 200 and isinstance(found, dict):
            return found
        where = f"{self._wording.option} {_shown(url)}"
        said = str(found.get("message", "")) if isinstance(found, dict) else ""
        code = found.get("error_code") if isinstance(found, dict) else None
        code = code if isinstance(code, int) else status
        raise RegistryError(f"{where}: {what}: {self._refusal(status, code, said)}", status, code)

    def _refusal(self, status: int, code: int, said: str) -> str:
        """The meaning of a refusal, and a remedy."""
        detail = f" ({said})" if said else ""
        if status == 401:
            return f"it refuses the login{detail}: set {self._wording.login}"
        if status == 403:
            return f"the user may not do that{detail}"
        if code == SUBJECT_NOT_FOUND:
            return (
                f"there is no such subject{detail}: pass a file, as in registry:order.avsc, to "
                "register its schema, or --value-subject (--key-subject) for one of another name"
            )
        if code == SCHEMA_NOT_FOUND:
            return f"it has no such schema{detail}: was the record written with another registry?"
        if status == 404:
            return f"HTTP 404{detail}: the address may lack a path, or be no schema registry"
        if status == 409:
            return (
                f"the schema is not compatible with the subject's earlier ones{detail}: change it, "
                "or the subject's compatibility level in the registry"
            )
        if status == 422:
            return f"it takes the schema for wrong{detail}"
        if 300 <= status < 400:
            return f"HTTP {status}: the registry is at another address"
        return f"HTTP {status}{detail or ': is it a schema registry?'}"


def _is_about_the_certificate(error: Exception, reason: str) -> bool:
    """Whether a registry may have refused the client's certificate, or missed one.

    With TLS 1.3 the client's handshake ends before the server has checked the certificate. The
    request then finds the connection closed, and may miss the alert. Before TLS 1.3 a server may
    send the same alert for every failure of a handshake.
    """
    is_alert = "ALERT" in reason and ("CERTIFICATE" in reason or "UNKNOWN_CA" in reason)
    is_closed = isinstance(error, ssl.SSLEOFError) or not isinstance(error, ssl.SSLError)
    return is_alert or is_closed or "HANDSHAKE_FAILURE" in reason


def tls_context(settings: RegistrySettings) -> ssl.SSLContext:
    """What TLS checks and presents. Raises: SSLError, OSError for a file that cannot be read."""
    context = ssl.create_default_context(cafile=settings.ca or None)
    if settings.certificate:
        context.load_cert_chain(
            settings.certificate, settings.key or None, settings.key_password or ""
        )
    return context


def checked_urls(text: str, option: str) -> list[str]:
    """The addresses of a registry, from a list with commas. Raises: SchemaError for an invalid
    address.
    """
    return [_checked(one.strip(), option) for one in text.split(",")]


def _checked(url: str, option: str) -> str:
    try:
        parts = urlsplit(url)
        is_right = parts.scheme in ("http", "https") and bool(parts.hostname)
        _ = parts.port
    except ValueError:
        is_right = False
    if not is_right:
        raise SchemaError(
            f"{option}: {url!r} is no address: write http://HOST:PORT or https://HOST:PORT"
        )
    return url


def _shown(url: str) -> str:
    """An address without user and password."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"

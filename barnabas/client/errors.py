"""The errors of a client, by kind.

    ClientError                 a later attempt would fail in the same way
        RefusedError            a broker has responded with an error code
        UnknownTopicError       no broker knows the topic
        NoHostError             no bootstrap host has an address
        UnsupportedRequestError broker and client have no version of the request in common
        WrongPeerError          what listens at the port does not speak Kafka's protocol
        TlsError                the settings of TLS do not fit the port
        LoginError              the broker does not accept the login
    PassingError (a ClientError)    a later attempt may succeed
        UnreachableError        nothing accepts a connection at the address
            UnresolvedError     the host has no address
        ConnectionLostError     the connection has failed, or was closed

A text names settings as the Spark connector's options do (`kafka.ssl.keystore.location`). A caller
whose users give settings by other names makes its own text, from the error's kind and its fields.
"""

from __future__ import annotations

import math

from barnabas.protocol.errors import Code

# How long an unknown topic is requested again. Some brokers may take a moment to learn of a new
# topic, but a topic whose name is wrong stays unknown.
UNKNOWN_TOPIC_PATIENCE_MS = 3000

PASSING = frozenset(
    {
        Code.UNKNOWN_TOPIC_OR_PARTITION,
        Code.UNKNOWN_TOPIC_ID,
        Code.INCONSISTENT_TOPIC_ID,
        Code.LEADER_NOT_AVAILABLE,
        Code.NOT_LEADER_OR_FOLLOWER,
        Code.REQUEST_TIMED_OUT,
        Code.BROKER_NOT_AVAILABLE,
        Code.REPLICA_NOT_AVAILABLE,
        Code.NETWORK_EXCEPTION,
        Code.KAFKA_STORAGE_ERROR,
        Code.FENCED_LEADER_EPOCH,
        Code.UNKNOWN_LEADER_EPOCH,
        Code.OFFSET_NOT_AVAILABLE,
        Code.LISTENER_NOT_FOUND,
        Code.COORDINATOR_LOAD_IN_PROGRESS,
    }
)


class ClientError(Exception):
    """A broker cannot be reached, or rejects every attempt. The message says what to do."""


class RefusedError(ClientError):
    """A broker has responded with an error code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class UnknownTopicError(ClientError):
    """For some seconds, no broker has known a topic or partition.

    The topic or partition does not exist, or it was deleted.
    """


class NoHostError(ClientError):
    """No bootstrap host has an address. reason: the error of each."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class UnsupportedRequestError(ClientError):
    """The broker does not support a request, or a field of it.

    request: the request's name, and the field.
    """

    def __init__(self, request: str, message: str) -> None:
        super().__init__(message)
        self.request = request


class WrongPeerError(ClientError):
    """What listens at the port sends no valid responses. reason: what it has sent."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class TlsFault:
    """What is wrong with the settings of TLS."""

    OTHER_HOST = "the broker's certificate is for another host"
    UNTRUSTED = "the client does not trust the broker's certificate"
    NO_TLS = "the port does not speak TLS"
    REFUSED = "the broker has ended the handshake; it may require a certificate of the client"
    SETTINGS = "a certificate, a key or another setting of the client cannot be used"


class TlsError(ClientError):
    """The settings of TLS do not fit the port. fault: one of TlsFault. reason: OpenSSL's."""

    def __init__(self, fault: str, reason: str, message: str) -> None:
        super().__init__(message)
        self.fault, self.reason = fault, reason


class LoginFault:
    """Why a login failed."""

    NO_LOGIN = "the port takes no login"
    MECHANISM = "the port does not have the mechanism"
    USER = "the broker refuses the user, or does not prove its own identity"
    TOKEN = "there is no token"


class LoginError(ClientError):
    """The broker does not accept the login.

    fault: one of LoginFault. reason: the broker's, without advice. code: Kafka's error code.
    """

    def __init__(self, fault: str, reason: str, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.fault, self.reason, self.code = fault, reason, code


class PassingError(ClientError):
    """A transient failure. The request is repeated for `patience_ms` from its first failure.

    Callers of the client never see this error. After that time they get a ClientError.
    """

    def __init__(self, message: str, patience_ms: float = math.inf) -> None:
        super().__init__(message)
        self.patience_ms = patience_ms


class UnreachableError(PassingError):
    """Nothing accepts a connection at an address."""


class UnresolvedError(UnreachableError):
    """A host name has no address.

    If this happens at a client's first request it is permanent, as in a Java client: the name is
    wrong, or there is no network.
    """


class ConnectionLostError(PassingError):
    """A connection has failed, or the broker has closed it.

    reason: what happened, without a hint at the setting that may be wrong.
    """

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason + hint)
        self.reason = reason


def check(
    code: int, what: str, unknown_topic_patience_ms: float = UNKNOWN_TOPIC_PATIENCE_MS
) -> None:
    """Raise PassingError or RefusedError if the code is an error."""
    if code in PASSING:
        if code == Code.UNKNOWN_TOPIC_OR_PARTITION:
            raise PassingError(f"{what} does not exist", unknown_topic_patience_ms)
        if code in (Code.UNKNOWN_TOPIC_ID, Code.INCONSISTENT_TOPIC_ID):
            raise PassingError(f"{what} does not exist under its id", unknown_topic_patience_ms)
        raise PassingError(f"{what}: {code_name(code)}")
    if code:
        raise RefusedError(code, f"{what}: {code_name(code)}")


def code_name(code: int) -> str:
    """The name of an error code, which may be one that is newer than this client."""
    try:
        return Code(code).name
    except ValueError:
        return f"error code {code}"

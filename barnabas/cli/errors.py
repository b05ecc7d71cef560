"""Exit codes, and errors as one line that says what is wrong and what to do.

0    success, or a positive result
1    an error, which the line on standard error describes
2    wrong usage: an option or an argument
3    a negative result: stuck, faults found, not healthy
130  ended by Ctrl-C
141  standard output was closed, as by `| head`
"""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.protocol.errors import Code

OK, ERROR, USAGE, NOT_GOOD, INTERRUPTED, CLOSED_OUTPUT = 0, 1, 2, 3, 130, 141


class CommandError(Exception):
    """A command failed. It prints one line on standard error, and exits with code 1."""


def code_name(code: int) -> str:
    """The name of an error code in Kafka's clients, such as UnknownTopicOrPartition."""
    try:
        return "".join(word.capitalize() for word in Code(code).name.split("_"))
    except ValueError:
        return f"Error{code}"


class RefusedError(Exception):
    """A broker responded with an error code.

    code: Kafka's error code. name: the code's name. resource: the resource of the error, if known.
    request: the name of the refused request, which is the last request that the command sent.
    """

    last_request = ""

    def __init__(self, code: int, message: str | None = "", resource: str = "") -> None:
        super().__init__(message or "")
        self.request = RefusedError.last_request
        self.code = code
        self.name = code_name(code)
        self.resource = resource


def missing(kind: str, name: str, known: Iterable[str], shown_by: str) -> str:
    """The text of an error for a name that does not exist, with a similar one that does.

    Takes: kind, such as "topic"; shown_by, the command that shows all names.
    """
    from difflib import get_close_matches

    near = get_close_matches(name, list(known), n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ":"
    return f"there is no {kind} {name!r}{hint} `{shown_by}` shows all {kind}s"


class ClosedOutputError(Exception):
    """Standard output was closed. Not an OSError, since click turns those into exit code 1."""


_ADVICE = {
    "UnknownTopicOrPartition": (
        "there is no such topic or partition: `barnabas topics list` shows all topics"
    ),
    "TopicAlreadyExists": (
        "the topic exists: alter it with `barnabas topics alter`, or pass --if-not-exists"
    ),
    "GroupIdNotFound": "there is no such group: `barnabas groups list` shows all groups",
    "NonEmptyGroup": "the group has members: stop its consumers and try again",
    "UnknownMemberId": "the group has members: stop its consumers and try again",
    "TransactionalIdNotFound": (
        "there is no such transactional id: `barnabas txn list` shows all ids"
    ),
    "InvalidReplicationFactor": (
        "the cluster has fewer brokers: leave out --replication-factor for its default"
    ),
    "ProducerFenced": (
        "a newer producer has the same --transactional-id: this producer's transaction is aborted"
    ),
    "InvalidProducerEpoch": (
        "a newer producer has the same --transactional-id: this producer's transaction is aborted"
    ),
    "UnsupportedVersion": (
        "the broker does not support that request: `barnabas check --apis` lists the supported ones"
    ),
    "MessageTooLarge": (
        "a record is larger than the topic allows: raise its max.message.bytes with "
        "`barnabas topics alter --config`"
    ),
    "TopicAuthorizationFailed": "the user lacks a right on the topic: see `barnabas acl`",
    "GroupAuthorizationFailed": "the user lacks a right on the group: see `barnabas acl`",
    "ClusterAuthorizationFailed": "the user lacks a right on the cluster: see `barnabas acl`",
    "SaslAuthenticationFailed": (
        "the broker refuses the user: see sasl.* in the file of --client-config"
    ),
    "CoordinatorNotAvailable": (
        "the cluster names no coordinator: its topic for groups or transactions cannot be "
        "created, or has no leader; see the brokers' logs"
    ),
    "UnknownBrokerId": "there is no such broker: `barnabas check` shows their ids",
}


def explain(error: Exception, subject: str = "") -> str:
    """The explanation of a client's error and a remedy, in one line.

    Takes: subject, the resource of the request, if it is known.
    """
    from barnabas.cli.denied import denied_by

    if text := denied_by(error, subject):
        return text
    if isinstance(error, RefusedError):
        name, said = error.name, " ".join(str(error).split())
        subject = subject or error.resource
    else:
        name = type(error).__name__.removesuffix("Error")
        said = " ".join(str(error).split()) or name
    advice = _ADVICE.get(name, "")
    head = f"{subject}: " if subject else ""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{head}{error.filename}: {error.strerror}"
    if advice:
        detail = f" ({said})" if said and said != name and len(said) < 160 else ""
        return f"{head}{advice}{detail}"
    return f"{head}{said or name} ({name})" if said != name else f"{head}{name}"

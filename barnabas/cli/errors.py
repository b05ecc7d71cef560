"""Exit codes, and errors as one line that says what is wrong and what to do.

0    done, or the answer is good
1    an error, which the line on standard error names
2    wrong usage: an option or an argument
3    the answer is not good: stuck, faults found, not healthy
130  ended by Ctrl-C
141  standard output was closed, as `| head` does
"""

from __future__ import annotations

OK, ERROR, USAGE, NOT_GOOD, INTERRUPTED, CLOSED_OUTPUT = 0, 1, 2, 3, 130, 141


class CommandError(Exception):
    """A command failed: one line on standard error, exit code 1."""


class ClosedOutputError(Exception):
    """Standard output was closed. Not an OSError, since click turns those into exit code 1."""


_ADVICE = {
    "UnknownTopicOrPartitionError": (
        "there is no such topic or partition: `barnabas topics list` shows what there is"
    ),
    "TopicAlreadyExistsError": (
        "the topic exists: alter it with `barnabas topics alter`, or pass --if-not-exists"
    ),
    "GroupIdNotFoundError": "there is no such group: `barnabas groups list` shows what there is",
    "NonEmptyGroupError": "the group has members: stop its consumers and try again",
    "UnknownMemberIdError": "the group has members: stop its consumers and try again",
    "TransactionalIdNotFoundError": (
        "there is no such transactional id: `barnabas txn list` shows what there is"
    ),
    "InvalidReplicationFactorError": (
        "the cluster has fewer brokers than that: leave --replication-factor out for its default"
    ),
    "ProducerFencedError": (
        "a newer producer has the same --transactional-id: what this one sent is aborted"
    ),
    "InvalidProducerEpochError": (
        "a newer producer has the same --transactional-id: what this one sent is aborted"
    ),
    "UnsupportedVersionError": (
        "the broker does not speak that request: `barnabas check --apis` lists what it speaks"
    ),
    "IncompatibleBrokerVersion": (
        "the broker does not speak that request: `barnabas check --apis` lists what it speaks"
    ),
    "MessageSizeTooLargeError": (
        "a record is larger than the topic allows: raise its max.message.bytes with "
        "`barnabas topics alter --config`"
    ),
    "TopicAuthorizationFailedError": "the user may not do that with the topic",
    "GroupAuthorizationFailedError": "the user may not do that with the group",
    "ClusterAuthorizationFailedError": "the user may not do that with the cluster",
    "SaslAuthenticationFailedError": (
        "the broker refuses the user: see sasl.* in the file of --client-config"
    ),
    "CoordinatorNotAvailableError": (
        "the cluster names no coordinator: its topic for groups or transactions cannot be made, or "
        "has no leader; see the brokers' logs"
    ),
    "UnknownBrokerIdError": "there is no such broker: `barnabas check` shows their ids",
    "KafkaTimeoutError": "no answer in time: `barnabas check` shows what works; see --timeout, too",
}


def explain(error: Exception, subject: str = "") -> str:
    """What a client's error means and what to do, as one line.

    Takes: subject, the resource of the request, if it is known.
    """
    from barnabas.cli.denied import denied_text

    name = type(error).__name__
    if text := denied_text(f"{name}: {error}", subject):
        return text
    said = " ".join(str(error).split())
    if said.startswith("[Error "):
        said = said.partition("] ")[2]
    said = said.removeprefix(f"{name}: ")
    code = name.removesuffix("Error")
    advice = _ADVICE.get(name, "")
    head = f"{subject}: " if subject else ""
    if advice:
        detail = f" ({said})" if said and said not in (code, name) and len(said) < 160 else ""
        return f"{head}{advice}{detail}"
    return f"{head}{said or code} ({code})" if said != code else f"{head}{code}"

"""Writes docs/ERRORS.md from the codes of protocol/errors.py and from the modules that use them.

Run it with `make docs-pages`. A test checks that the page is up to date.
"""

from __future__ import annotations

import re
from pathlib import Path

from barnabas.protocol.errors import Code

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "ERRORS.md"
_PACKAGES = ("broker", "coordinator", "protocol", "storage")
_BEFORE = """\
# Error codes

*Written by `make docs-pages` from `protocol/errors.py` and the code that uses them.*

Codes and names are Apache Kafka's. *Again* says whether the same request may succeed later: stock
clients then repeat it by themselves, often after a Metadata or FindCoordinator request.

## Answered by this broker

| code | name | again | what it means, and what to do |
|---|---|---|---|
"""
_BETWEEN = """
## Never answered by this broker

Kafka's clients know them, and a test can produce them with a fault
([TESTING.md](TESTING.md#faults-and-time)).

| code | name |
|---|---|
"""

# For each code: whether a retry may succeed, and a text that explains the code and says what to do.
MEANINGS: dict[str, tuple[bool, str]] = {
    "UNKNOWN_SERVER_ERROR": (False, "No other code fits. The broker's log has the cause; please report it."),
    "OFFSET_OUT_OF_RANGE": (False, "The offset is before the log's start or behind its end: retention deleted it, or the log ended earlier after a power loss. Consumers continue by `auto.offset.reset`."),
    "CORRUPT_MESSAGE": (
        True,
        "A batch's checksum or length is wrong: it was damaged in transit; or, from ListOffsets, "
        "in the partition's file.",
    ),
    "UNKNOWN_TOPIC_OR_PARTITION": (True, "The topic or partition does not exist, or not yet."),
    "LEADER_NOT_AVAILABLE": (True, "The partition has no leader at the moment, or its topic is being created."),
    "NOT_LEADER_OR_FOLLOWER": (True, "Another broker leads the partition."),
    "REQUEST_TIMED_OUT": (True, "The request would block other clients for too long: of one Produce before version 3, 4 MiB are converted."),
    "MESSAGE_TOO_LARGE": (False, "A batch is larger than the topic's `max.message.bytes`."),
    "OFFSET_METADATA_TOO_LARGE": (False, "The metadata text of a committed offset is longer than `offset.metadata.max.bytes`."),
    "COORDINATOR_LOAD_IN_PROGRESS": (True, "The coordinator is still reading its log."),
    "COORDINATOR_NOT_AVAILABLE": (True, "There is no coordinator at the moment."),
    "NOT_COORDINATOR": (True, "Another broker coordinates this group or transactional id."),
    "INVALID_TOPIC_EXCEPTION": (False, "The name is not valid for a topic (letters, digits, `.`, `_`, `-`; at most 249), or an internal topic may not be written."),
    "RECORD_LIST_TOO_LARGE": (False, "A batch is larger than a segment (`segment.bytes`)."),
    "NOT_ENOUGH_REPLICAS": (True, "`acks=all`, and fewer replicas are in sync than `min.insync.replicas`."),
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND": (True, "As NOT_ENOUGH_REPLICAS, noticed after the append: a retry without idempotence may duplicate the batch."),
    "INVALID_REQUIRED_ACKS": (False, "`acks` has to be 0, 1 or -1."),
    "ILLEGAL_GENERATION": (False, "The group has rebalanced since; consumers join again."),
    "INCONSISTENT_GROUP_PROTOCOL": (False, "The member has no assignor or protocol type in common with the group."),
    "INVALID_GROUP_ID": (False, "The group's name is empty."),
    "UNKNOWN_MEMBER_ID": (False, "The group does not have this member (any more); consumers join again."),
    "INVALID_SESSION_TIMEOUT": (False, "Outside `group.min.session.timeout.ms` to `group.max.session.timeout.ms`."),
    "REBALANCE_IN_PROGRESS": (False, "The group is being rebalanced; consumers join again."),
    "INVALID_COMMIT_OFFSET_SIZE": (False, "The record of a commit would be too large."),
    "TOPIC_AUTHORIZATION_FAILED": (False, "Not allowed: an internal topic, or by an ACL."),
    "GROUP_AUTHORIZATION_FAILED": (False, "Not allowed for this group."),
    "CLUSTER_AUTHORIZATION_FAILED": (False, "Not allowed for the cluster."),
    "INVALID_TIMESTAMP": (False, "A record's timestamp is further from the broker's clock than `message.timestamp.before.max.ms` or `message.timestamp.after.max.ms` allow."),
    "UNSUPPORTED_SASL_MECHANISM": (False, "The broker does not support this mechanism."),
    "ILLEGAL_SASL_STATE": (False, "The request is not allowed at this stage of the authentication."),
    "UNSUPPORTED_VERSION": (False, "The request or its version is not supported; ApiVersions returns the supported ones ([REQUESTS.md](REQUESTS.md))."),
    "TOPIC_ALREADY_EXISTS": (False, "A topic with this name exists, or with one that differs only in `.` and `_`."),
    "INVALID_PARTITIONS": (False, "The number is below one, or not above the current one."),
    "INVALID_REPLICATION_FACTOR": (False, "More replicas than brokers. Ask for 1, or for -1, the broker's default."),
    "INVALID_REPLICA_ASSIGNMENT": (False, "Unknown brokers, or partitions that are not consecutive."),
    "INVALID_CONFIG": (False, "An unknown setting, or a value out of bounds; the message says which."),
    "NOT_CONTROLLER": (True, "Another broker is the controller."),
    "INVALID_REQUEST": (False, "The request contradicts itself; the message or the broker's log says how."),
    "UNSUPPORTED_FOR_MESSAGE_FORMAT": (False, "Records in a format before version 2 cannot be written."),
    "POLICY_VIOLATION": (False, "Too much at once (10,000 partitions or topics in a request), or refused by a rule; the message says which."),
    "OUT_OF_ORDER_SEQUENCE_NUMBER": (False, "A batch of this producer is missing before this one. librdkafka and the Java client send the missing batch, or begin a new epoch."),
    "DUPLICATE_SEQUENCE_NUMBER": (False, "Clients treat it as success: the batch is in the log already."),
    "INVALID_PRODUCER_EPOCH": (False, "A newer producer has the transactional id, or the transaction timed out. Start a new producer."),
    "INVALID_TXN_STATE": (False, "The state of the transaction does not allow the request: for example a batch for a partition that was not added, or an abort of a transaction whose commit is decided."),
    "INVALID_PRODUCER_ID_MAPPING": (False, "The transactional id does not have this producer id: it expired, or never existed. Start a new producer."),
    "INVALID_TRANSACTION_TIMEOUT": (False, "Longer than `transaction.max.timeout.ms`."),
    "CONCURRENT_TRANSACTIONS": (True, "The last transaction of this id has not ended yet."),
    "TRANSACTION_COORDINATOR_FENCED": (False, "A marker of an older coordinator epoch."),
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": (False, "Not allowed for this transactional id."),
    "SECURITY_DISABLED": (False, "There is no authorizer, so there are no ACLs."),
    "OPERATION_NOT_ATTEMPTED": (False, "Another part of the same request failed, so this one was not tried."),
    "KAFKA_STORAGE_ERROR": (True, "The partition's files cannot be read or written: a full disk, or damage. The broker's log says what to do."),
    "LOG_DIR_NOT_FOUND": (False, "The broker has no such log directory."),
    "INVALID_FETCH_SIZE": (False, "A fetch with a size of 0."),
    "BROKER_NOT_AVAILABLE": (False, "The broker does not run."),
    "REPLICA_NOT_AVAILABLE": (True, "The replica is not available."),
    "STALE_CONTROLLER_EPOCH": (False, "The request has the epoch of an older controller."),
    "STALE_BROKER_EPOCH": (False, "The request has the epoch of an earlier run of the broker."),
    "NETWORK_EXCEPTION": (True, "The connection ended before the answer."),
    "SASL_AUTHENTICATION_FAILED": (False, "Wrong name or password."),
    "UNKNOWN_PRODUCER_ID": (False, "The log no longer knows this producer."),
    "REASSIGNMENT_IN_PROGRESS": (False, "The partition is already being moved."),
    "NON_EMPTY_GROUP": (False, "The group has members: stop them first."),
    "GROUP_ID_NOT_FOUND": (False, "The group does not exist."),
    "FETCH_SESSION_ID_NOT_FOUND": (True, "The fetch session was evicted; clients begin a new one."),
    "INVALID_FETCH_SESSION_EPOCH": (True, "A fetch was repeated or out of order; clients begin a new session."),
    "LISTENER_NOT_FOUND": (True, "The leader has no listener of this name."),
    "TOPIC_DELETION_DISABLED": (False, "`delete.topic.enable=false`."),
    "FENCED_LEADER_EPOCH": (True, "The client has an older leader epoch; it asks for Metadata, and for the end of that epoch."),
    "UNKNOWN_LEADER_EPOCH": (True, "The client has a newer leader epoch than the broker."),
    "UNSUPPORTED_COMPRESSION_TYPE": (False, "zstd in a version of Produce or Fetch that does not support it."),
    "OFFSET_NOT_AVAILABLE": (True, "The high watermark is unknown yet."),
    "MEMBER_ID_REQUIRED": (False, "The first join had no member id: the answer has one, and clients join again with it."),
    "PREFERRED_LEADER_NOT_AVAILABLE": (True, "The preferred replica is not available."),
    "GROUP_MAX_SIZE_REACHED": (False, "The group has `group.max.size` members."),
    "FENCED_INSTANCE_ID": (False, "Another process has joined with this `group.instance.id`."),
    "ELIGIBLE_LEADERS_NOT_AVAILABLE": (True, "No replica may lead."),
    "ELECTION_NOT_NEEDED": (True, "The preferred replica leads already."),
    "NO_REASSIGNMENT_IN_PROGRESS": (False, "No replica is being moved."),
    "GROUP_SUBSCRIBED_TO_TOPIC": (False, "Offsets of a topic that the group reads are not deleted."),
    "INVALID_RECORD": (False, "A record cannot be decoded, or a record for a compacted topic has no key. Nothing of the batch was written."),
    "UNSTABLE_OFFSET_COMMIT": (True, "Offsets of the group are in an open transaction; clients wait for its end."),
    "THROTTLING_QUOTA_EXCEEDED": (True, "A quota is used up for now."),
    "PRODUCER_FENCED": (False, "A newer producer has the transactional id. Start a new producer."),
    "RESOURCE_NOT_FOUND": (False, "The user or resource does not exist."),
    "DUPLICATE_RESOURCE": (False, "The request names it twice."),
    "UNACCEPTABLE_CREDENTIAL": (False, "A SCRAM user without a name or a password, or with iterations that are out of bounds."),
    "DELEGATION_TOKEN_AUTH_DISABLED": (False, "There are no delegation tokens: log in with a user's own password or token."),
    "DELEGATION_TOKEN_AUTHORIZATION_FAILED": (False, "A delegation token of another user needs CREATE_TOKENS on it; there are no tokens anyway."),
    "INVALID_PRINCIPAL_TYPE": (False, "A renewer of a delegation token has to be a User; there are no tokens anyway."),
    "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED": (False, "Delegation tokens can only be requested on a listener with SASL, where they are refused, too."),
    "INVALID_UPDATE_VERSION": (False, "The feature is unknown, or this level is not allowed."),
    "BROKER_ID_NOT_REGISTERED": (False, "There is no broker with this id."),
    "INCONSISTENT_CLUSTER_ID": (False, "The request names another cluster."),
    "UNKNOWN_SUBSCRIPTION_ID": (True, "The subscription of this client's metrics has changed: clients ask for it again."),
    "TELEMETRY_TOO_LARGE": (False, "The client's metrics are larger than `telemetry.max.bytes` (1 MiB)."),
    "UNKNOWN_TOPIC_ID": (True, "No topic has this id: it was deleted, or created again."),
    "INCONSISTENT_TOPIC_ID": (True, "The topic has another id now."),
    "FETCH_SESSION_TOPIC_ID_ERROR": (True, "The fetch session uses topic names and the request topic ids, or the reverse."),
    "TRANSACTIONAL_ID_NOT_FOUND": (False, "The transactional id does not exist."),
    "INELIGIBLE_REPLICA": (False, "A replica that may not be in sync."),
    "NEW_LEADER_ELECTED": (False, "The request elected another leader."),
    "FENCED_MEMBER_EPOCH": (False, "The member's epoch is not the group's; consumers join again."),
    "UNRELEASED_INSTANCE_ID": (False, "Another member has this instance id; it has to leave first."),
    "UNSUPPORTED_ASSIGNOR": (False, "The broker does not have this assignor; the message names those that it has."),
    "STALE_MEMBER_EPOCH": (False, "The member has a newer epoch now; clients repeat the request with it."),
    "MISMATCHED_ENDPOINT_TYPE": (False, "The request asks for controllers, and this is a broker."),
    "UNSUPPORTED_ENDPOINT_TYPE": (False, "The request asks for neither brokers nor controllers."),
    "FENCED_STATE_EPOCH": (False, "The states of the share group's partitions were deleted or set meanwhile, or another broker writes them."),
    "INVALID_RECORD_STATE": (False, "The records are not locked for this member of the share group: its lock has expired, or it has finished with them."),
    "SHARE_SESSION_NOT_FOUND": (True, "The share session has ended, with its connection or because other clients needed its room; clients begin a new one."),
    "INVALID_SHARE_SESSION_EPOCH": (True, "A request of a share session was repeated or out of order; clients begin a new session."),
    "SHARE_SESSION_LIMIT_REACHED": (True, "There are `group.share.max.share.sessions` share sessions, or they have too many partitions, and this principal has its share of them."),
    "STREAMS_INVALID_TOPOLOGY": (
        False,
        "The topology of a streams group cannot run with any topics, or names one that no "
        "application may use.",
    ),
    "INVALID_REGULAR_EXPRESSION": (False, "The pattern is not valid in RE2's syntax."),
    "TRANSACTION_ABORTABLE": (False, "This transaction can only be aborted; then the producer can continue."),
}  # fmt: skip


def answered_codes() -> set[str]:
    """The names of all error codes that appear in the product's modules."""
    names: set[str] = set()
    for package in _PACKAGES:
        for module in (ROOT / package).rglob("*.py"):
            if module.name not in ("errors.py", "refusals.py") and "generator" not in module.parts:
                names |= set(re.findall(r"\bCode\.([A-Z_]+)\b", module.read_text("utf-8")))
    return names - {"NONE"}


def text() -> str:
    """The whole file."""
    answered = answered_codes()
    rows = [
        f"| {code.value} | `{code.name}` | {'yes' if again else 'no'} | {meaning} |"
        for code in sorted(Code)
        if code.name in answered
        for again, meaning in [MEANINGS.get(code.name, (False, ""))]
    ]
    others = [
        f"| {code.value} | `{code.name}` |"
        for code in sorted(Code)
        if code.name not in answered and code is not Code.NONE
    ]
    return _BEFORE + "\n".join(rows) + "\n" + _BETWEEN + "\n".join(others) + "\n"

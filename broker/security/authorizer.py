"""The authorizer: Kafka's StandardAuthorizer, with the ACLs of the metadata journal.

| in this order | then |
|---|---|
| the principal is one of super.users | allowed |
| a matching ACL denies the operation, or all operations | denied |
| a matching ACL allows the operation, all operations, or an operation that implies it | allowed |
| no ACL of any principal matches the resource, and `allow.everyone.if.no.acl.found` | allowed |
| else | denied |

An ACL matches a resource by the whole name, by a prefix of the name, or by `*`. It matches a
principal by its name or by `User:*`, and a host by its address or by `*`. An IPv6 address may also
have Java's form (`2001:db8:0:0:0:0:0:a`), which the ACLs of Apache Kafka use. Decisions are cached
by principal and host until an ACL changes. Source: KIP-11, KIP-290, KIP-679 (`may_any`), KIP-801.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from barnabas.broker.audit import AuditRecord
from barnabas.broker.security.acls import (
    CLUSTER_NAME,
    IMPLIED_BY,
    WILDCARD,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from barnabas.broker.security.refusals import RefusalLines
from barnabas.broker.security.stored import Acl
from barnabas.protocol.request_context import UNIX_SCHEME, RequestContext

# the maximum number of cached decisions; they take 30 MB, or 100 MB with the longest names
MOST_REMEMBERED = 200_000
LONGEST_REMEMBERED = 255  # longer names (of up to 32,767 characters) are not cached
AUDITED_ONCE = frozenset((Operation.READ, Operation.WRITE, Operation.DESCRIBE))
SOME_NAME = "hardcode"  # the name that Kafka uses for a resource whose name is unknown

Question = tuple[int, int, str]
"""(operation, resource type, name); a negative operation: on any resource of the type"""


class Access:
    """The permissions of one principal from one host. Decisions are cached until an ACL changes.

    keeper: the authorizer that notifies this object of changes; None for an object that only one
    request uses. readable, writable: topics that the principal may read or write; callers check
    these before they call `may`.
    """

    __slots__ = (
        "_answers", "_authorizer", "audited", "host", "keeper", "principal", "readable", "writable",
    )  # fmt: skip

    def __init__(self, authorizer: Authorizer, principal: str, host: str) -> None:
        self._authorizer, self.principal, self.host = authorizer, principal, host
        self.keeper: Authorizer | None = authorizer
        self._answers: dict[Question, bool] = {}
        self.readable: set[str] = set()
        self.writable: set[str] = set()
        # (connection, decision) pairs already in the audit log
        self.audited: set[tuple[int, Question]] = set()

    def may(self, operation: int, resource_type: int, name: str) -> bool:
        """Whether the operation on a resource is allowed. A refusal is logged."""
        answer = self._decision(operation, resource_type, name)
        if not answer:
            self._authorizer.refusals.write(
                self.principal, self.host, operation, resource_type, name
            )
        return answer

    def _decision(self, operation: int, resource_type: int, name: str) -> bool:
        """The decision, from the cache if it is known. Very long names are not cached."""
        question = (operation, resource_type, name)
        answer = self._answers.get(question)
        if answer is None:
            authorizer = self._authorizer
            answer = authorizer.decide(self.principal, self.host, *question)
            if len(name) <= LONGEST_REMEMBERED:
                self._remember(question, answer)
        return answer

    def _remember(self, question: Question, answer: bool) -> None:
        """Cache a decision. If the caches are full, `make_room` clears them and retires this
        object, which then caches nothing.
        """
        self._authorizer.make_room()
        if self.keeper is None:
            return
        self._answers[question] = answer
        operation, resource_type, name = question
        if answer and resource_type == ResourceType.TOPIC:
            if operation == Operation.READ:
                self.readable.add(name)
            elif operation == Operation.WRITE:
                self.writable.add(name)

    def sees(self, operation: int, resource_type: int, name: str) -> bool:
        """Whether the client may see the resource. Otherwise the response omits the resource, and
        no refusal is logged.
        """
        return self._decision(operation, resource_type, name)

    def may_on_cluster(self, operation: int) -> bool:
        """Whether the operation on the cluster is allowed."""
        return self.may(operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def is_enough_on_cluster(self, operation: int) -> bool:
        """Whether the operation on the cluster is allowed. Use this if another permission may be
        sufficient as well: a negative result is not logged as a refusal.
        """
        return self._decision(operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def may_any(self, operation: int, resource_type: int) -> bool:
        """Whether the operation is allowed on some resource of that type, existing or not."""
        # the negative number marks the question about any resource, in the same cache
        question = (-operation, resource_type, "")
        answer = self._answers.get(question)
        if answer is None:
            authorizer = self._authorizer
            answer = authorizer.decide_any(self.principal, self.host, operation, resource_type)
            self._remember(question, answer)
        return answer

    def operations(self, bits: int, resource_type: int, name: str) -> int:
        """Which of the operations in `bits` are allowed, as a bit set of the
        operations' numbers.
        """
        return sum(
            1 << operation
            for operation in range(bits.bit_length())
            if bits >> operation & 1 and self.sees(operation, resource_type, name)
        )

    def operations_on_cluster(self, bits: int) -> int:
        """The same for the cluster: none if the client lacks DESCRIBE on it."""
        if not self.sees(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
            return 0
        return self.operations(bits, ResourceType.CLUSTER, CLUSTER_NAME)

    def forget(self) -> None:
        """Clear the cached decisions, since an ACL has changed."""
        self._answers.clear()
        self.readable.clear()
        self.writable.clear()
        self.audited.clear()

    def retire(self) -> None:
        """Stop caching decisions. The authorizer has dropped this object, and no longer notifies it
        of changes, but a parked request may still use it.
        """
        self.forget()
        self.keeper = None


class AuditedAccess(Access):
    """The access of one request, with an audit line for each decision.

    READ, WRITE and DESCRIBE are logged once per connection, until an ACL changes or the cache is
    cleared. With a line for each Produce and Fetch, the audit log would be most of the data that
    the broker writes.
    """

    __slots__ = ("_audit", "_context", "_shared")

    def __init__(
        self, shared: Access, context: RequestContext, audit: Callable[[AuditRecord], None]
    ) -> None:
        """Takes: shared, the cached permissions of the client; context, the request whose decisions
        are audited; audit, which receives each audit record.
        """
        super().__init__(shared._authorizer, shared.principal, shared.host)
        self.keeper = None
        self._shared, self._context, self._audit = shared, context, audit

    def sees(self, operation: int, resource_type: int, name: str) -> bool:
        return self._shared.sees(operation, resource_type, name)

    def is_enough_on_cluster(self, operation: int) -> bool:
        is_allowed = self._shared.is_enough_on_cluster(operation)
        self._note(operation, ResourceType.CLUSTER, CLUSTER_NAME, is_allowed)
        return is_allowed

    def may(self, operation: int, resource_type: int, name: str) -> bool:
        is_allowed = self._shared.may(operation, resource_type, name)
        self._note(operation, resource_type, name, is_allowed)
        return is_allowed

    def may_any(self, operation: int, resource_type: int) -> bool:
        is_allowed = self._shared.may_any(operation, resource_type)
        self._note(operation, resource_type, WILDCARD, is_allowed)
        return is_allowed

    def _note(self, operation: int, resource_type: int, name: str, is_allowed: bool) -> None:
        """Pass a decision to the audit log. Operations in AUDITED_ONCE, which are checked with
        every request, are audited once for each connection and resource.
        """
        if operation in AUDITED_ONCE:
            audited = self._shared.audited
            once = (self._context.connection_id, (operation, resource_type, name))
            if once in audited:
                return
            if len(name) <= LONGEST_REMEMBERED:
                self._authorizer.make_room()
                audited.add(once)
        self._audit(
            AuditRecord(
                self.principal, self.host, self._context.client_id or "", self._context.api_key,
                Operation(operation).name, ResourceType(resource_type).name, name, is_allowed,
            )
        )  # fmt: skip


class AclJournal(Protocol):
    """Where ACLs are stored: `ClusterMetadata` in `broker/logs/metadata.py`."""

    acls: dict[uuid.UUID, Acl]

    def add_acls(self, acls: Mapping[uuid.UUID, Acl]) -> None: ...

    def remove_acls(self, ids: Sequence[uuid.UUID]) -> None: ...


class Authorizer:
    """The ACLs of the metadata journal, indexed by (type, pattern, name) and principal, and the
    permissions of each principal.

    Takes: super_users, principals in the form `User:NAME`; everyone_if_no_acl, the setting
           allow.everyone.if.no.acl.found; is_on, which is False if no request is refused, and
           decisions are made only for the audit log; audit, the function that is called with each
           audit record, or None without an audit log; on_changed, the function that is called
           after each change of an ACL.
    """

    def __init__(
        self,
        journal: AclJournal,
        super_users: Sequence[str] = (),
        *,
        everyone_if_no_acl: bool = False,
        is_on: bool = True,
        audit: Callable[[AuditRecord], None] | None = None,
        on_changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._on_changed = on_changed
        self._journal, self._super_users = journal, frozenset(super_users)
        self._everyone_if_no_acl, self._audit = everyone_if_no_acl, audit
        self.is_on = is_on
        self.refusals = RefusalLines()
        self._accesses: dict[tuple[str, str], Access] = {}
        self._remembered = 0
        self._index: dict[tuple[int, int, str], dict[str, list[Acl]]] = {}
        # by resource type: the number of prefixed ACLs for each length of the prefix
        self._prefix_lengths: dict[int, dict[int, int]] = {}
        for acl in journal.acls.values():
            self._take(acl)

    # --- decisions -------------------------------------------------------------------------------

    def access(self, principal: str, client_host: str, context: RequestContext) -> Access:
        """The permissions of a request's client. Takes: client_host, with or without the leading
        slash.
        """
        self.refusals.now_ms, self.refusals.api_key = context.now_ms, context.api_key
        key = (principal, client_host)
        access = self._accesses.get(key)
        if access is None:
            self.make_room()
            access = Access(self, principal, client_host.removeprefix("/"))
            self._accesses[key] = access
        return access if self._audit is None else AuditedAccess(access, context, self._audit)

    def decide(
        self, principal: str, host: str, operation: int, resource_type: int, name: str
    ) -> bool:
        """Decide by the table above, without using the cache."""
        if principal in self._super_users or not self.is_on:
            return True
        is_allowed, has_acl = False, False
        hosts = _spellings(host)
        for by_principal in self._matching(resource_type, name):
            has_acl = True
            for acl in _of(by_principal, principal, hosts):
                is_for_operation = acl.operation in (Operation.ALL, operation)
                if acl.permission_type == Permission.DENY:
                    if is_for_operation:
                        return False
                elif is_for_operation or acl.operation in IMPLIED_BY.get(operation, ()):
                    is_allowed = True
        return is_allowed or (not has_acl and self._everyone_if_no_acl)

    def decide_any(self, principal: str, host: str, operation: int, resource_type: int) -> bool:
        """Whether the operation is allowed on some resource of the type. This is so if an ACL
        allows the operation, and no ACL denies it for all names that this ACL matches (KIP-679).
        """
        if self.decide(principal, host, operation, resource_type, SOME_NAME):
            return True
        allowed: list[tuple[int, str]] = []
        denied: set[tuple[int, str]] = set()
        hosts = _spellings(host)
        for (acl_type, pattern, name), by_principal in self._index.items():
            if acl_type != resource_type:
                continue
            for acl in _of(by_principal, principal, hosts):
                if acl.operation not in (Operation.ALL, operation):
                    continue
                if acl.permission_type == Permission.DENY:
                    denied.add((pattern, name))
                else:
                    allowed.append((pattern, name))
        if (PatternType.LITERAL, WILDCARD) in denied:
            return False
        return any(
            (pattern == PatternType.LITERAL and name == WILDCARD)
            or not _is_covered(pattern, name, denied)
            for pattern, name in allowed
        )

    def _matching(self, resource_type: int, name: str) -> Iterator[dict[str, list[Acl]]]:
        """The ACLs, by principal, of each resource pattern that matches the name: the name itself,
        the wildcard, and its prefixes.
        """
        index = self._index
        for key in (
            (resource_type, PatternType.LITERAL, name),
            (resource_type, PatternType.LITERAL, WILDCARD),
        ):
            if key in index:
                yield index[key]
        for length in self._prefix_lengths.get(resource_type, ()):
            if length <= len(name):
                by_principal = index.get((resource_type, PatternType.PREFIXED, name[:length]))
                if by_principal is not None:
                    yield by_principal

    def make_room(self) -> None:
        """Count one more cached decision or audit line. If there are too many, clear the caches."""
        self._remembered += 1
        if self._remembered > MOST_REMEMBERED:
            for access in self._accesses.values():
                access.retire()
            self._accesses.clear()
            self._remembered = 1

    def _forget(self) -> None:
        """Clear the cached decisions of all clients."""
        for access in self._accesses.values():
            access.forget()
        self._remembered = len(self._accesses)

    # --- changing --------------------------------------------------------------------------------

    def add(self, acls: Mapping[uuid.UUID, Acl]) -> None:
        """Add ACLs, which are in force when the call returns."""
        self._journal.add_acls(acls)
        for acl in acls.values():
            self._take(acl)
        self._forget()
        self._on_changed()

    def remove(self, ids: Sequence[uuid.UUID]) -> None:
        """Remove ACLs, which are no longer in force when the call returns."""
        acls = [self._journal.acls[acl_id] for acl_id in ids]
        self._journal.remove_acls(ids)
        for acl in acls:
            self._drop(acl)
        self._forget()
        self._on_changed()

    def _take(self, acl: Acl) -> None:
        """Add an ACL to the index, and count its prefix length."""
        key = acl.resource_type, acl.pattern_type, acl.resource_name
        if key not in self._index:
            self._index[key] = {}
            if acl.pattern_type == PatternType.PREFIXED:
                lengths = self._prefix_lengths.setdefault(acl.resource_type, {})
                length = len(acl.resource_name)
                lengths[length] = lengths.get(length, 0) + 1
        self._index[key].setdefault(acl.principal, []).append(acl)

    def _drop(self, acl: Acl) -> None:
        """Remove an ACL from the index, and its prefix length if no other prefix has that
        length.
        """
        key = acl.resource_type, acl.pattern_type, acl.resource_name
        by_principal = self._index[key]
        acls = by_principal[acl.principal]
        acls.remove(acl)
        if not acls:
            del by_principal[acl.principal]
        if not by_principal:
            del self._index[key]
            if acl.pattern_type == PatternType.PREFIXED:
                lengths = self._prefix_lengths[acl.resource_type]
                length = len(acl.resource_name)
                lengths[length] -= 1
                if not lengths[length]:
                    del lengths[length]


def _spellings(host: str) -> tuple[str, ...]:
    """The spellings of a host's address that ACLs may use."""
    if ":" not in host or host.startswith(UNIX_SCHEME):
        return (WILDCARD, host)
    import ipaddress

    address, percent, scope = host.partition("%")
    groups = ipaddress.IPv6Address(address).exploded.split(":")
    return (WILDCARD, host, ":".join(f"{int(group, 16):x}" for group in groups) + percent + scope)


def _of(
    by_principal: Mapping[str, list[Acl]], principal: str, hosts: tuple[str, ...]
) -> Iterator[Acl]:
    """The ACLs that apply to a host, and to a principal or all principals of its type."""
    everybody = f"{principal.partition(':')[0]}:{WILDCARD}"
    for who in (principal, everybody) if principal != everybody else (principal,):
        for acl in by_principal.get(who, ()):
            if acl.host in hosts:
                yield acl


def _is_covered(pattern: int, name: str, denied: set[tuple[int, str]]) -> bool:
    """Whether every name that a pattern allows is denied."""
    if (pattern, name) in denied:
        return True
    return any(
        (PatternType.PREFIXED, name[:length]) in denied for length in range(1, len(name) + 1)
    )

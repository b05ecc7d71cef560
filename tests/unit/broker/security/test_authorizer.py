"""Decisions on access by ACLs. The expected decisions are those of Apache Kafka 3.9's
StandardAuthorizer.
"""

from __future__ import annotations

import random
import tracemalloc
import uuid
from itertools import product
from pathlib import Path

import pytest
from helpers.core_host import CoreHost
from helpers.processes import measured_in_new_process

from barnabas.broker.audit import AuditRecord
from barnabas.broker.logs.metadata import ClusterMetadata
from barnabas.broker.security import authorizer as module
from barnabas.broker.security.acls import (
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from barnabas.broker.security.authorizer import Access, Authorizer
from barnabas.broker.security.stored import Acl
from barnabas.protocol.request_context import RequestContext
from barnabas.storage.disk import OsDisk

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
DENY, ALLOW = Permission.DENY, Permission.ALLOW
HERE, ELSEWHERE = "192.0.2.1", "192.0.2.2"
CONTEXT = RequestContext(1, 0, "client", "/" + HERE, connection_id=1, api_key=3)


def acl(
    operation: Operation = READ,
    name: str = "t",
    *,
    pattern: PatternType = LITERAL,
    permission: Permission = ALLOW,
    principal: str = "User:ann",
    host: str = "*",
    kind: ResourceType = TOPIC,
) -> Acl:
    return Acl(kind, name, pattern, principal, host, operation, permission)


class Rules:
    """An authorizer with the given ACLs."""

    def __init__(self, path: Path, *acls: Acl, everyone: bool = False) -> None:
        """Create an authorizer with these ACLs and the super user root."""
        self.audited: list[AuditRecord] = []
        self.metadata = ClusterMetadata(OsDisk(), str(path / f"{uuid.uuid4()}.journal"))
        self.authorizer = Authorizer(
            self.metadata, ["User:root"], everyone_if_no_acl=everyone, audit=None
        )
        self.add(*acls)

    def add(self, *acls: Acl) -> list[uuid.UUID]:
        ids = [uuid.uuid4() for _ in acls]
        self.authorizer.add(dict(zip(ids, acls, strict=True)))
        return ids

    def access(self, principal: str = "User:ann", host: str = HERE) -> Access:
        return self.authorizer.access(principal, f"/{host}", CONTEXT)

    def may(
        self, operation: Operation, name: str = "t", principal: str = "User:ann", host: str = HERE
    ) -> bool:
        """Whether the principal may carry out the operation on the topic."""
        return self.access(principal, host).may(operation, TOPIC, name)


def test_without_an_acl_access_is_denied_except_to_super_users(tmp_path: Path) -> None:
    rules = Rules(tmp_path)
    assert not rules.may(READ)
    assert rules.may(READ, principal="User:root")
    rules.add(acl(Operation.ALL, permission=DENY, principal="User:*"))
    assert rules.may(READ, principal="User:root")


def test_acls_match_literal_names_prefixes_or_all_names(tmp_path: Path) -> None:
    rules = Rules(
        tmp_path, acl(READ, "a"), acl(READ, "b.", pattern=PREFIXED), acl(WRITE, "*"),
        acl(READ, "*", pattern=PREFIXED),
    )  # fmt: skip
    names = ("a", "aa", "b.", "b.x", "b", "B.x", "*x")
    assert [rules.may(READ, name) for name in names] == [
        True, False, True, True, False, False, True,
    ]  # fmt: skip
    assert all(rules.may(WRITE, name) for name in names)


def test_a_denial_has_precedence_over_a_permission(tmp_path: Path) -> None:
    rules = Rules(tmp_path, acl(READ), acl(READ, "t", pattern=PREFIXED, permission=DENY))
    assert not rules.may(READ)
    rules = Rules(tmp_path, acl(READ), acl(Operation.ALL, "*", permission=DENY))
    assert not rules.may(READ)
    rules = Rules(tmp_path, acl(READ), acl(READ, principal="User:*", permission=DENY))
    assert not rules.may(READ)


@pytest.mark.parametrize("operation", [READ, WRITE, Operation.DELETE, Operation.ALTER])
def test_permission_to_read_or_change_implies_describe(
    tmp_path: Path, operation: Operation
) -> None:
    assert Rules(tmp_path, acl(operation)).may(DESCRIBE)
    denied = Rules(tmp_path, acl(operation), acl(DESCRIBE, permission=DENY))
    assert not denied.may(DESCRIBE) and denied.may(operation)
    denies_it = Rules(tmp_path, acl(DESCRIBE), acl(operation, permission=DENY))
    assert denies_it.may(DESCRIBE), "a denial implies nothing"


def test_changing_settings_implies_describing_them(tmp_path: Path) -> None:
    rules = Rules(tmp_path, acl(Operation.ALTER_CONFIGS))
    assert rules.may(Operation.DESCRIBE_CONFIGS)
    assert not rules.may(DESCRIBE)


def test_acls_apply_to_a_host_and_to_all_users(tmp_path: Path) -> None:
    rules = Rules(tmp_path, acl(READ, host=ELSEWHERE))
    assert not rules.may(READ) and rules.may(READ, host=ELSEWHERE)
    rules.add(acl(READ, principal="User:*"))
    assert rules.may(READ) and rules.may(READ, principal="User:ben")
    assert not rules.may(READ, principal="Group:ben"), "everybody of another type"


def test_an_ipv6_address_is_denied_in_apache_kafkas_notation_too(tmp_path: Path) -> None:
    everywhere, denied = acl(READ), acl(READ, host="2001:db8:0:0:0:0:0:a", permission=DENY)
    rules = Rules(tmp_path, everywhere, denied)
    assert not rules.may(READ, host="2001:db8::a")
    assert rules.may(READ, host="2001:db8::b")
    assert rules.may(READ, host="unix:///run/broker.sock")
    assert not Rules(tmp_path, denied._replace(permission_type=ALLOW)).may(READ, host="fe80::1%lo")


def test_with_the_setting_a_resource_without_acls_is_open_to_all(tmp_path: Path) -> None:
    rules = Rules(tmp_path, acl(READ, "t", principal="User:ben"), everyone=True)
    assert rules.may(WRITE, "u")
    assert not rules.may(READ, "t"), "somebody's ACL is about it"


def test_changed_acls_apply_immediately_to_existing_accesses(tmp_path: Path) -> None:
    rules = Rules(tmp_path)
    access = rules.access()
    assert not access.may(READ, TOPIC, "t")
    (allowed, _) = rules.add(acl(READ), acl(WRITE))
    assert access.may(READ, TOPIC, "t")
    rules.authorizer.remove([allowed])
    assert not access.may(READ, TOPIC, "t") and access.may(WRITE, TOPIC, "t")


def test_removed_acls_do_not_apply_after_the_cache_was_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_REMEMBERED", 5)
    rules = Rules(tmp_path, acl(READ, "t", pattern=PREFIXED))
    access = rules.access()
    assert all(access.may(READ, TOPIC, f"t{number}") for number in range(20))
    rules.authorizer.remove(list(rules.metadata.acls))
    assert not any(access.may(READ, TOPIC, f"t{number}") for number in range(20))


def test_decisions_dropped_by_a_change_do_not_count_for_the_cache_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If dropped decisions still counted, the caches of all users would be cleared after some
    changes, even while they are nearly empty. `keeper` shows that the cache is still in use.
    """
    monkeypatch.setattr(module, "MOST_REMEMBERED", 10)
    rules = Rules(tmp_path, acl(READ, "t", pattern=PREFIXED))
    access = rules.access()
    for number in range(5):
        assert all(access.may(READ, TOPIC, f"t{name}") for name in range(6))
        rules.add(acl(WRITE, f"u{number}"))
    assert access.keeper is rules.authorizer


def test_with_an_audit_log_removed_acls_do_not_apply_after_the_cache_was_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A waiting request keeps its `Access` while the authorizer's full cache is emptied. After the
    ACLs are removed, this `Access` must refuse as well.
    """
    monkeypatch.setattr(module, "MOST_REMEMBERED", 5)
    metadata = ClusterMetadata(OsDisk(), str(tmp_path / "journal"))
    authorizer = Authorizer(metadata, audit=lambda record: None)
    authorizer.add({uuid.uuid4(): acl(READ)})
    parked = authorizer.access("User:ann", HERE, CONTEXT)
    assert parked.may(READ, TOPIC, "t")
    for number in range(20):
        authorizer.access("User:bob", HERE, CONTEXT).may(READ, TOPIC, f"t{number}")
    authorizer.remove(list(metadata.acls))
    assert not parked.may(READ, TOPIC, "t")


def test_a_connection_keeps_its_access_until_the_caches_are_cleared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection keeps its cache between requests. When all caches are cleared because they are
    full, the next request creates a new one, which is notified of changes.
    """
    host = CoreHost(tmp_path, authorizer_class_name="StandardAuthorizer")
    host.connect(1)
    broker = host.broker
    assert broker.routes.parts.access.authorizer is not None
    context = CONTEXT.replace(connection_id=1)
    first = broker.routes.parts.access.of(context)
    assert first is not None and first is broker.routes.parts.access.of(context)
    monkeypatch.setattr(module, "MOST_REMEMBERED", 5)
    for number in range(20):
        broker.routes.parts.access.authorizer.access("User:bob", HERE, CONTEXT).may(
            READ, TOPIC, f"t{number}"
        )
    second = broker.routes.parts.access.of(context)
    assert second is not None and second is not first
    assert not second.may(READ, TOPIC, "t")
    broker.routes.parts.access.authorizer.add({uuid.uuid4(): acl(READ, principal=second.principal)})
    assert second.may(READ, TOPIC, "t") and first.may(READ, TOPIC, "t")
    assert second.readable == {"t"} and not first.readable, "it is not notified of changes"
    broker.on_identified(1, "User:ben")
    third = broker.routes.parts.access.of(context)
    assert third is not None and third.principal == "User:ben"
    host.close()


def bytes_after_very_long_names(directory: str) -> int:
    """The memory that decisions on a hundred names of 32,000 characters leave."""
    metadata = ClusterMetadata(OsDisk(), f"{directory}/journal")
    authorizer = Authorizer(metadata, audit=lambda record: None)
    access = authorizer.access("User:ann", HERE, CONTEXT)
    tracemalloc.start()
    for number in range(100):
        assert not access.may(DESCRIBE, GROUP, f"{number}".ljust(32_000))
    return tracemalloc.get_traced_memory()[0]


def test_decisions_on_very_long_names_are_not_cached(tmp_path: Path) -> None:
    assert measured_in_new_process(bytes_after_very_long_names, str(tmp_path)) < 100_000


def test_acls_apply_after_a_restart(tmp_path: Path) -> None:
    rules = Rules(tmp_path, acl(READ), acl(WRITE, "u", pattern=PREFIXED))
    path = rules.metadata._path
    rules.metadata.close()
    again = Authorizer(ClusterMetadata(OsDisk(), path))
    assert again.decide("User:ann", HERE, WRITE, TOPIC, "u1")
    assert not again.decide("User:ann", HERE, READ, TOPIC, "u1")


@pytest.mark.parametrize(
    ("acls", "expected"),
    [
        ((), False),
        ((acl(WRITE, "some"),), True),
        ((acl(WRITE, "some"), acl(WRITE, "some", permission=DENY)), False),
        ((acl(WRITE, "some"), acl(WRITE, "so", pattern=PREFIXED, permission=DENY)), False),
        ((acl(WRITE, "s", pattern=PREFIXED), acl(WRITE, "some", permission=DENY)), True),
        ((acl(WRITE, "*"), acl(WRITE, "some", permission=DENY)), True),
        ((acl(WRITE, "*"), acl(WRITE, "*", permission=DENY)), False),
        ((acl(Operation.ALL, "some"),), True),
        ((acl(READ, "*"),), False),
        ((acl(WRITE, "some", host=ELSEWHERE),), False),
        ((acl(WRITE, "some", principal="User:*"),), True),
        ((acl(WRITE, "some", kind=GROUP),), False),
    ],
)
def test_may_any_tells_whether_some_resource_may_be_written(
    tmp_path: Path, acls: tuple[Acl, ...], expected: bool
) -> None:
    assert Rules(tmp_path, *acls).access().may_any(WRITE, TOPIC) is expected


def test_some_resource_may_be_written_where_one_that_an_acl_names_may(tmp_path: Path) -> None:
    """The rule is tried on one name for each ACL: the name in the ACL, or a name that begins with
    it and that no other ACL names.
    """
    drawn, rules = random.Random(7), Rules(tmp_path)
    outcomes = set()
    for _ in range(120):
        acls = [
            acl(
                drawn.choice((WRITE, WRITE, READ, Operation.ALL)),
                drawn.choice(("a", "ab", "abc", "b", "*")),
                pattern=drawn.choice((LITERAL, PREFIXED)),
                permission=drawn.choice((ALLOW, DENY)),
                principal=drawn.choice(("User:ann", "User:ann", "User:*", "User:ben")),
                host=drawn.choice(("*", "*", HERE, ELSEWHERE)),
            )
            for _ in range(drawn.randint(1, 5))
        ]
        ids = rules.add(*acls)
        names = ["~", *(one.resource_name for one in acls)]
        names += [f"{one.resource_name}~" for one in acls if one.pattern_type == PREFIXED]
        expected = any(rules.may(WRITE, name) for name in names if name != "*")
        assert rules.access().may_any(WRITE, TOPIC) is expected, acls
        outcomes.add((expected, len(acls)))
        rules.authorizer.remove(ids)
    assert len(outcomes) == 10


def test_may_any_follows_changes_of_acls(tmp_path: Path) -> None:
    rules = Rules(tmp_path)
    access = rules.access()
    assert not access.may_any(WRITE, TOPIC)
    ids = rules.add(acl(WRITE, "some"))
    assert access.may_any(WRITE, TOPIC) and not access.may(WRITE, TOPIC, "")
    rules.authorizer.remove(ids)
    assert not access.may_any(WRITE, TOPIC)


def test_authorized_operations_are_given_as_bits(tmp_path: Path) -> None:
    rules = Rules(tmp_path, acl(READ))
    bits = 1 << READ | 1 << WRITE | 1 << DESCRIBE
    assert rules.access().operations(bits, TOPIC, "t") == 1 << READ | 1 << DESCRIBE


def test_many_acls_are_decided_as_by_kafkas_rule_without_an_index(tmp_path: Path) -> None:
    """The authorizer's index is compared with Kafka's rule in its simplest form."""
    chance = random.Random(4)
    names = ("a", "ab", "abc", "b", "*")
    principals = ("User:ann", "User:ben", "User:*")
    operations = (READ, WRITE, DESCRIBE, Operation.ALL)
    acls = {
        acl(
            chance.choice(operations), chance.choice(names),
            pattern=chance.choice((LITERAL, PREFIXED)), permission=chance.choice((DENY, ALLOW)),
            principal=chance.choice(principals), host=chance.choice(("*", HERE, ELSEWHERE)),
        )
        for _ in range(40)
    }  # fmt: skip
    for count in range(len(acls)):
        some = sorted(acls)[: count + 1]
        rules = Rules(tmp_path, *some)
        for name in ("a", "ab", "abcd", "b", "c"):
            for operation in (READ, DESCRIBE):
                asked = "User:ann", HERE, operation, TOPIC, name
                assert rules.authorizer.decide(*asked) is _plainly(some, operation, name), asked


def _plainly(acls: list[Acl], operation: Operation, name: str) -> bool:
    """Apply Kafka's rule without an index. Gives: whether ann may carry out the operation on the
    topic.
    """
    matching = [
        one
        for one in acls
        if one.principal in ("User:ann", "User:*")
        and one.host in ("*", HERE)
        and (
            one.resource_name in (name, "*")
            if one.pattern_type == LITERAL
            else name.startswith(one.resource_name)
        )
    ]
    implying = {operation, Operation.ALL}
    if any(one.permission_type == DENY and one.operation in implying for one in matching):
        return False
    if operation == DESCRIBE:
        implying |= {READ, WRITE, Operation.DELETE, Operation.ALTER}
    return any(one.permission_type == ALLOW and one.operation in implying for one in matching)


def test_the_audit_log_has_reads_once_and_other_operations_each_time(tmp_path: Path) -> None:
    audited: list[AuditRecord] = []
    metadata = ClusterMetadata(OsDisk(), str(tmp_path / "journal"))
    authorizer = Authorizer(metadata, audit=audited.append)
    authorizer.add({uuid.uuid4(): acl(READ)})
    for _ in range(2):
        access = authorizer.access("User:ann", f"/{HERE}", CONTEXT)
        access.may(READ, TOPIC, "t")
        access.may(Operation.DELETE, TOPIC, "t")
        access.sees(DESCRIBE, TOPIC, "hidden")
    read = AuditRecord("User:ann", HERE, "client", 3, "READ", "TOPIC", "t", True)
    deleted = read._replace(operation="DELETE", is_allowed=False)
    assert audited == [read, deleted, deleted]
    authorizer.remove(list(metadata.acls))
    authorizer.access("User:ann", f"/{HERE}", CONTEXT).may(READ, TOPIC, "t")
    assert audited[3:] == [read._replace(is_allowed=False)]


def test_each_connection_is_told_of_until_an_acl_changes(tmp_path: Path) -> None:
    """The audit log must show who has read what, so a decision is logged for each user, address and
    connection.
    """
    audited: list[AuditRecord] = []
    metadata = ClusterMetadata(OsDisk(), str(tmp_path / "journal"))
    authorizer = Authorizer(metadata, audit=audited.append)
    ids = [uuid.uuid4() for _ in range(3)]
    for acl_id in ids:
        authorizer.add({acl_id: acl(READ, principal="User:*")})
        for operation in (READ, WRITE, DESCRIBE, Operation.DELETE):
            expected = [1, 1] if operation is Operation.DELETE else [1, 0]
            for user, host, connection in product("ab", (HERE, ELSEWHERE), (1, 2)):
                context = CONTEXT.replace(connection_id=connection)
                counts = []
                for _ in range(2):
                    before = len(audited)
                    access = authorizer.access(f"User:{user}", f"/{host}", context)
                    access.may(operation, TOPIC, "t")
                    counts.append(len(audited) - before)
                assert counts == expected, (user, host, connection, operation)


def test_an_authorizer_that_is_off_allows_and_audits_everything(tmp_path: Path) -> None:
    audited: list[AuditRecord] = []
    metadata = ClusterMetadata(OsDisk(), str(tmp_path / "journal"))
    authorizer = Authorizer(metadata, is_on=False, audit=audited.append)
    assert authorizer.access("User:ann", HERE, CONTEXT).may(Operation.DELETE, TOPIC, "t")
    assert [record.is_allowed for record in audited] == [True]


def test_a_filter_without_conditions_finds_all_acls() -> None:
    everything = AclFilter(
        ResourceType.ANY, None, PatternType.ANY, None, None, Operation.ANY, Permission.ANY
    )
    assert everything.finds(acl())
    assert not everything._replace(operation=WRITE).finds(acl(READ))


def test_a_filter_that_matches_a_name_finds_what_applies_to_the_name(tmp_path: Path) -> None:
    names = ("a", "ab", "abc", "b", "*")
    for name, pattern in product(names, (LITERAL, PREFIXED)):
        one, rules = acl(READ, name, pattern=pattern), Rules(tmp_path)
        ids = rules.add(one)
        for wanted in names[:-1]:
            match = AclFilter(
                TOPIC, wanted, PatternType.MATCH, None, None, Operation.ANY, Permission.ANY
            )
            assert match.finds(one) is rules.may(READ, wanted), (name, pattern, wanted)
            exact = match._replace(pattern_type=pattern)
            assert exact.finds(one) is (wanted == name), (name, pattern, wanted)
        rules.authorizer.remove(ids)

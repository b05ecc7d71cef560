"""The terms of access control lists, with the protocol's numbers, and filters of ACLs.

Source: KIP-11 (operations, what they imply), KIP-140 (numbers), KIP-290 (patterns), KIP-679.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from barnabas.broker.security.stored import Acl
from barnabas.protocol.errors import Code

WILDCARD = "*"
CLUSTER_NAME = "kafka-cluster"


class _Number(IntEnum):
    """A number of the protocol. It hashes as an int, since an Enum's own hash is a Python function,
    which makes it a slow key of dictionaries.
    """

    __hash__ = int.__hash__


class ResourceType(_Number):
    """The type of resource that an ACL is about."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(_Number):
    """How an ACL's name is compared with the names of resources. ANY and MATCH are only for
    filters: MATCH finds all ACLs that apply to a name.
    """

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(_Number):
    """An operation that an ACL allows or denies."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(_Number):
    """Whether an ACL allows or denies the operation."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


IMPLIED_BY: dict[int, frozenset[int]] = {
    Operation.DESCRIBE: frozenset(
        (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER)
    ),
    Operation.DESCRIBE_CONFIGS: frozenset((Operation.ALTER_CONFIGS,)),
}
"""For each operation, the operations whose ALLOW implies it; a DENY implies no other operation."""

FAILED = {
    ResourceType.TOPIC: Code.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: Code.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: Code.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
"""The error codes for missing rights."""


class AclFilter(NamedTuple):
    """A filter of ACLs. A field that is None or ANY matches every value."""

    resource_type: int
    resource_name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission_type: int

    def finds(self, acl: Acl) -> bool:
        """Whether the filter matches the ACL."""
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self._finds_name(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission_type in (Permission.ANY, acl.permission_type)
        )

    def _finds_name(self, acl: Acl) -> bool:
        """Whether the filter's pattern type and name match the ACL's. The type MATCH finds every
        ACL that applies to a resource of that name: a literal one, a prefix of the name, and the
        wildcard.
        """
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
            return False
        if self.resource_name in (None, acl.resource_name):
            return True
        if self.pattern_type != PatternType.MATCH:
            return False
        assert self.resource_name is not None
        if acl.pattern_type == PatternType.PREFIXED:
            return self.resource_name.startswith(acl.resource_name)
        return acl.resource_name == WILDCARD

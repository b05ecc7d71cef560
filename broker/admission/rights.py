"""Short names of operations and resources, for the rules in the rows of APIs."""

from __future__ import annotations

from barnabas.broker.security.acls import Operation, ResourceType

CLUSTER, GROUP, TOPIC = ResourceType.CLUSTER, ResourceType.GROUP, ResourceType.TOPIC
TRANSACTIONAL_ID, USER = ResourceType.TRANSACTIONAL_ID, ResourceType.USER
ALTER, ALTER_CONFIGS, CLUSTER_ACTION = (
    Operation.ALTER, Operation.ALTER_CONFIGS, Operation.CLUSTER_ACTION,
)  # fmt: skip
CREATE, CREATE_TOKENS, DELETE, DESCRIBE, DESCRIBE_CONFIGS = (
    Operation.CREATE, Operation.CREATE_TOKENS, Operation.DELETE, Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
)  # fmt: skip
IDEMPOTENT_WRITE, READ, TWO_PHASE_COMMIT, WRITE = (
    Operation.IDEMPOTENT_WRITE, Operation.READ, Operation.TWO_PHASE_COMMIT, Operation.WRITE,
)  # fmt: skip

"""The names of the two internal topics, which store the state of the coordinators."""

OFFSETS_TOPIC = "__consumer_offsets"
"""Stores groups and their committed offsets."""

TRANSACTIONS_TOPIC = "__transaction_state"
"""Stores transactional ids."""

SHARE_STATE_TOPIC = "__share_group_state"
"""Stores the states of share partitions (KIP-932)."""

INTERNAL_TOPICS = (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)

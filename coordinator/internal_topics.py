"""The names of the two internal topics, which store the state of the coordinators."""

OFFSETS_TOPIC = "__consumer_offsets"
"""Stores groups and their committed offsets."""

TRANSACTIONS_TOPIC = "__transaction_state"
"""Stores transactional ids."""

INTERNAL_TOPICS = (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)

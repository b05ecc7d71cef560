"""The names of the two internal topics, in which the coordinators keep their state."""

OFFSETS_TOPIC = "__consumer_offsets"
"""Where the group coordinator keeps groups and the offsets that they committed."""

TRANSACTIONS_TOPIC = "__transaction_state"
"""Where the transaction coordinator keeps transactional ids."""

INTERNAL_TOPICS = (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)

"""A Kafka client of our own messages: what all clients in this repository share. README.md has the
map, the rules and the decisions.
"""

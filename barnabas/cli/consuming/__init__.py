"""The input and output of `barnabas consume`: reading partitions up to their ends, search patterns,
and output templates.
"""

"""The input and output of `barnabas consume`: partitions up to their ends, patterns, templates."""

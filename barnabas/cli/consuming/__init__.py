"""What `barnabas consume` reads and prints: partitions up to their ends, patterns, templates."""

"""A standby: a second process with a byte-for-byte copy of the data directory."""

"""A standby: a second process that holds the same data directory, byte for byte."""

"""Schemas of `consume` and `produce`: their options, and how the schema of a record is chosen."""

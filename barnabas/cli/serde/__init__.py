"""Schemas of `consume` and `produce`: their options, and the choice of the schema of a record."""

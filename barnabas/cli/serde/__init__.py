"""Schemas of `consume` and `produce`: what the options say, and which schema a record has."""

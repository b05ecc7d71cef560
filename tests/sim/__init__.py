"""The seeded simulator of the whole broker: `python -m sim --help`; README.md has more."""

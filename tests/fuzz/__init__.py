"""Mutated requests against the real core: `PYTHONPATH=tests:. python -m fuzz`."""

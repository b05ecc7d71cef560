"""Mutated requests against the real core: `PYTHONPATH=tests/tools:tests:. python -m fuzz`."""

"""A storm of mutated requests against the real core: `PYTHONPATH=tests:. python -m fuzz`."""

"""With --metrics-port alone: what requests, flushes and the loop cost, and how the broker stands.

Measured beside the core, which knows nothing of it, and shown as Prometheus reads it.
"""

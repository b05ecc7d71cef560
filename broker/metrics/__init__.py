"""With --metrics-port only: the time of requests, flushes and the loop, and the broker's state.

Measured around the core, which does not know of it, and shown in Prometheus' text format.
"""

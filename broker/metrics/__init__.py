"""With --metrics-port only: the time of requests, flushes and the loop, and the broker's state.

Measurements are taken around the core, which has no code for them, and shown in Prometheus' text
format.
"""

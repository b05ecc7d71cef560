"""Metrics of requests, flushes, the loop and the broker's state. They exist only with
--metrics-port.

Measurements are taken around the core, which has no code for them. They are shown in Prometheus'
text format.
"""

"""Metrics of requests, flushes, the loop and the broker's state, with --metrics-port only.

Measurements are taken around the core, which has no code for them, and shown in Prometheus' text
format.
"""

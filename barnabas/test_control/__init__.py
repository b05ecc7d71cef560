"""The additions of `barnabas start --test-control PORT`, for tests of clients: faults, a clock that
a test can move, and a journal of requests.

Nothing in this package is loaded without that option.
"""

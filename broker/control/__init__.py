"""The additions of `barnabas start --test-control`, for tests of clients: faults, a clock that can
be moved, a journal of requests.

Nothing here is loaded without that option.
"""

"""What `barnabas start --test-control` adds: faults, a clock that can be moved, and a journal of
requests, for tests of clients.

Nothing here is loaded without that option.
"""

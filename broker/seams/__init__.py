"""The seams: all that an annex (the console, metrics, test control, replication) uses of a running
broker, each on one page.

| seam | an annex uses it to |
|---|---|
| `Gate`, `gate.py` | hold back or change requests and responses, between connections and the core |
| `Observer`, `observer.py` | measure requests, responses, flushes and connections |
| `BrokerState`, `state.py`, with `snapshots.py` | read the state, between two requests |
| `Nodes`, `nodes.py` | stop brokers of the process, move leaders, hand in connections |
| `Disk`, `barnabas.storage.disk` | see or change each write, or lose it |

`host.py` has the server as these five pass it to an annex. The core does not import this room, and
an annex imports no other room of the broker but the values in `settings/` and `security/`.
"""

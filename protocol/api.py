"""The wire facts of an API: its key, its name, its versions, and how large its requests may be.

The rows are at the ends of the modules of `broker/handlers/`, one module for each family of
requests. `make protocol` collects them in `api_table.py`, so that the table can be read without the
broker.
"""

from __future__ import annotations

from typing import NamedTuple

NEVER = 1 << 15
ROWS = 2 << 20 >> 4  # the number of structs of 16 bytes in 2 MiB
CHANGES = 25_000  # enough for 10,000 changes and for the arrays that each of them contains
FEW = 1_000


class Api(NamedTuple):
    """One API.

    `min_version` and `max_version` are the versions that ApiVersions returns and the broker
    accepts: from the oldest that Apache Kafka 3.9 supports to the newest of 4.3. `flexible_from` is
    the first version whose request header is v2 (KIP-482).

    `most_elements` limits the total number of elements in all arrays of a request, at any depth. A
    number, which has 4 bytes, counts as a quarter of an element. The limit is for a request of 2
    MiB, and grows with `barnabas.request.max.bytes`. It allows what clients send in 2 MiB: structs
    of 16 bytes, or partition numbers. Requests that change metadata have a lower limit, as Apache
    Kafka accepts at most 10,000 metadata records at once. The limit is lowest for requests whose
    arrays name protocols, features or components.

    `family` is the module of `broker/handlers/` with the row.
    """

    key: int
    name: str
    min_version: int
    max_version: int
    flexible_from: int
    most_elements: int = ROWS
    family: str = ""

"""`python -m bench [--scale X] [NAME …]`: measure broker CPU and wall time, and print them next to
figures of Apache Kafka 3.9. `python -m bench beside HOST:PORT [--pid PID]`: the same work on
Barnabas and another broker, in turns.
"""

from __future__ import annotations

import argparse
import importlib
import sys

from bench.common import Row, print_table

NAMES = (
    "start", "produce", "consume", "single_records", "transactions", "instructions",
    "consumer_groups", "spark",
)  # fmt: skip


def main() -> None:
    """Run the named benchmarks, one after the other; `beside` has arguments of its own."""
    if sys.argv[1:2] == ["beside"]:
        from bench import beside

        beside.main(sys.argv[2:])
        return
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", default=list(NAMES), help=f"of {', '.join(NAMES)}")
    parser.add_argument(
        "--scale", type=float, default=1.0, help="fraction of the full amount of work"
    )
    options = parser.parse_args()
    rows: list[Row] = []
    for name in options.names:
        print(f"… {name}", flush=True)
        rows += importlib.import_module(f"bench.{name}").run(options.scale)
    print_table(rows)


if __name__ == "__main__":
    main()

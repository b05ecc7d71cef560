"""`python -m barnabas.spark_connector.numba_loops` compiles the loops ahead of time; the code is in
arrow/numba_loops.py.
"""

from __future__ import annotations

from barnabas.spark_connector.arrow.numba_loops import main

if __name__ == "__main__":
    main()

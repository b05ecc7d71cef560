"""Runs the command `barnabas` as `python -m barnabas`, for systems where Python's scripts are not
on the path.
"""

import sys

from barnabas.daemon.main import main

if __name__ == "__main__":
    sys.exit(main())

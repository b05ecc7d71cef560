"""`python -m barnabas` runs the command `barnabas`, for a Python whose scripts are not on the path.
"""

import sys

from barnabas.broker.rim.daemon.main import main

if __name__ == "__main__":
    sys.exit(main())

"""`make test-lowest`: installs the lowest allowed versions of all libraries, and runs the tests of
the code that uses libraries.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv

from lowest import ROOT, pins, project

DIRECTORY = ROOT / "build" / "lowest"
TESTS = (
    "unit/test_broker_security_*.py",
    "unit/broker/rim/test_tls.py",
    "unit/barnabas/test_certificates.py",
    "unit/test_protocol_*.py",
    "unit/barnabas/replication/test_replication.py",
    "unit/barnabas/replication/test_link.py",
    "unit/barnabas/metrics/test_metrics.py",
    "unit/barnabas/daemon/test_main.py",
    "unit/test_cli_*.py",
    "e2e/test_cli_records.py",
    "e2e/test_cli_schemas.py",
    "e2e/test_oauth.py",
)


def main() -> int:
    """Install the lowest versions, run the tests, and return pytest's exit code."""
    wanted = pins(project())
    print("with", *wanted, flush=True)
    if not (DIRECTORY / "bin" / "python").exists():
        venv.create(DIRECTORY, with_pip=True)
    python = str(DIRECTORY / "bin" / "python")
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *wanted], check=True)
    files = sorted(str(path) for pattern in TESTS for path in (ROOT / "tests").glob(pattern))
    # With this path, barnabas is imported from this checkout.
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [python, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", *files]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())

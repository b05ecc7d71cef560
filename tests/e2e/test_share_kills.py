"""Real share consumers and the broker are killed. No record is lost, none is finished twice, and at
the end the group has finished all records.

Kafka's own client is in `.clients/streams`, and franz-go (for Go) is in `.clients/go-share`.
`make clients` installs them if it can.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from torture import sharing

pytestmark = [pytest.mark.e2e, pytest.mark.deep]

ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = ROOT / ".clients" / "streams"
PROGRAM = ROOT / "tests" / "clients" / "ShareWorker.java"
GO_PROGRAM = ROOT / ".clients" / "go-share" / "share_worker"


@pytest.fixture(scope="module")
def class_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The class path of the compiled program and Kafka's client."""
    if shutil.which("javac") is None or not any(LIBRARIES.glob("kafka-clients-*.jar")):
        pytest.skip(
            "Kafka's 4.3 client is not on this machine (`make clients` fetches it if it can)"
        )
    folder = tmp_path_factory.mktemp("classes")
    subprocess.run(
        ["javac", "-d", str(folder), "-cp", f"{LIBRARIES}/*", str(PROGRAM)],
        check=True, capture_output=True, timeout=180,
    )  # fmt: skip
    return f"{folder}:{LIBRARIES}/*"


def check(report: sharing.Report) -> None:
    """Check that members and the broker were killed, and that all records were finished once."""
    assert report.kills and report.broker_kills
    assert report.missing == [], "no member has had them"
    assert report.twice == [], "an acknowledgement that was answered is lost"
    assert report.left == 0 and report.records >= 400
    assert report.finished > report.records // 2, "most were answered"


def test_every_record_is_accepted_over_kills_of_members_and_the_broker() -> None:
    check(sharing.run(8, seed=7))


def test_javas_members_finish_every_record_over_kills_of_members_and_the_broker(
    class_path: str,
) -> None:
    report = sharing.run(24, seed=7, patience_s=180, member=sharing.java(class_path))
    check(report)
    assert report.renewed


def test_gos_members_finish_every_record_over_kills_of_members_and_the_broker() -> None:
    if not os.access(GO_PROGRAM, os.X_OK):
        pytest.skip("franz-go's share consumer is not on this machine (`make clients` fetches it)")
    report = sharing.run(12, seed=7, patience_s=120, member=[str(GO_PROGRAM)])
    check(report)
    assert report.renewed

"""Stock share consumers and the broker are killed: no record is lost, and all are accepted."""

from __future__ import annotations

import pytest
from torture import sharing

pytestmark = pytest.mark.e2e


def test_every_record_is_accepted_over_kills_of_members_and_the_broker() -> None:
    report = sharing.run(8, seed=7)
    assert report.kills and report.broker_kills
    assert report.missing == [], "no member has had them"
    assert report.left == 0 and report.records >= 400
    assert report.accepted > report.records // 2, "most were answered"

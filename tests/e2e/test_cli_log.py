"""`barnabas log` on the data directory of a running, a stopped and a damaged broker."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest
from helpers.cli_commands import CommandLine
from helpers.e2e_clients import producer, send_all, transact

from barnabas.local_broker import LocalBroker
from barnabas.storage.files.data_files import DataFile, kind_of

pytestmark = pytest.mark.e2e


@pytest.fixture
def barnabas(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    """The command line."""
    return CommandLine(monkeypatch, capsys)


def test_log_verify_finds_no_fault_while_the_broker_writes_after_a_kill_or_after_a_stop(
    barnabas: CommandLine, tmp_path: Path
) -> None:
    """`barnabas.ok` fails if `log verify` finds a fault.

    Several segments and an open transaction are written. At the end one file of each kind is
    damaged, and the damage must be found.
    """
    settings = {"log.segment.bytes": 100_000, "log.index.interval.bytes": 500}
    data_dir = tmp_path / "data"
    with LocalBroker(data_dir, settings=settings, topics={"orders": 2}) as broker:
        servers, is_over = broker.bootstrap_servers, threading.Event()
        has_written = threading.Event()

        def write() -> None:
            client = producer(servers, transactional_id="writer")
            client.init_transactions(30)
            number = 0
            while number < 6 or not is_over.is_set():
                number += 1
                values = [b"%d" % number * 50 for _ in range(50)]
                transact(client, "orders", values, commit=number % 3 != 0)
                has_written.set()

        writer = threading.Thread(target=write)
        writer.start()
        try:
            assert has_written.wait(60)
            for _ in range(4):
                answer = barnabas.ok("log", "verify", str(data_dir), "--json").data
        finally:
            is_over.set()
            writer.join()
        assert answer["partitions"] >= 2
        for _ in range(10):
            send_all(servers, "orders", [b"x" * 1000 for _ in range(30)])
        client = producer(servers, transactional_id="open")
        client.init_transactions(30)
        client.begin_transaction()
        client.produce("orders", b"open", partition=1)
        client.flush(30)
        running = barnabas.ok("log", "verify", str(data_dir), "--json").data
        assert [row["partition"] for row in running["open_transactions"]] == ["orders-1"]
        broker.kill()
        after_kill = barnabas.ok("log", "verify", str(data_dir), "--json").data
        assert after_kill["records"] >= running["records"]
        broker.start()
        broker.stop()
    assert barnabas.ok("log", "verify", str(data_dir)).out.startswith("orders-1: producer")
    assert len(list((data_dir / "orders-0").glob("*.log"))) > 1, "segments were rolled"
    _damage_and_find(barnabas, data_dir)


def _damage_and_find(barnabas: CommandLine, data_dir: Path) -> None:
    """Change one byte in a file of each kind that a partition has, and in the journal, and check
    that `verify` reports a fault with the file's name, and that `dump` prints the file.
    """
    largest: dict[DataFile | None, Path] = {}
    for path in sorted((data_dir / "orders-0").iterdir(), key=lambda path: path.stat().st_size):
        largest[kind_of(path.relative_to(data_dir).as_posix())] = path
    assert None not in largest and len(largest) >= 8, "a file of each kind"
    for path in (*largest.values(), data_dir / "barnabas-metadata.journal"):
        barnabas.ok("log", "dump", str(path))
        data = path.read_bytes()
        assert data, path
        at = len(data) // 2
        path.write_bytes(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])
        run = barnabas("log", "verify", str(data_dir), "--json")
        assert run.code == 3, path
        assert any(Path(fault["file"]) == path for fault in run.data["faults"]), (path, run.data)
        path.write_bytes(data)
    barnabas.ok("log", "verify", str(data_dir))


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_command_as_it_is_installed() -> None:
    """The console script runs in another process, with a closed pipe, and no broker is started."""
    command = [
        sys.executable,
        "-P",
        "-c",
        "import sys; from barnabas.daemon.main import main; sys.exit(main())",
    ]
    helped = _run([*command, "--help"])
    assert (helped.returncode, "why-stuck" in helped.stdout) == (0, True)
    loaded = "import sys; from barnabas.daemon.main import main; "
    loaded += "main(['settings', 'num.partitions']); "
    loaded += "sys.exit(sum(name in sys.modules for name in ('click', 'rich', 'kafka')))"
    settings = _run([sys.executable, "-P", "-c", loaded])
    assert settings.returncode == 0, "`settings` imports nothing of the extra"

"""No port comes back soon, and the processes of pytest-xdist have no port in common."""

from __future__ import annotations

import socket

import pytest

from barnabas.free_ports import new_ports


def test_no_port_comes_back_soon() -> None:
    ports = [port for _ in range(300) for port in new_ports(3)]
    assert len(set(ports)) == 900


@pytest.mark.parametrize("count", [1, 2, 5])
def test_processes_of_xdist_have_no_port_in_common(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", str(count))
    seen: list[set[int]] = []
    for index in range(count):
        monkeypatch.setenv("PYTEST_XDIST_WORKER", f"gw{index}")
        seen.append({new_ports(1)[0] // 2 % count for _ in range(20)})
    assert seen == [{index} for index in range(count)]


def test_a_port_is_free() -> None:
    (port,) = new_ports(1)
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", port))


def test_a_worker_that_is_not_among_its_processes_takes_any_port(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw7")
    monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", "2")
    assert len(new_ports(2)) == 2

"""A lease in an etcd with TLS, and with a user who has a password. One of the lease's endpoints is
down.
"""

from __future__ import annotations

import json
import shutil
import ssl
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from helpers.e2e_clients import eventually, send_all, values_of
from helpers.pair import PairNode, etcd
from helpers.ports import free_port

from barnabas.certificates import make_certificates

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(shutil.which("etcd") is None, reason="etcd is not installed"),
]
PASSWORD = "of etcd"


def enable_users(address: str, context: ssl.SSLContext) -> None:
    """Enable authentication in etcd, with the user `root`."""

    def call(what: str, body: dict[str, Any]) -> None:
        request = urllib.request.Request(
            f"https://{address}/v3/auth/{what}", json.dumps(body).encode()
        )
        urllib.request.urlopen(request, context=context, timeout=10).close()

    call("user/add", {"name": "root", "password": PASSWORD})
    call("role/add", {"name": "root"})
    call("user/grant", {"user": "root", "role": "root"})
    call("enable", {})


def is_up(address: str, context: ssl.SSLContext) -> bool:
    """Whether etcd answers."""
    try:
        urllib.request.urlopen(f"https://{address}/health", context=context, timeout=2).close()
    except OSError:
        return False
    return True


def test_a_node_leads_with_a_lease_in_an_etcd_with_tls_and_a_user(tmp_path: Path) -> None:
    """The first endpoint of the lease is down, so the node uses the second one. A node with a wrong
    password does not lead.
    """
    certificates = tmp_path / "certificates"
    make_certificates(certificates)
    authority, broker = certificates / "ca.pem", certificates / "broker.pem"
    context = ssl.create_default_context(cafile=str(authority))
    with etcd(tmp_path / "etcd", broker) as (address, _):
        eventually(lambda: is_up(address, context), what="etcd")
        enable_users(address, context)
        gone = free_port()
        settings = {
            "barnabas.lease.url": f"etcds://127.0.0.1:{gone},{address}/pair",
            "barnabas.lease.ca.file": authority,
            "barnabas.lease.user": "root",
            "barnabas.lease.password": PASSWORD,
        }
        wrong = PairNode(2, tmp_path, "", {**settings, "barnabas.lease.password": "another"})
        node = PairNode(1, tmp_path, "", settings)
        try:
            eventually(node.ready_file.exists, what="a leader")
            send_all(node.servers, "t", [b"a", b"b"])
            assert values_of(node.servers, "t") == [b"a", b"b"]
            eventually(
                lambda: wrong.says("etcd refuses the user root"), what="the refusal is shown"
            )
            assert not wrong.ready_file.exists()
        finally:
            node.kill()
            wrong.kill()

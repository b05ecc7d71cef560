"""Every setting that may contain a secret is set to one, and no secret appears in any output."""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Sequence
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives import serialization

from barnabas import LocalBroker
from barnabas.broker.settings.rows_broker import BROKER_SETTINGS
from barnabas.broker.settings.setting import Kind
from barnabas.certificates import make_certificates

pytestmark = pytest.mark.e2e

# A secret for each password setting. Key and certificates are real, since TLS needs them.
PASSWORDS = {
    name: f"planted-in-{name.replace('.', '-')}"
    for name, setting in BROKER_SETTINGS.items()
    if setting.kind is Kind.PASSWORD
}
JAAS, FILE, SCRAM, WRONG = "planted-in-jaas", "planted-in-file", "planted-in-scram", "planted-wrong"
URLS = re.compile(r"(?:metrics on|console:) +(http://\S+)")


def planted(certs: Path) -> dict[str, str]:
    """The secret settings of the broker, which it gets from the environment."""
    make_certificates(certs)
    key = serialization.load_pem_private_key((certs / "broker-key.pem").read_bytes(), None)
    password = serialization.BestAvailableEncryption(PASSWORDS["ssl.key.password"].encode())
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return PASSWORDS | {
        "ssl.keystore.key": key.private_bytes(pem, form, password).decode(),
        "ssl.keystore.certificate.chain": (certs / "broker-cert.pem").read_text(),
        "ssl.truststore.certificates": (certs / "ca.pem").read_text(),
        "listener.name.sasl_ssl.plain.sasl.jaas.config": f'a.B required user_bob="{JAAS}";',
    }


def pages_of_console(url: str, users: Sequence[tuple[str, str]]) -> list[str]:
    """The console's pages for each user: one with a password from the file, one from JAAS, and one
    for SCRAM.
    """
    pages = []
    for user, password in users:
        body = json.dumps({"user": user, "password": password}).encode()
        answer = urlopen(
            Request(f"{url}/api/login", body, {"Content-Type": "application/json"}), timeout=20
        )
        cookie = answer.headers["Set-Cookie"].partition(";")[0]
        for path in ("overview", "security", "topics?internal=true", "requests"):
            asked = Request(f"{url}/api/{path}", headers={"Cookie": cookie})
            pages.append(urlopen(asked, timeout=20).read().decode())
    return pages


def test_no_secret_appears_in_any_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = planted(tmp_path / "certs")
    settings = {"config.providers": "env", "barnabas.metrics.port": 0, "barnabas.console.port": 0}
    for number, (name, text) in enumerate(secrets.items()):
        monkeypatch.setenv(f"PLANTED_{number}", text)
        settings[name] = f"${{env:PLANTED_{number}}}"
    key = secrets["ssl.keystore.key"].splitlines()[2]
    sought = [*PASSWORDS.values(), JAAS, FILE, SCRAM, WRONG, key]
    data = tmp_path / "data"
    with LocalBroker(data, tls=True, users={"alice": FILE}, settings=settings) as broker:

        def admin(user: str, password: str, mechanism: str = "PLAIN") -> AdminClient:
            return AdminClient(
                {
                    "bootstrap.servers": broker.bootstrap_servers,
                    "security.protocol": "SASL_SSL",
                    "ssl.ca.location": str(tmp_path / "certs" / "ca.pem"),
                    "sasl.mechanism": mechanism,
                    "sasl.username": user,
                    "sasl.password": password,
                    "log_level": 0,
                }
            )

        client = admin("bob", JAAS)
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        made = UserScramCredentialUpsertion("carol", info, SCRAM.encode())
        client.alter_user_scram_credentials([made])["carol"].result(20)
        for user, password in (("alice", FILE), ("carol", SCRAM)):
            admin(user, password, "SCRAM-SHA-256").list_topics(timeout=20)
        for mechanism in ("PLAIN", "SCRAM-SHA-256"):
            with pytest.raises(KafkaException):
                admin("alice", WRONG, mechanism).list_topics(timeout=0.5)
        resource = ConfigResource(ResourceType.BROKER, "1")
        entries = client.describe_configs([resource])[resource].result(20)
        output = "".join(broker.output)
        pages = [urlopen(url, timeout=20).read().decode() for url in URLS.findall(output)]
        assert len(pages) == 2
        console = next(url for url in URLS.findall(output) if not url.endswith("/metrics"))
        pages += pages_of_console(console, (("alice", FILE), ("bob", JAAS), ("carol", SCRAM)))
        places = {
            "the log": output,
            "DescribeConfigs": repr([vars(one) for one in entries.values()])
            + repr([vars(two) for one in entries.values() for two in one.synonyms.values()]),
            "the metrics or the console": "".join(pages),
            "the process list": Path(f"/proc/{broker.pid}/cmdline").read_text(),
        }
    own = ("barnabas-users", "ca.pem", "broker")  # files that the test itself wrote
    for path in data.rglob("*"):
        if path.is_file() and not path.name.startswith(own) and "barnabas-certs" not in path.parts:
            places[str(path)] = path.read_bytes().decode("latin-1")
    assert entries["ssl.key.password"].is_sensitive
    assert {entries[name].value for name in PASSWORDS} == {None}
    assert {place: one for place, text in places.items() for one in sought if one in text} == {}
    assert "user 'alice', by SCRAM" in places["the log"]
    assert stat.S_IMODE(data.stat().st_mode) == 0o700
    files = [path for path in data.rglob("*") if path.is_file() and path.suffix != ".pem"]
    assert "barnabas-metadata.journal" in {path.name for path in files}
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}

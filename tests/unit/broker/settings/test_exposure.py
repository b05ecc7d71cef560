"""The warnings at a start about secrets and directories that other users may read."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.exposure import is_local, warnings_of
from barnabas.daemon.arguments import StartError, parser
from barnabas.daemon.configure import read_config


def warnings(arguments: tuple[str, ...] = (), **settings: str) -> str:
    properties = {name.replace("_", "."): value for name, value in settings.items()}
    return "\n".join(warnings_of(BrokerConfig.from_properties(properties), arguments))


def test_a_broker_without_settings_is_open_to_nobody_else() -> None:
    assert warnings() == ""
    assert warnings(listeners="PLAINTEXT://[::1]:1,unix:///b.sock") == ""


def test_certificates_that_a_listener_with_sasl_does_not_ask_for_are_named() -> None:
    text = warnings(listeners="SSL://:1,SASL_SSL://b:2", ssl_client_auth="required")
    assert "ssl.client.auth=required does not apply to SASL_SSL://b:2" in text
    assert "listener.name.sasl_ssl.ssl.client.auth would" in text
    own = {"listener.name.clients.ssl.client.auth": "required"}
    text = warnings(
        listeners="CLIENTS://b:2",
        listener_security_protocol_map="CLIENTS:SASL_SSL",
        ssl_client_auth="required",
        **own,
    )
    assert "does not apply" not in text


@pytest.mark.parametrize(
    ("listeners", "more", "lines"),
    [
        (
            "PLAINTEXT://0.0.0.0:9092",
            {},
            ("listeners=SASL_PLAINTEXT://0.0.0.0:9092", "barnabas.users.file="),
        ),
        ("SSL://b.example:1", {}, ("ssl.client.auth=required", "ssl.truststore.location=")),
        ("SSL://:1", {"ssl_client_auth": "requested"}, ("ssl.client.auth=required",)),
    ],
)
def test_a_public_listener_without_authentication_gives_a_warning_with_the_settings_to_add(
    listeners: str, more: dict[str, str], lines: tuple[str, ...]
) -> None:
    """A listener on an address other than localhost without authentication lets any client do
    everything. The warning names the settings that would authenticate clients.
    """
    text = warnings(listeners=listeners, **more)
    assert len(text.splitlines()) == 1
    assert all(line in text for line in lines)


def test_with_an_authorizer_the_warning_names_the_acls_of_anonymous_users() -> None:
    name = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    text = warnings(listeners="PLAINTEXT://:1", authorizer_class_name=name)
    assert "ACLs allow User:ANONYMOUS" in text
    assert "everything" in warnings(listeners="PLAINTEXT://:1")


def test_who_asks_is_not_warned_of_it() -> None:
    assert warnings(listeners="SSL://:1", ssl_client_auth="required") == ""
    assert "without authentication" not in warnings(listeners="SASL_PLAINTEXT://:1")


def test_metrics_for_everybody() -> None:
    assert "names of topics" in warnings(barnabas_metrics_port="0", barnabas_metrics_host="0.0.0.0")
    assert warnings(barnabas_metrics_port="0") == warnings(barnabas_metrics_host="0.0.0.0") == ""


def test_settings_that_protect_nothing() -> None:
    assert "no listener uses TLS" in warnings(ssl_client_auth="required")
    # the link to a standby uses ssl.client.auth even if no listener does, and needs its secret
    of_a_standby = {"ssl_client_auth": "required", "barnabas_replication_secret": "s"}
    assert "no listener uses TLS" not in warnings(**of_a_standby)
    assert "no listener authenticates" in warnings(barnabas_users_file="/none")
    assert "name no user" in warnings(listeners="SASL_PLAINTEXT://127.0.0.1:1")


def test_secrets_that_others_may_read(tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.touch(0o600)
    settings = {"listeners": "SASL_PLAINTEXT://127.0.0.1:1", "barnabas_users_file": str(users)}
    assert warnings(**settings) == ""
    users.chmod(0o640)
    assert f"chmod 600 {users}" in warnings(**settings)


def test_a_key_for_the_console_s_registry_that_others_may_read(tmp_path: Path) -> None:
    key = tmp_path / "key.pem"
    key.touch(0o644)
    key.chmod(0o644)
    certificate = {"barnabas_console_registry_certificate_file": str(key)}
    for settings in (certificate, {"barnabas_console_registry_key_file": str(key)}):
        assert f"chmod 600 {key}" in warnings(**settings)
    private = tmp_path / "private.pem"
    private.touch(0o600)
    settings = {"barnabas_console_registry_key_file": str(private), **certificate}
    assert warnings(**settings) == ""  # a certificate without a key is not secret


@pytest.mark.parametrize(
    ("host", "is_this_machine"),
    [
        ("127.0.0.1", True), ("127.1.2.3", True), ("::1", True), ("localhost", True),
        ("unix:///run/b", True), ("", False), ("0.0.0.0", False), ("::", False),
        ("10.0.0.1", False), ("127.example.com", False), ("127.0.0.1.example.com", False),
        ("localhost.example.com", False), ("::1.example.com", False), ("a127.0.0.1", False),
    ],
)  # fmt: skip
def test_which_addresses_are_of_this_machine_alone(host: str, is_this_machine: bool) -> None:
    """Unencrypted data may be sent to addresses of the same machine."""
    assert is_local(host) is is_this_machine


Start = Callable[[str], list[str]]


@pytest.fixture
def started_with(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Start:
    """A function that starts the broker with the given lines of configuration, and returns the
    warnings about secrets.
    """
    config = tmp_path / "broker.properties"
    config.touch(0o600)

    def start(text: str) -> list[str]:
        config.write_text(f"config.providers=file,directory\nlog.dirs={tmp_path}/data\n{text}\n")
        caplog.clear()
        read_config(parser().parse_args(["start", "--config", str(config)]))
        return [line for line in caplog.messages if "holds secrets" in line]

    return start


def test_a_readable_file_with_provided_secrets_gives_one_warning(
    tmp_path: Path, started_with: Start
) -> None:
    secrets = tmp_path / "secrets"
    secrets.write_text("one=a-secret\ntwo=another\nport=0\n")
    secrets.chmod(0o644)
    of_file = f"${{file:{secrets}:one}}"
    of_directory = f"${{directory:{tmp_path}:secrets}}"
    (line,) = started_with(f"ssl.key.password={of_file}\nssl.keystore.password={of_directory}")
    assert f"{secrets} holds secrets" in line
    assert f"chmod 600 {secrets}" in line
    assert "a-secret" not in line
    no_secret = f"listeners=PLAINTEXT://127.0.0.1:${{file:{secrets}:port}}"
    assert started_with(no_secret) == []
    secrets.chmod(0o600)
    assert started_with(f"ssl.key.password={of_file}") == []


def test_a_configuration_with_a_secret_in_it_that_others_may_read(
    tmp_path: Path, started_with: Start
) -> None:
    assert started_with("ssl.key.password=a-secret") == []
    config = tmp_path / "broker.properties"
    config.chmod(0o644)
    (line,) = started_with("ssl.key.password=a-secret")
    assert f"chmod 600 {config}" in line
    assert "a-secret" not in line
    assert started_with("node.id=1") == []


@pytest.mark.parametrize(
    ("name", "is_secret"),
    [
        ("ssl.key.password", True),
        ("ssl.keystore.key", True),
        ("listener.name.a.plain.sasl.jaas.config", True),
        ("ssl.keystore.location", False),
        ("barnabas.console.registry.token", True),
        ("barnabas.console.registry.key.password", True),
        ("barnabas.console.registry.key.file", False),
        ("barnabas.oauthbearer.believe.unsigned.tokens.of.anybody", False),
    ],
)
def test_secrets_on_the_command_line(name: str, is_secret: bool) -> None:
    assert (name in warnings((name,))) is is_secret


def test_a_data_directory_that_others_may_read(tmp_path: Path) -> None:
    """Read access for the group causes no warning, since some Kafka installations share a group."""
    for mode, is_open in ((0o755, True), (0o705, True), (0o750, False), (0o700, False)):
        tmp_path.chmod(mode)
        assert ("holds all records" in warnings(log_dirs=str(tmp_path))) is is_open


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--console-registry", "http://x:1"], "pass --console-port, too"),
        (["--console-port", "0", "--console-registry", "ftp://x"], "'ftp://x' is no address"),
        (
            ["--console-port", "0", "--console-registry", "http://u:p@x:1"],
            "give the user in barnabas.console.registry.user",
        ),
        (
            [
                *("--console-port", "0", "--console-registry", "http://x:1"),
                *("--set", "barnabas.console.registry.ca.file=/no/such/file"),
            ],
            "there is no file /no/such/file",
        ),
        (
            [
                *("--console-port", "0", "--console-registry", "http://x:1"),
                *("--set", "barnabas.console.registry.certificate.file=/no/such/file"),
            ],
            "barnabas.console.registry.certificate.file: there is no file /no/such/file",
        ),
        (
            [
                *("--console-port", "0", "--console-registry", "https://x:1"),
                *("--set", f"barnabas.console.registry.key.file={__file__}"),
            ],
            "barnabas.console.registry.key.file needs barnabas.console.registry.certificate.file",
        ),
        (
            [
                *("--console-port", "0", "--console-registry", "https://x:1"),
                *("--set", f"barnabas.console.registry.certificate.file={__file__}"),
            ],
            "barnabas.console.registry.certificate.file: it cannot be read",
        ),
        (
            [
                *("--console-port", "0", "--console-registry", "https://x:1"),
                *("--set", f"barnabas.console.registry.ca.file={__file__}"),
            ],
            "barnabas.console.registry.ca.file: it cannot be read",
        ),
        (
            [
                *("--console-port", "0", "--console-registry", "https://x:1"),
                *("--set", "barnabas.console.registry.user=page"),
                *("--set", "barnabas.console.registry.token=t.o.k"),
            ],
            "set barnabas.console.registry.user or barnabas.console.registry.token, not both",
        ),
    ],
)
def test_a_registry_for_the_console_that_is_wrong(arguments: list[str], words: str) -> None:
    with pytest.raises(StartError, match=re.escape(words)):
        read_config(parser().parse_args(["start", *arguments]))


def test_the_console_registry_may_be_given_on_the_command_line() -> None:
    arguments = ["start", "--console-port", "0", "--console-registry", "http://a:1,https://b"]
    config = read_config(parser().parse_args(arguments))
    assert config.barnabas_console_registry == "http://a:1,https://b"

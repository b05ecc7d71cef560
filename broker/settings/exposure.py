"""The warnings that a start logs about listeners and ports that are open to other machines, secrets
that other users can read, and security settings that have no effect.

An address that only this machine can reach (127.0.0.1, ::1, localhost, a Unix domain socket) is not
open to other machines.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence

from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.listeners import (
    BELIEVES_UNSIGNED,
    CLIENT_AUTH,
    OAUTHBEARER,
    PREFIX,
    ListenerConfig,
)
from barnabas.protocol.request_context import UNIX_SCHEME

OTHERS_MAY_READ = 0o044
# excludes the group's permissions, since access for a group may be intended
OTHERS_MAY_ENTER = 0o005
_LOOPBACK = re.compile(r"127(?:\.[0-9]{1,3}){3}")
# A password may contain a slash. But HOST:PORT/PATH@ contains no password.
_USER_INFO = re.compile(r"://(?:[^/?#\s]*@|[^/?#@:\s]*:(?![0-9]+[/?#])\S*@)")
SECRET_WORDS = ("password", "jaas.config", "ssl.keystore.key", "secret", "registry.token")


def is_local(host: str) -> bool:
    """Whether only this machine can connect to an address."""
    return (
        host in ("localhost", "::1")
        or host.startswith(UNIX_SCHEME)
        # a prefix is not enough: 127.example.com may be any machine
        or _LOOPBACK.fullmatch(host) is not None
    )


def without_password(text: str) -> str:
    """The text with the user and the password of an address hidden."""
    return _USER_INFO.sub("://[hidden]@", text)


def is_secret(name: str) -> bool:
    """Whether a setting's value is a secret."""
    return any(word in name.removeprefix(PREFIX) for word in SECRET_WORDS)


def warnings_of(
    config: BrokerConfig, arguments: Sequence[str], secret_files: Sequence[str] = ()
) -> Iterator[str]:
    """The warnings about the settings of a start.

    Takes: arguments, the names of the settings on the command line; secret_files, the files from
           which the values of secret settings were read.
    """
    for listener in config.listeners:
        yield from _open_listener(config, listener)
        if listener.oauth is not None and listener.oauth.believes_unsigned:
            yield (
                f"{listener.endpoint}: {BELIEVES_UNSIGNED}=true: ANY CLIENT CAN BE ANY USER, "
                "by a token that it writes itself. It is only for tests of clients"
            )
    yield from _open_ports(config)
    yield from _settings_without_effect(config)
    yield from _readable_secrets(config, secret_files)
    for name in arguments:
        if is_secret(name):
            yield (
                f"--set {name}: every user who can list the processes of this machine sees its "
                f"value: put it into the file of --config, or use ${{env:NAME}} or "
                f"${{file:/PATH:KEY}} there"
            )


def _open_listener(config: BrokerConfig, listener: ListenerConfig) -> Iterator[str]:
    """A warning if clients of other machines can use the listener without authentication."""
    endpoint = listener.endpoint
    if listener.has_sasl or is_local(endpoint.host):
        return
    if not listener.has_tls:
        lines = (
            f"listeners={endpoint._replace(name='SASL_PLAINTEXT')}",
            "barnabas.users.file=FILE, with lines NAME:PASSWORD",
        )
    elif listener["ssl.client.auth"] != "required":
        lines = ("ssl.client.auth=required", "ssl.truststore.location=FILE, the authority's")
    else:
        return
    may = (
        "do what ACLs allow User:ANONYMOUS"
        if config.authorizer_class_name
        else "read, write and delete everything"
    )
    yield (
        f"{endpoint} is open to other machines without authentication: every client may {may}. "
        f"Two lines change that: {lines[0]} and {lines[1]}; see docs/SECURITY.md"
    )


def _open_ports(config: BrokerConfig) -> Iterator[str]:
    """The warnings about open ports. The console's port is not checked here, since the console
    warns about it when it begins to listen.
    """
    host = config.barnabas_metrics_host
    if config.barnabas_metrics_port >= 0 and not is_local(host):
        yield (
            f"metrics are served on {host} without TLS or authentication: they contain the "
            "names of topics and groups; barnabas.metrics.host=127.0.0.1 limits that to this "
            "machine"
        )


def _settings_without_effect(config: BrokerConfig) -> Iterator[str]:
    """Warnings about settings of TLS and of users that have no effect with these listeners."""
    of_tls = [name for name in config.explicit if name.startswith("ssl.")]
    # the connection to a standby also uses the settings `ssl.*`
    of_link = config.barnabas_replication_secret
    if of_tls and not of_link and not any(one.has_tls for one in config.listeners):
        yield (
            f"{', '.join(of_tls)} have no effect: no listener uses TLS; that needs "
            "listeners=SSL://ADDRESS:PORT or SASL_SSL"
        )
    asks_all = config.ssl_client_auth != "none"
    for listener in config.listeners if asks_all else ():
        if listener.has_sasl and listener.has_tls and CLIENT_AUTH not in listener.own:
            name = f"{PREFIX}{listener.name.lower()}.{CLIENT_AUTH}"
            yield (
                f"{CLIENT_AUTH}={config.ssl_client_auth} does not apply to {listener.endpoint}, "
                f"whose clients prove themselves by SASL, as in Apache Kafka; {name} would"
            )
    if config.barnabas_users_file is not None and not config.has_sasl:
        yield (
            "barnabas.users.file has no effect: no listener authenticates; that needs "
            "listeners=SASL_PLAINTEXT://ADDRESS:PORT"
        )
    for listener in config.listeners if config.barnabas_users_file is None else ():
        has_passwords = any(name != OAUTHBEARER for name in listener.sasl_mechanisms)
        if listener.has_sasl and has_passwords and not listener.plain_passwords:
            yield (
                f"clients have to authenticate ({listener.security_protocol}), and the settings "
                "name no user: only SCRAM users that exist already can log in; "
                "barnabas.users.file names others"
            )


def _readable_secrets(config: BrokerConfig, secret_files: Sequence[str]) -> Iterator[str]:
    """Files with passwords or private keys that other users of this machine may read, without
    duplicates.
    """
    paths = [config.barnabas_users_file, *secret_files]
    paths.append(
        config.barnabas_console_registry_key_file
        or config.barnabas_console_registry_certificate_file
    )
    for listener in config.listeners:
        if listener.has_tls:
            paths.append(listener.tls_settings(config.explicit).get("ssl.keystore.location"))
    data_dir = config.data_dir
    if os.path.isdir(data_dir) and _mode(data_dir) & OTHERS_MAY_ENTER:
        yield (
            f"{data_dir} holds all records, and all users of this machine may enter it: chmod "
            f"700 {data_dir}"
        )
    for path in dict.fromkeys(filter(None, paths)):
        if _mode(path) & OTHERS_MAY_READ:
            yield (
                f"{path} holds secrets, and other users of this machine may read it: chmod 600 "
                f"{path}"
            )


def _mode(path: str) -> int:
    """The file's mode bits; 0 if the file cannot be examined."""
    try:
        return os.stat(path).st_mode
    except OSError:
        return 0  # the file will be created later, or reading it will fail with an error

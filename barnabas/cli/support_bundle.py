"""`barnabas support-bundle`: information for support, in a zip without secrets.

The state of the cluster is requested by Kafka's protocol, and the named files are read. A part that
is not available becomes a line in errors.txt, so that a bundle can also be made of a broken
cluster. Secrets are removed in three ways. Settings that Kafka marks as sensitive have no value.
Settings of the client are replaced if their name shows that they are secret. All texts are searched
for the client's own secrets and for similar ones (passwords in lines of settings, tokens, keys in
PEM form).
"""

from __future__ import annotations

import functools
import json
import os
import platform
import re
import sys
import time
import zipfile
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from barnabas.cli.client.cluster_client import ClusterClient
from barnabas.cli.cluster import Connection
from barnabas.cli.errors import ERROR, OK, CommandError, RefusedError, explain
from barnabas.cli.options import connection_options, ending, json_option
from barnabas.cli.output import Output, note
from barnabas.cli.profiles import PREFIX, is_secret
from barnabas.cli.secret_texts import REMOVED, Cleaner
from barnabas.cli.waiting import TimeoutOver
from barnabas.json_text import JsonText, json_text
from barnabas.protocol.api_table import APIS
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.texts import count_text
from barnabas.version import __version__

FILE_MODE = 0o600
MOST_METRICS_BYTES = 8 << 20
MOST_FILES = 10_000


def without_secrets(settings: Mapping[str, str]) -> dict[str, str]:
    """A client's settings with the values of secrets replaced."""
    return {name: REMOVED if is_secret(name) else text for name, text in settings.items()}


@click.command(
    "support-bundle",
    epilog=ending(
        "barnabas support-bundle",
        "barnabas support-bundle -o bundle.zip --log /var/log/barnabas.log --lines 5000",
        "barnabas support-bundle --metrics http://127.0.0.1:9404/metrics --data-dir ./data",
        "journalctl -u barnabas -n 2000 | barnabas support-bundle --log -",
    ),
)
@click.option(
    "-o",
    "--output-file",
    "target",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The zip file; by default barnabas-support-TIME.zip in the current directory.",
)
@click.option(
    "--log",
    "logs",
    metavar="FILE",
    multiple=True,
    help="A broker's log, whose last lines are added; -: standard input.",
)
@click.option(
    "--lines",
    type=click.IntRange(1, 1_000_000),
    default=2000,
    show_default=True,
    help="How many lines of each log are added.",
)
@click.option("--metrics", metavar="URL", multiple=True, help="The address of a broker's metrics.")
@click.option(
    "--data-dir",
    metavar="DIRECTORY",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A data directory: the names and sizes of its files are added, not their content.",
)
@connection_options
@json_option
def support_bundle(
    connection: Connection,
    output: Output,
    target: Path | None,
    logs: Sequence[str],
    lines: int,
    metrics: Sequence[str],
    data_dir: Path | None,
) -> int:
    """Write a zip for support: settings, state, log lines, metrics; no secrets.

    It contains no records. It contains names of topics, groups, users and hosts: check it before
    you send it to others. If the cluster does not answer, the zip has only the other parts, and the
    exit code is 1.
    """
    target = target or Path(time.strftime("barnabas-support-%Y%m%d-%H%M%S.zip"))
    if target.exists():
        raise CommandError(f"{target} exists: name another file with -o")
    if not target.parent.is_dir():
        raise CommandError(f"{target.parent} is not a directory: name another file with -o")
    properties = connection.properties()
    bundle = _Bundle(Cleaner(_secrets(properties)))
    bundle.add("client.json", lambda: _client(connection, properties))
    bundle.add("versions.json", _versions)
    _add_cluster(bundle, connection)
    for number, name in enumerate(logs, 1):
        label = "standard-input" if name == "-" else Path(name).name
        bundle.add(f"logs/{number}-{label}.txt", functools.partial(_last_lines, name, lines))
    for number, url in enumerate(metrics, 1):
        bundle.add(f"metrics/{number}.txt", functools.partial(_metrics, url, connection.timeout_s))
    if data_dir is not None:
        bundle.add("directory.txt", lambda: _files(data_dir))
    bundle.write(target)
    if output.as_json:
        output.data({"file": str(target), "parts": bundle.names, "errors": bundle.errors})
    else:
        output.line(f"{target}: {count_text(len(bundle.names), 'part')}")
        note("it has names of topics, groups and hosts: read it before you share it")
    for error in bundle.errors:
        note(f"barnabas: {error}", "bad")
    return ERROR if bundle.errors else OK


class _Bundle:
    """The parts of a bundle, cleaned of secrets. errors: for each missing part, the reason."""

    def __init__(self, cleaner: Cleaner) -> None:
        self._cleaner = cleaner
        self._parts: dict[str, str] = {}
        self.errors: list[str] = []

    @property
    def names(self) -> list[str]:
        """The names of the parts."""
        return list(self._parts)

    def add(self, name: str, make: Callable[[], Any]) -> None:
        """Make a part and add it. If that fails, record the error instead."""
        try:
            made = make()
        except (CommandError, RefusedError, OSError, ValueError) as error:
            text = str(error) if isinstance(error, CommandError) else explain(error)
            self.errors.append(self._cleaner.text(f"{name}: {text}"))
            return
        if isinstance(made, str):
            self._parts[name] = self._cleaner.text(made)
        else:
            cleaned = self._cleaner.data(made)
            text = json.dumps(cleaned, indent=1, ensure_ascii=False, default=str)
            self._parts[name] = json_text(JsonText(text))

    def write(self, target: Path) -> None:
        """Write the zip, readable only by its user. Raises: CommandError."""
        if self.errors:
            self._parts["errors.txt"] = "\n".join(self.errors) + "\n"
        try:
            descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
        except FileExistsError as error:
            raise CommandError(f"{target} exists: name another file with -o") from error
        except OSError as error:
            raise CommandError(f"cannot write {target}: {error.strerror or error}") from error
        with (
            open(descriptor, "wb") as file,
            zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive,
        ):
            for name, text in self._parts.items():
                archive.writestr(name, text)


def _secrets(properties: Mapping[str, str]) -> list[str]:
    """The client's secrets, in its settings and in the environment."""
    found = [text for name, text in properties.items() if is_secret(name)]
    jaas = properties.get("sasl.jaas.config", "")
    found += re.findall(r"password\s*=\s*[\"']?([^\"';\s]+)", jaas)
    for name, text in os.environ.items():
        if name.startswith(PREFIX) and is_secret(name.lower().replace("_", ".")):
            found.append(text)
    return found


def _client(connection: Connection, properties: Mapping[str, str]) -> dict[str, Any]:
    """The client's settings without secrets."""
    return {
        "bootstrap_server": connection.bootstrap_servers,
        "timeout": connection.timeout_s,
        "principal": connection.principal(),
        "settings": without_secrets(properties),
        "variables": sorted(name for name in os.environ if name.startswith(PREFIX)),
    }


def _versions() -> dict[str, Any]:
    """The versions of Barnabas, Python and the libraries."""
    from importlib import metadata

    names = ("click", "crc32c", "cramjam", "cryptography", "rich")
    libraries: dict[str, str | None] = {}
    for name in names:
        try:
            libraries[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            libraries[name] = None
    return {
        "barnabas": __version__,
        "python": sys.version,
        "platform": platform.platform(),
        "processors": os.cpu_count(),
        "libraries": libraries,
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


# --- the cluster --------------------------------------------------------------------------------


def _add_cluster(bundle: _Bundle, connection: Connection) -> None:
    """Add what the cluster reports about itself. Stop at the first part that times out."""
    parts: tuple[tuple[str, Callable[[ClusterClient], Any]], ...] = (
        ("cluster.json", _cluster),
        ("settings.json", _settings),
        ("topics.json", _topics),
        ("groups.json", _groups),
        ("transactions.json", _transactions),
    )
    try:
        with connection.admin() as admin:
            for name, make in parts:
                bundle.add(name, functools.partial(make, admin))
                if bundle.errors and "--timeout" in bundle.errors[-1]:
                    return  # every further part would also time out
    except (CommandError, TimeoutOver) as error:
        bundle.add("cluster.json", _raiser(error))


def _raiser(error: Exception) -> Callable[[], Any]:
    """A function that raises an error, so that `_Bundle.add` records it."""

    def fail() -> Any:
        raise error

    return fail


def _cluster(admin: ClusterClient) -> dict[str, Any]:
    """The brokers of the cluster, and the requests that they support."""
    names = {api.key: api.name for api in APIS}
    return {
        "cluster_id": admin.cluster_id,
        "controller_id": admin.controller_id,
        "brokers": [row._asdict() for row in admin.brokers.values()],
        "apis": {
            names.get(key, str(key)): list(versions)
            for key, versions in sorted(admin.api_versions().items())
        },
    }


def _settings(admin: ClusterClient) -> dict[str, Any]:
    """The settings of each broker, with sensitive values replaced."""
    from barnabas.cli.client.configs import describe_configs

    found = describe_configs(admin, "broker", [str(node_id) for node_id in admin.brokers])
    return {
        broker: {
            row.name: {
                "value": REMOVED if row.is_sensitive or is_secret(row.name) else row.value,
                "source": row.source,
            }
            for row in sorted(rows)
        }
        for broker, rows in found.items()
    }


def _topics(admin: ClusterClient) -> list[dict[str, Any]]:
    """The topics with their altered settings, replicas and offsets."""
    from barnabas.cli.client.configs import describe_configs
    from barnabas.cli.client.topics import name_of
    from barnabas.cli.offsets import describe_topics, list_offsets, partitions_of

    topics = describe_topics(admin)
    offsets = list_offsets(admin, partitions_of(topics, with_leader=True))
    configs = describe_configs(admin, "topic", [name_of(topic) for topic in topics])
    return [
        {
            "topic": name_of(topic),
            "internal": topic.is_internal,
            "settings": {
                row.name: REMOVED if row.is_sensitive else row.value
                for row in configs.get(name_of(topic), ())
                if row.is_altered
            },
            "partitions": [
                {
                    "partition": row.partition_index,
                    "leader": row.leader_id,
                    "replicas": row.replica_nodes,
                    "isr": row.isr_nodes,
                    **offsets.get(TopicPartition(name_of(topic), row.partition_index), {}),
                }
                for row in topic.partitions
            ],
        }
        for topic in topics
    ]


def _groups(admin: ClusterClient) -> list[dict[str, Any]]:
    """The groups with their lags."""
    from barnabas.cli.client.groups import list_groups
    from barnabas.cli.group_rows import describe_groups

    names = [row.group for row in list_groups(admin)]
    return describe_groups(admin, names, missing_ok=True)


def _transactions(admin: ClusterClient) -> dict[str, Any]:
    """The transactional ids, and the stuck partitions."""
    from barnabas.cli.client.transactions import list_transactions
    from barnabas.cli.why_stuck import owner_text, state_text, stuck_partitions

    now_ms = round(time.time() * 1000)
    return {
        "transactional_ids": [row._asdict() for row in list_transactions(admin)],
        "stuck": [
            {
                **row.partition._asdict(),
                "last_stable_offset": row.last_stable_offset,
                "high_watermark": row.high_watermark,
                "owner": owner_text(row.holder),
                "state": state_text(row.holder),
                "age_ms": row.age_ms(now_ms),
            }
            for row in stuck_partitions(admin)
        ],
    }


# --- other sources ------------------------------------------------------------------------------


def _last_lines(name: str, count: int) -> str:
    """The last lines of a log."""
    if name == "-":
        return "".join(deque(sys.stdin, count))
    with open(name, encoding="utf-8", errors="replace") as file:
        return "".join(deque(file, count))


def _metrics(url: str, timeout_s: float) -> str:
    """The metrics from a broker's metrics port."""
    if not url.startswith(("http://", "https://")):
        raise CommandError(f"{url} is not an address of metrics: write http://HOST:PORT/metrics")
    from http.client import OK as HTTP_OK
    from http.client import HTTPException

    from barnabas.http_client import HttpClient

    client = HttpClient(timeout_s, MOST_METRICS_BYTES)
    try:
        answer = client.send("GET", url)
    except (OSError, ValueError, HTTPException) as error:
        raise CommandError(f"{url}: {error}") from error
    finally:
        client.close()
    if answer.status != HTTP_OK:
        raise CommandError(f"{url}: HTTP {answer.status} {answer.reason}")
    return answer.body.decode("utf-8", "replace")


def _files(directory: Path) -> str:
    """The names, sizes and times of a directory's files."""
    rows: list[str] = []
    for path in sorted(directory.rglob("*")):
        if len(rows) == MOST_FILES:
            rows.append("…\n")
            break
        try:
            status = path.lstat()
        except OSError:
            continue
        if not path.is_dir():
            moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(status.st_mtime))
            rows.append(f"{status.st_size:>14} {moment} {path.relative_to(directory)}\n")
    return "".join(rows)

"""Writes docs/CONFIGURATION.md from the tables of broker/settings/rows_*.py."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from barnabas.broker.settings.rows_broker import BROKER_SETTINGS
from barnabas.broker.settings.rows_topic import TOPIC_SETTINGS
from barnabas.broker.settings.rows_without_effect import (
    IGNORED_KEYS,
    IGNORED_PREFIXES,
    KEPT_SETTINGS,
)
from barnabas.broker.settings.setting import INT_MAX, LONG_MAX, OWN_PREFIX, Kind, Setting

TARGET = Path(__file__).resolve().parent / "CONFIGURATION.md"
_BEFORE = f"""\
# Settings

*Written by `make docs-pages`; the tables are `broker/settings/rows_*.py`.*

Names and meanings are those of Apache Kafka 3.9; those that begin with `{OWN_PREFIX}` are
Barnabas's own. A broker setting comes from

    barnabas start --config server.properties
    barnabas start --set KEY=VALUE                         one setting; goes before the file
    barnabas start --host ADDRESS --port N --data-dir DIR  listeners and log.dirs; go before both

or, where the table says *dynamic*, from AlterConfigs while it runs (kept in the metadata journal):
what is set on the broker goes before what is set for every broker (the name "",
`kafka-configs --entity-default`), and that before all these.
A name that is not known ends the start with the nearest known one. `barnabas settings [TEXT]`
prints the first two tables in a terminal.

A setting that says *Accepted* is taken so that an existing file works, and does nothing here.
"""


def value_text(setting: Setting) -> str:
    """The default as it would be written into a file."""
    if setting.default is None:
        return ""
    if setting.default in (LONG_MAX, INT_MAX) and setting.kind in (Kind.LONG, Kind.INT):
        return "no bound"
    text = setting.render(setting.default)
    return f"`{text}`" if text else ""


def _number(value: Any) -> str:
    return str(int(value)) if float(value).is_integer() else str(value)


def allowed_text(setting: Setting) -> str:
    """What values it may have, beyond its type."""
    kind = setting.kind.name.lower()
    if setting.choices:
        choices = ", ".join(f"`{choice}`" for choice in setting.choices)
        return f"list of {choices}" if setting.kind is Kind.LIST else choices
    if setting.lowest is not None and setting.highest is not None:
        return f"{kind}, {_number(setting.lowest)} to {_number(setting.highest)}"
    if setting.lowest is not None:
        return f"{kind}, from {_number(setting.lowest)}"
    return kind


def row(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def broker_table() -> list[str]:
    lines = [row(["setting", "default", "values", "what it does"]), "|---|---|---|---|"]
    for setting in sorted(
        BROKER_SETTINGS.values(), key=lambda s: (not s.name.startswith(OWN_PREFIX), s.name)
    ):
        doc = f"{setting.doc} *Dynamic.*" if setting.dynamic else setting.doc
        lines.append(row([f"`{setting.name}`", value_text(setting), allowed_text(setting), doc]))
    return lines


def kept_table() -> list[str]:
    lines = [row(["setting", "default", "values", "why it does nothing"]), "|---|---|---|---|"]
    for setting in sorted(KEPT_SETTINGS.values(), key=lambda s: s.name):
        doc = f"{setting.doc} *Per broker.*" if setting.per_broker else setting.doc
        lines.append(row([f"`{setting.name}`", value_text(setting), allowed_text(setting), doc]))
    return lines


def topic_table() -> list[str]:
    lines = [
        row(["setting", "default", "values", "what it does", "the broker's default for it"]),
        "|---|---|---|---|---|",
    ]
    for setting in sorted(TOPIC_SETTINGS.values(), key=lambda s: s.name):
        synonyms = ", ".join(f"`{name}`" for name in setting.synonyms)
        lines.append(
            row(
                [
                    f"`{setting.name}`",
                    value_text(setting),
                    allowed_text(setting),
                    setting.doc,
                    synonyms,
                ]
            )
        )
    return lines


def ignored_table() -> list[str]:
    ignored = IGNORED_KEYS | {f"{prefix}*": why for prefix, why in IGNORED_PREFIXES.items()}
    return [
        row(["setting", "why"]),
        "|---|---|",
        *(row([f"`{name}`", ignored[name]]) for name in sorted(ignored)),
    ]


def text() -> str:
    """The whole file."""
    parts = [
        _BEFORE,
        "## Of the broker\n",
        *broker_table(),
        "\n## Of a topic\n",
        "Given with CreateTopics, or changed while it runs with AlterConfigs or\n"
        "IncrementalAlterConfigs: they hold from the next append on.\n",
        *topic_table(),
        "\n## Kept and told of\n",
        "Settings of Apache Kafka that tools may set on a running broker and that have nothing to\n"
        "act on here. They are checked, kept and described; in a file they are as the next table\n"
        "says, or refused. Dynamic settings of TLS and of who may log in are refused always.\n",
        *kept_table(),
        "\n## Taken with a warning\n",
        "Settings of Apache Kafka that a file may hold and that have nothing to act on here;\n"
        "those of TLS, SASL and authorizers are refused. A `*` stands for any end, unless a name\n"
        "is in the first table.\n",
        *ignored_table(),
    ]
    return "\n".join(parts) + "\n"

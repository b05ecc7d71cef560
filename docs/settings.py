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
    barnabas start --set KEY=VALUE                         # one setting; overrides the file
    barnabas start --host ADDRESS --port N --data-dir DIR  # listeners, log.dirs; override both

or, where the table says *dynamic*, from AlterConfigs while it runs (stored in the metadata
journal). A dynamic setting of the broker overrides one for every broker (the name "",
`kafka-configs --entity-default`), and both override all of the above.
An unknown name on the command line, and an unknown name `barnabas.*`, ends the start with an error
that has the nearest known name. Other unknown names in the file have no effect, as in Kafka, whose
plugins have settings there: one line in the log names them all, with the known name of which one is
probably a misspelling. GSSAPI among the mechanisms, and TLSv1.1 or older among the versions of TLS,
are left out with a line; settings of TLS and SASL that would protect something and have no
counterpart here end the start. AlterConfigs takes unknown names of a broker, too, except probable
misspellings.
`barnabas settings [TEXT]` prints the first two tables in a terminal.

A setting that says *Accepted* is accepted so that an existing file works, and has no effect.
"""


def value_text(setting: Setting) -> str:
    """Format the default of a setting as in a properties file."""
    if setting.default is None:
        return ""
    if setting.default in (LONG_MAX, INT_MAX) and setting.kind in (Kind.LONG, Kind.INT):
        return "no bound"
    text = setting.render(setting.default)
    return f"`{text}`" if text else ""


def _number(value: Any) -> str:
    return str(int(value)) if float(value).is_integer() else str(value)


def allowed_text(setting: Setting) -> str:
    """Describe the type of a setting and its allowed values."""
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
        "Given with CreateTopics, or changed while the topic exists with AlterConfigs or\n"
        "IncrementalAlterConfigs: they apply from the next append on.\n",
        *topic_table(),
        "\n## Stored and described\n",
        "Settings of Apache Kafka that tools may set on a running broker and that have no effect\n"
        "here. They are checked, stored and described; in a file the next table applies to them,\n"
        "or they are refused. Dynamic settings of TLS and of logins are always refused.\n",
        *kept_table(),
        "\n## Accepted with a warning\n",
        "Settings of Apache Kafka that a file may have and that have no effect here; those of\n"
        "TLS, SASL and authorizers are refused. A `*` matches any end, unless a name is in the\n"
        "first table.\n",
        *ignored_table(),
    ]
    return "\n".join(parts) + "\n"

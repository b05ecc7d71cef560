"""Log lines as JSON: the message, and its topic, partition and other subjects as fields.

    {"time": "2026-11-21T10:15:02.417Z", "level": "INFO", "logger": "barnabas.storage.log.log",
     "message": "orders-0: the segment at 0 is deleted", "topic": "orders", "partition": 0}

Fields come from the arguments of a line, not from its text: a log or a partition among the
arguments gives `topic` and `partition`; the other fields are the caller's `extra`.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any

from barnabas.broker.observation.log_lines import shortened
from barnabas.json_text import JsonText, json_text

FIELDS = (
    "topic",
    "partition",
    "offset",
    "transactional_id",
    "producer_id",
    "producer_epoch",
    "group",
    "client",
    "client_id",
    "state",
)


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """The fields of a line in addition to its message."""
    fields: dict[str, Any] = {}
    for argument in record.args if isinstance(record.args, tuple) else ():
        topic, partition = getattr(argument, "topic", None), getattr(argument, "partition", None)
        if isinstance(topic, str) and isinstance(partition, int):
            fields |= {"topic": topic, "partition": partition}
    for name in FIELDS:
        value = getattr(record, name, None)
        if value is not None:
            fields[name] = value
    return fields


class JsonFormatter(logging.Formatter):
    """Formats each line as one JSON object, with the time in UTC."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {
            "time": time.removesuffix("+00:00") + "Z",
            "level": record.levelname,
            "logger": record.name,
            "message": shortened(record.getMessage()),
        } | fields_of(record)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json_text(JsonText(json.dumps(line, ensure_ascii=False, default=str)))

"""The audit log: a line of JSON for each decision of the authorizer and each login, in a file of
its own.

    time            the wall clock, RFC 3339 with milliseconds, UTC
    principal       `User:NAME`
    host            the client's address
    client_id       from the request
    request         Kafka's name of the request; TLS for a login by certificate
    operation       as Kafka's tools name it
    resource_type   as Kafka's tools name it
    resource_name
    allowed         true or false

A login is logged as the operation AUTHENTICATE on a LISTENER, with the request SaslAuthenticate, or
TLS for a certificate. A failed login has the principal User:ANONYMOUS, or that of the connection's
earlier session. READ, WRITE and DESCRIBE of a resource are logged once per connection until an ACL
changes. Other operations are logged each time.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Sequence
from datetime import UTC, datetime

from barnabas.broker.audit import BY_CERTIFICATE, AuditRecord
from barnabas.protocol.api_table import BY_KEY

logger = logging.getLogger("barnabas.security")


class AuditLog:
    """The file of the audit log, which only its owner may read.

    Takes:  path, the path of the file. Raises: OSError if the file cannot be opened.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._file = _opened(path)
        # _is_torn: whether the last line was written only in part
        self._is_failing = self._is_torn = False

    def write(self, records: Sequence[AuditRecord], wall_ms: int) -> None:
        """Append a line for each record. Lines that cannot be written are lost, and the first loss
        is logged as an error. An incomplete line is ended before the next line.
        """
        time = datetime.fromtimestamp(wall_ms / 1000, UTC).isoformat(timespec="milliseconds")
        lines = "".join(_line(time.replace("+00:00", "Z"), record) for record in records)
        data = (("\n" if self._is_torn else "") + lines).encode()
        written = 0
        try:
            while written < len(data):  # a write to a disk that becomes full may be incomplete
                written += os.write(self._file, data[written:])
            self._is_failing = self._is_torn = False
        except OSError as error:
            if not self._is_failing:
                logger.error("the audit log %s cannot be written: %s", self.path, error)
            self._is_failing = True
            if written:
                self._is_torn = data[written - 1] != ord("\n")

    def reopen(self) -> None:
        """Write to the file that now has the path. If it cannot be opened, this is logged, and the
        former file stays in use.
        """
        try:
            new = _opened(self.path)
        except OSError as error:
            logger.error("the audit log %s cannot be opened again: %s", self.path, error)
            return
        os.close(self._file)
        self._file, self._is_failing, self._is_torn = new, False, False

    def close(self) -> None:
        os.close(self._file)


def _opened(path: str) -> int:
    """Open the file, which only its owner may read. Raises: OSError."""
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _line(time: str, record: AuditRecord) -> str:
    """The line of one record."""
    fields = {
        "time": time,
        "principal": record.principal,
        "host": record.host,
        "client_id": record.client_id,
        "request": "TLS" if record.api_key == BY_CERTIFICATE else BY_KEY[record.api_key].name,
        "operation": record.operation,
        "resource_type": record.resource_type,
        "resource_name": record.resource_name,
        "allowed": record.is_allowed,
    }
    return json.dumps(fields) + "\n"

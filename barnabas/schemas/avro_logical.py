"""Avro's logical types as JSON: dates and times as ISO 8601, decimals as their digits.

    logical type                                  JSON
    --------------------------------------------  ---------------------------------
    date                                          "2026-11-22"
    time-millis, time-micros                      "15:07:07.358"
    timestamp-millis, -micros, -nanos             "2026-11-22T15:07:07.358Z"
    local-timestamp-millis, -micros, -nanos       "2026-11-22T15:07:07.358"
    decimal                                       "12.34"
    uuid of a fixed                               "7f8a…"

A JSON number is the stored number. A stored time outside of the calendar is read as a number, and
a decimal of more than 8,000 bytes as bytes.

Source: Apache Avro 1.12, "Logical Types".
"""

from __future__ import annotations

import datetime
import decimal
import re
import uuid
from typing import Any

from barnabas.schemas.errors import SerdeError

EPOCH = datetime.datetime(1970, 1, 1)
_UNITS = {"millis": 3, "micros": 6, "nanos": 9}
_FRACTION = re.compile(r"(?<=:\d\d)[.,](\d+)")
Schema = dict[str, Any]
_DECIMAL_BYTES_MOST = 8_000  # a longer decimal is read as bytes; so is one of a larger scale
_DIGITS_MOST = 100_000  # maximum number of digits of a decimal


def to_json(schema: Schema, datum: Any) -> Any:
    """A stored number or bytes of a logical type as JSON; NotImplemented for other types."""
    kind = schema.get("logicalType", "")
    try:
        if kind == "date":
            return (EPOCH + datetime.timedelta(days=datum)).date().isoformat()
        family, _, unit = kind.rpartition("-")
        if unit in _UNITS and isinstance(datum, int):
            return _time_text(family, _UNITS[unit], datum)
        if kind == "decimal" and isinstance(datum, bytes):
            if max(len(datum), _scale(schema)) > _DECIMAL_BYTES_MOST:
                return NotImplemented  # its digits would take a long time
            number = int.from_bytes(datum, "big", signed=True)
            return f"{decimal.Decimal(number).scaleb(-_scale(schema), _context(datum)):f}"
        if kind == "uuid" and isinstance(datum, bytes) and len(datum) == 16:
            return str(uuid.UUID(bytes=datum))
    except (OverflowError, ValueError, decimal.InvalidOperation):
        return datum if isinstance(datum, int) else NotImplemented
    return NotImplemented


def from_json(schema: Schema, value: Any) -> Any:
    """A JSON value of a logical type in its stored form; NotImplemented for other types and values.

    Raises: SerdeError for a text of another form.
    """
    kind = schema.get("logicalType", "")
    if kind == "decimal":
        return _decimal_bytes(schema, value)
    if not isinstance(value, str):
        return NotImplemented
    family, _, unit = kind.rpartition("-")
    try:
        if kind == "date":
            return (datetime.date.fromisoformat(value) - EPOCH.date()).days
        if unit in _UNITS and family in ("time", "timestamp", "local-timestamp"):
            return _time_number(family, _UNITS[unit], value)
        if kind == "uuid" and schema.get("type") == "fixed":
            return uuid.UUID(value).bytes
    except ValueError as error:
        raise SerdeError(f"{value!r} is no {kind}: {error}") from error
    return NotImplemented


def _time_text(family: str, digits: int, number: int) -> Any:
    seconds, fraction = divmod(number, 10**digits)
    moment = EPOCH + datetime.timedelta(seconds=seconds)
    tail = f".{fraction:0{digits}d}"
    if family == "timestamp":
        return f"{moment.isoformat()}{tail}Z"
    if family == "local-timestamp":
        return f"{moment.isoformat()}{tail}"
    if family == "time" and moment.date() == EPOCH.date():
        return f"{moment.time().isoformat()}{tail}"
    return NotImplemented


def _time_number(family: str, digits: int, text: str) -> int:
    """The stored number of a time as text. Raises: ValueError."""
    fraction = match[1] if (match := _FRACTION.search(text)) else ""
    if len(fraction.rstrip("0")) > digits:
        raise ValueError(f"it has more than {digits} digits after the second")
    whole = _FRACTION.sub("", text)
    if family == "time":
        moment = datetime.datetime.combine(EPOCH, datetime.time.fromisoformat(whole))
    else:
        moment = datetime.datetime.fromisoformat(whole)
    if moment.tzinfo is not None and family == "timestamp":
        moment = moment.astimezone(datetime.UTC).replace(tzinfo=None)
    elif moment.tzinfo is not None:
        raise ValueError("it takes no zone")
    elif family == "timestamp":
        raise ValueError(f"it needs a zone: {text}Z, or {text}+01:00")
    since = moment - EPOCH
    seconds = since.days * 86_400 + since.seconds
    unit: int = 10**digits
    return seconds * unit + int(fraction.ljust(digits, "0")[:digits] or 0)


def _scale(schema: Schema) -> int:
    scale = schema.get("scale", 0)
    if not isinstance(scale, int) or scale < 0:
        raise ValueError("a decimal's scale is a whole number")
    return scale


def _context(data: bytes) -> decimal.Context:
    """A decimal context in which no digit of a number of bytes is lost."""
    return decimal.Context(prec=len(data) * 3 + 1)


def _decimal_bytes(schema: Schema, value: Any) -> Any:
    """The unscaled number of a decimal as bytes."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return NotImplemented
    text, scale = str(value), _scale(schema)
    try:
        parts = decimal.Decimal(text).as_tuple()
    except decimal.InvalidOperation:
        raise SerdeError(f"{value!r} is no decimal number") from None
    exponent = parts.exponent
    if not isinstance(exponent, int) or abs(exponent) > _DIGITS_MOST:
        raise SerdeError(f"{value!r} is no decimal number")
    number = int("".join(map(str, parts.digits)))
    shift = exponent + scale
    if shift < 0 and number % 10**-shift:
        raise SerdeError(f"{value!r} has more than {scale} digits after the point")
    number = number * 10**shift if shift >= 0 else number // 10**-shift
    precision = schema.get("precision")
    if isinstance(precision, int) and len(str(number)) > precision:
        raise SerdeError(f"{value!r} has more than {precision} digits")
    signed = -number if parts.sign else number
    size = schema.get("size") if schema.get("type") == "fixed" else None
    try:
        return signed.to_bytes(size or (signed.bit_length() // 8 + 1), "big", signed=True)
    except OverflowError:
        raise SerdeError(f"{value!r} does not fit in {size} bytes") from None

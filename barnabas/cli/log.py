"""`barnabas log`: dump files of a data directory, and verify a whole directory."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from typing import Any

import click

from barnabas.cli import log_verify
from barnabas.cli.errors import NOT_GOOD, OK, CommandError
from barnabas.cli.log_dump import Row, rows_of
from barnabas.cli.log_verify import Fault, PartitionReport
from barnabas.cli.options import ending, json_option
from barnabas.cli.output import Column, Output, cell, note, progress
from barnabas.json_text import json_line
from barnabas.texts import count_text, time_text

SECOND_LOOK_S = 0.5
SHOWN_FAULTS = 1000


@click.group()
def log() -> None:
    """Read the files of a data directory of Barnabas or Apache Kafka, even while a broker uses it.
    Nothing is ever written.
    """


@log.command(
    epilog=ending(
        "barnabas log dump data/orders-0/00000000000000000000.log",
        "barnabas log dump data/orders-0/00000000000000000000.log --records --json",
        "barnabas log dump data/__consumer_offsets-12/*.log --records",
        "barnabas log dump data/orders-0/*.index data/barnabas-flush-*.journal",
    )
)
@click.argument(
    "paths",
    metavar="FILE...",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, dir_okay=False),
)
@click.option(
    "-r", "--records", is_flag=True, help="Print the records in a segment's batches, too."
)
@click.option(
    "-n", "--count", metavar="N", type=click.IntRange(1), help="Stop after N rows of each file."
)
@json_option
def dump(output: Output, paths: Sequence[str], records: bool, count: int | None) -> None:
    """Print the content of a file.

    FILE is any file of a data directory, such as a segment, an index, a snapshot, a journal or a
    checkpoint; its name says which. Bytes that cannot be read are a row of their own, or the error
    says why. The records of __consumer_offsets and __transaction_state are shown by their fields.
    --json prints one object per line.
    """
    for path in paths:
        rows = rows_of(path, records=records)
        if output.as_json:
            for number, row in enumerate(rows):
                if number == count:
                    break
                if len(paths) > 1:
                    row = {"file": path, **row}
                sys.stdout.write(json_line(row) + "\n")
            continue
        if len(paths) > 1:
            output.heading(path)
        shown = []
        for number, row in enumerate(rows):
            if number == count:
                break
            shown.append(row)
        if not shown:
            note("the file is empty" if not os.path.getsize(path) else "the file has no entries")
        else:
            _print_rows(output, shown)


def _print_rows(output: Output, rows: list[Row]) -> None:
    """Print the rows of a file in the form that fits them: lines, batches with records, or
    a table.
    """
    if "line" in rows[0]:
        for row in rows:
            output.line(row["line"])
    elif "records" in rows[0] or (len(rows) > 1 and any("records" in row for row in rows)):
        for row in rows:
            output.line(_batch_line(row), "name")
            for record in row.get("records", ()):
                output.line(f"  {_record_line(record)}")
    else:
        keys = list(dict.fromkeys(key for row in rows for key in row))
        columns = [Column(key, _title(key)) for key in keys if key != "timestamp"]
        output.table([{key: _field(value) for key, value in row.items()} for row in rows], columns)


def _title(key: str) -> str:
    return key.removesuffix("_ms").removesuffix("_bytes").replace("_", " ").upper()


def _field(value: Any) -> Any:
    """A value of a row as text, a dict as key=value pairs."""
    if isinstance(value, dict):
        return " ".join(f"{key}={_field(part)}" for key, part in value.items())
    return value


def _batch_line(row: Row) -> str:
    """A batch of a segment as one line."""
    if "base_offset" not in row:
        return f"byte {row['position']}: {row['error']}"
    parts = [
        f"offsets {row['base_offset']} to {row['last_offset']}",
        f"byte {row['position']}",
        f"{row['size_bytes']} bytes",
        row["kind"],
    ]
    if row["codec"] != "none":
        parts.append(row["codec"])
    if row["producer_id"] is not None:
        parts.append(f"producer {row['producer_id']} epoch {row['producer_epoch']}")
        parts.append(f"sequence {row['base_sequence']}")
    if not row["crc_is_right"]:
        parts.append("CRC IS WRONG")
    return ", ".join(parts) + (f": {row['error']}" if "error" in row else "")


def _record_line(record: Row) -> str:
    """A record as one line; records of internal topics by their fields."""
    head = f"{record['offset']}  {time_text(record['timestamp_ms'])}"
    if "kind" not in record:
        key, value = _blob(record.get("key")), _blob(record.get("value"))
        headers = "".join(f"  {name}={_blob(part)}" for name, part in record.get("headers", ()))
        error = f"  ({record['error']})" if "error" in record else ""
        return f"{head}  {key}: {value}{headers}{error}"
    if record["kind"] == "marker":
        return f"{head}  {record['marker']} marker"
    fields = {
        key: value for key, value in record.items() if key not in ("offset", "timestamp_ms", "kind")
    }
    words = ", ".join(
        f"{key.removesuffix('_ms')} {_words(value, key)}" for key, value in fields.items()
    )
    return f"{head}  {record['kind']}: {words}"


def _words(value: Any, key: str) -> str:
    """A field of an internal topic's record as text. Members are shown by client id and host."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "; ".join(f"{row['client_id']} at {row['client_host']}" for row in value)
    return cell(value, key)


def _blob(value: Any) -> str:
    """A key or value as text."""
    if isinstance(value, dict):
        return f"base64 {value['base64']}"
    return "null" if value is None else str(value)


# --- verify -------------------------------------------------------------------------------------


@log.command(
    epilog=ending(
        "barnabas log verify data",
        "barnabas log verify data/orders-0",
        "barnabas log verify /var/lib/kafka --json",
        not_good="faults found",
    )
)
@click.argument(
    "directories",
    metavar="DIRECTORY...",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, file_okay=False),
)
@click.option(
    "--compacted",
    is_flag=True,
    help="Missing offsets are allowed, since all partitions were compacted.",
)
@click.option(
    "--no-records",
    is_flag=True,
    help="Do not read the records in batches: faster, but finds fewer faults.",
)
@click.option(
    "--in-use",
    is_flag=True,
    help="A broker runs in the directory, if the command cannot detect it.",
)
@json_option
def verify(
    output: Output, directories: Sequence[str], compacted: bool, no_records: bool, in_use: bool
) -> int:
    """Check every file of a data directory.

    DIRECTORY may also be that of one partition. The command reads every batch, and shows the file
    and the position of each fault. Unfinished writes of a running broker are not faults. Exit code
    3 if there are faults.
    """
    reports: list[PartitionReport] = []
    faults: list[Fault] = []
    partitions, data_dirs = _find(directories)
    total = sum(_log_bytes(path) for path in partitions)
    with progress("bytes", total) as bar:
        for path in partitions:
            data_dir = os.path.dirname(os.path.abspath(path))
            used = in_use or log_verify.is_in_use(data_dir)
            name = os.path.basename(os.path.abspath(path))
            may_have_gaps = compacted or name in log_verify.compacted_partitions(data_dir)

            def look(path: str = path, used: bool = used, gaps: bool = may_have_gaps) -> Any:
                return log_verify.verify_partition(
                    path, in_use=used, compacted=gaps, opens=not no_records, advance=bar.advance
                )

            report = look()
            # A running broker may have written during the reads, so read again and report only the
            # faults that were found both times.
            if report.faults and used:
                time.sleep(SECOND_LOOK_S)
                again = look()
                kept = [fault for fault in again.faults if fault in report.faults]
                report = again._replace(faults=tuple(kept))
            reports.append(report)
            faults += report.faults
    faults += log_verify.verify_topic_ids(partitions)
    for data_dir in data_dirs:
        used = in_use or log_verify.is_in_use(data_dir)
        faults += log_verify.verify_data_files(data_dir, in_use=used)
    _show_result(output, reports, faults)
    return NOT_GOOD if faults else OK


def _find(directories: Sequence[str]) -> tuple[list[str], list[str]]:
    """The partitions to be verified, and the data directories."""
    partitions, data_dirs = [], []
    for directory in directories:
        if log_verify.is_partition_directory(directory):
            partitions.append(directory)
            continue
        within = log_verify.partition_directories(directory)
        if not within and not os.path.exists(f"{directory}/meta.properties"):
            raise CommandError(
                f"{directory} is neither a data directory nor a partition's: name the directory of "
                "--data-dir (log.dirs), or one of the directories TOPIC-PARTITION in it"
            )
        partitions += within
        data_dirs.append(directory)
    return partitions, data_dirs


def _log_bytes(directory: str) -> int:
    """The size of a partition's segments, for the progress bar."""
    return sum(
        entry.stat().st_size for entry in os.scandir(directory) if entry.name.endswith(".log")
    )


def _show_result(output: Output, reports: list[PartitionReport], faults: list[Fault]) -> None:
    """Print the faults, the open transactions and the totals."""
    totals = {
        "partitions": len(reports),
        "segments": sum(report.segments for report in reports),
        "batches": sum(report.batches for report in reports),
        "records": sum(report.records for report in reports),
        "bytes": sum(report.size_bytes for report in reports),
    }
    if output.as_json:
        output.data(
            {
                "good": not faults,
                **totals,
                "open_transactions": [
                    {"partition": report.name, "producer_id": producer_id, "start_offset": first}
                    for report in reports
                    for producer_id, first in report.open_transactions
                ],
                "faults": [
                    {
                        "file": fault.path,
                        "position": None if fault.position < 0 else fault.position,
                        "fault": fault.text,
                    }
                    for fault in faults
                ],
            }
        )
        return
    for fault in faults[:SHOWN_FAULTS]:
        place = f", byte {fault.position}" if fault.position >= 0 else ""
        output.line(f"{fault.path}{place}: {fault.text}", "bad")
    if len(faults) > SHOWN_FAULTS:
        output.line(f"and {len(faults) - SHOWN_FAULTS} more (--json has all)", "bad")
    for report in reports:
        for producer_id, first in report.open_transactions:
            text = (
                f"{report.name}: producer {producer_id} has an open transaction from offset {first}"
            )
            output.line(text, "warning")
    singular = {"batches": "batch"}
    counts = ", ".join(
        count_text(number, singular.get(noun, noun[:-1]), noun) for noun, number in totals.items()
    )
    verdict = count_text(len(faults), "fault") if faults else "no faults"
    output.line(f"{verdict} in {counts}", "bad" if faults else "good")

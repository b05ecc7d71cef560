"""The command line without `start` and `settings`: topics, groups, records, transactions, settings
and the files of a log.

    commands     which commands there are; the help of `barnabas`, without click
    root         the command `barnabas` itself, which loads a command's module when it is named
    options      what commands have in common: how to reach a cluster, and values such as TOPIC-0
    cluster      clients of a cluster, made of these options
    client       the client that administrates a cluster: a package
    waiting      --timeout, what a command waits for, Ctrl-C
    probe        which security protocol a port speaks
    denied       refusals by ACLs, and the command that grants the missing permission
    errors       exit codes; errors as one line that says what to do
    output       tables for people, JSON for programs
    offsets      partitions and their offsets
    records      records as lines of text and JSON
    consuming    what consume reads and prints
    producing    what produce reads and sends
    serde        keys and values by schemas: Avro, Protobuf, JSON Schema
    topics, groups, config, produce, consume, check, certs, completion     commands
    graduate     the commands graduate, which hands a data directory over to Apache Kafka, and
                 take-over, which brings it back
    txn          the command, with why_stuck, which explains which transaction blocks a partition
    log          the command, with log_dump, log_verify, log_batches and log_indexes

A command's function has a parameter for each of its options, as click requires; some have more than
eight.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

# How many objects are made before Python looks for garbage: with its default of 700, doing so while
# modules are imported takes a twelfth of a command's CPU.
GARBAGE_AFTER = 50_000


def run(arguments: Sequence[str], broker_parser: Callable[[], argparse.ArgumentParser]) -> int:
    """Run one command; gives its exit code.

    Takes:  broker_parser, which makes the parser of `start` and `settings`, for their help and
            completion.
    Raises: ModuleNotFoundError if click or rich, which the extra `cli` installs, is missing.
    """
    before = gc.get_threshold()
    gc.set_threshold(GARBAGE_AFTER, *before[1:])
    try:
        from barnabas.cli.root import run_command

        return run_command(arguments, broker_parser)
    finally:
        gc.set_threshold(*before)

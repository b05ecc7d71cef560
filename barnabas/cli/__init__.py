"""The command line but for `start` and `settings`: topics, groups, records, transactions, settings,
log files.

root         the command `barnabas` itself, which loads a group of commands when it is named
options      what commands have in common: how to reach a cluster, and values such as TOPIC-0
cluster      clients of kafka-python, made of these options
errors       exit codes; errors as one line that says what to do
output       tables for people, JSON for programs
topics, groups, produce, consume, txn, check, config, log, completion       the commands
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence


def run(arguments: Sequence[str], broker_parser: argparse.ArgumentParser) -> int:
    """Run one command; gives its exit code.

    Takes:  broker_parser, the parser of `start` and `settings`, for their help and completion.
    Raises: ModuleNotFoundError where click or rich is missing, which the extra `cli` brings.
    """
    from barnabas.cli.root import run_command

    return run_command(arguments, broker_parser)

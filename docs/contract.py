"""Writes docs/CONTRACT.md: what the documents behind this project ask for, and what shows it.

The items are the tables below. A test, an example or a page that shows an item has a marker with
the item's name:

    # contract: kip-98/fencing                     in Python, within the function or in the module
    <!-- contract: paper/figure-5a -->             in a page

An item without a marker needs a reason in `WITHOUT`, and a marker needs an item, so that the page
stays true when a test or a section goes.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "CONTRACT.md"

MARKER = re.compile(r"^\s*(?:#|<!--) contract: ([a-z0-9/ ,-]+?)\s*(?:-->)?$", re.MULTILINE)
FUNCTION = re.compile(r"^(?:async )?def (test_\w+)", re.MULTILINE)
FOLDERS = ("tests", "docs", "examples", "bench", "spark_connector")


class Source(NamedTuple):
    """A document, and what it asks for."""

    name: str
    title: str
    items: dict[str, str]


SOURCES = (
    Source(
        "kip-98",
        "[KIP-98](https://cwiki.apache.org/confluence/display/KAFKA/KIP-98+-+Exactly+Once+Delivery+and+Transactional+Messaging): "
        "idempotent producers and transactions",
        {
            "sequences": "a batch that is sent again is acknowledged and not written again",
            "window": "the last five batches of a producer are known, also after a restart",
            "gaps": "a sequence that does not follow the last one is refused",
            "producer-ids": "no producer id is given twice",
            "atomic": "records of several partitions are committed together or not at all",
            "offsets": "offsets of the input are part of the transaction of the output",
            "fencing": "of two producers with one transactional id, the former is refused",
            "sessions": "a new session aborts or completes what the former one left",
            "order": "the record that adds a partition is written before the first batch there",
            "decision": "once it is decided, a transaction comes to its end, through crashes",
            "undecided": "before it is decided, nothing of a transaction is seen",
            "markers": "markers of a decision that are written again do no harm",
            "timeout": "a transaction that takes too long is aborted, and its producer fenced",
            "id-expiration": "unused transactional ids expire; open ones do not",
            "producer-expiration": "inactive producers are forgotten, unless they have a transaction open",
            "last-stable-offset": "readers of committed records end at the first open transaction",
            "aborted-index": "a fetch lists the aborted transactions of its data",
            "compaction": "the cleaner keeps markers while their data are there, and removes them after",
            "rights": "each request needs the right that Kafka asks for",
            "records": "the records of the transaction log are Kafka's, byte by byte",
            "repeated-end": "an end whose answer was lost is answered again with the same outcome",
            "damage": "damage to any file of the log is found, and ends neither the broker nor a neighbour",
            "corrupt-log": "a damaged transaction log is noticed at a start",
            "space": "the space that transactions take, measured",
            "why-not-whole": "the four reasons why a reader may see half of a transaction",
        },
    ),
    Source(
        "kip-129",
        "[KIP-129](https://cwiki.apache.org/confluence/display/KAFKA/KIP-129%3A+Streams+Exactly-Once+Semantics): "
        "exactly once in stream processing",
        {
            "loop": "read, transform, write: each input counts once, through kills of the worker at each step",
            "clients": "the same with three stock clients",
            "streams": "Kafka Streams with exactly_once_v2, through kills of broker and instances",
            "rewind": "after an abort the worker goes back to the committed offsets",
            "committed-input": "the loop reads committed records only",
            "broker-kill": "the same through a kill of the broker within a transaction",
            "state": "state that is journaled in the transaction and restored after an unclean end",
        },
    ),
    Source(
        "kip-447",
        "[KIP-447](https://cwiki.apache.org/confluence/display/KAFKA/KIP-447%3A+Producer+scalability+for+exactly+once+semantics): "
        "one producer for each thread",
        {
            "group-fencing": "offsets of a transaction are refused by generation, member and instance",
            "require-stable": "a new owner of a partition waits while its offset is undecided",
            "abandoned": "an abandoned transaction holds the group up until its timeout only",
            "expired-worker": "a worker whose session expired aborts, with a transactional id of its own",
            "rebalance": "exactly once while members join and are killed",
            "former-clients": "offsets without a member are accepted, as of clients before it",
            "two-bounces": "two rolling bounces from a producer for each task to one for each thread",
        },
    ),
    Source(
        "paper",
        "*Consistency and Completeness: Rethinking Distributed Stream Processing in Apache Kafka* "
        "(SIGMOD 2021)",
        {
            "figure-2": "the running example: filter, re-key, count in windows",
            "repartition": "stream time belongs to a task, as behind a repartition topic",
            "state-store": "the state's changelog restores it after a kill",
            "figure-5a": "throughput and latency over the number of output partitions",
            "figure-5b": "throughput and latency over the commit interval",
            "figure-5a-stateful": "figure 5a with a stateful reduce and its changelog",
            "trigger-interval": "the curve of figure 5b over Spark's trigger interval",
            "revisions": "a result is emitted at once and revised by late records",
            "grace": "a record that is later than the grace is dropped or set aside",
            "compacted-table": "the topic of revisions is a table of the last result of each key",
            "suppress-close": "a window's result emitted once, when it closes",
            "suppress-time": "revisions held back for a time, and consolidated",
            "stream-stream-join": "a stream-stream left join whose null result waits for the grace",
            "table-table-join": "a table-table left join with amendments",
            "retraction": "an aggregation of a table retracts the old value and adds the new one",
            "grace-per-operator": "two operators of one query with different grace",
            "three-services": "three services one after the other, commits of 100 ms",
            "suppressed-services": "the same with suppression of 1,500 ms",
            "many-producers": "32 producers with 100 partitions",
            "snapshots": "consistent snapshots: state at a past cut, from changelogs",
        },
    ),
    Source(
        "article",
        "processing guarantees and what a crash costs",
        {
            "fire-and-forget": "fire and forget: what a producer loses that waits for no answer",
            "auto-commit": "auto-commit: what a consumer loses that commits by the clock",
            "at-most-once": "at most once: loses, never doubles",
            "at-least-once": "at least once: doubles, never loses",
            "exactly-once": "exactly once: neither",
            "offsets-with-rows": "offsets are stored with the rows of a database",
            "upsert": "an upsert that repetition and disorder do not change",
            "deduplication": "de-duplication by key, by sequence, and by what is stored",
            "two-phase": "a row and a record, both or neither",
            "file-again": "a file that is sent again after half of it",
            "replaced-files": "results as files that are replaced atomically",
            "composed": "the guarantee of several steps is that of the weakest",
            "filters": "a Bloom or cuckoo filter for de-duplication, with its error",
        },
    ),
)

WITHOUT = {}
"""The items that nothing shows, each with the reason."""


def markers() -> dict[str, list[str]]:
    """Return links to the places that have a marker, by item."""
    found: dict[str, list[str]] = defaultdict(list)
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix not in {".py", ".md"} or path in (TARGET, Path(__file__).resolve()):
                continue
            text = path.read_text("utf-8")
            if "contract: " not in text:
                continue
            for match in MARKER.finditer(text):
                for item in re.split(r"[,\s]+", match[1].strip()):
                    link = _link(path, text, match.start())
                    if link not in found[item]:
                        found[item].append(link)
    return found


def _link(path: Path, text: str, position: int) -> str:
    """A link to a test's file with the test's name, or to a page with its heading."""
    target = os.path.relpath(path, TARGET.parent).replace(os.sep, "/")
    before = text[:position]
    if path.suffix == ".md":
        headings = re.findall(r"^#+ (.+)$", before, re.MULTILINE)
        return f"[{path.relative_to(ROOT)}]({target}): {headings[-1]}"
    tests = FUNCTION.findall(before)
    name = f"`{tests[-1]}`" if tests else "the whole"
    return f"[{path.relative_to(ROOT)}]({target}): {name}"


def faults() -> list[str]:
    """Return what is wrong: markers without an item, items without a marker and a reason, and
    reasons for items that have a marker.
    """
    found = markers()
    items = {f"{source.name}/{item}" for source in SOURCES for item in source.items}
    return [
        *(
            f"{item}: a marker names it, docs/contract.py does not"
            for item in found
            if item not in items
        ),
        *(f"{item}: no marker" for item in sorted(items - found.keys() - WITHOUT.keys())),
        *(f"{item}: remove it from WITHOUT" for item in WITHOUT if item in found),
        *(f"{item}: WITHOUT has an unknown item" for item in WITHOUT.keys() - items),
    ]


def text() -> str:
    """The page."""
    found = markers()
    if problems := faults():
        raise SystemExit("\n".join(problems))
    count = sum(len(source.items) for source in SOURCES)
    lines = [
        "# The contract",
        "",
        "*Written by `make docs-pages` from markers in tests, examples and pages, and from the "
        "items of `docs/contract.py`.*",
        "",
        "What the documents behind this project ask for, item by item, and the test, example or\n"
        "page that shows it. An item whose test is removed is an error.",
        "",
        f"{count - len(WITHOUT)} of {count} items are shown. The others say why not.",
    ]
    for source in SOURCES:
        lines += ["", f"## {source.title}", "", "| item | shown by |", "|---|---|"]
        for item, words in source.items.items():
            name = f"{source.name}/{item}"
            shown = "<br>".join(found[name]) if name in found else f"**no**: {WITHOUT[name]}"
            lines.append(f"| {words} | {shown} |")
    return "\n".join(lines) + "\n"

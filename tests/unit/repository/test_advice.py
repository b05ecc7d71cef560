"""Each command, setting and address that a message, the page or a document advises is one that
works. Commands are parsed by the command line itself.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import re
import shlex
from pathlib import Path

import click
import pytest
from helpers import advice
from helpers.advice import PLACEHOLDER, ROOT, Advice

from barnabas.broker.security.acls import CLUSTER_NAME, Operation, ResourceType
from barnabas.broker.security.refusals import command_that_allows
from barnabas.broker.settings.group_configs import GROUP_SETTINGS
from barnabas.cli.root import make_root
from barnabas.console.rim.source import refusal_text
from barnabas.daemon.arguments import parser

ROOT_COMMAND = make_root(parser)
# what may stand for a PLACEHOLDER: a word, or no word
VALUES = ("orders-0", "0", "read", "topic:orders", "127.0.0.1:9092", "")
# words in capitals that have to have a form
FORMS = {
    "TOPIC-PARTITION": "orders-0",
    "TOPIC-N": "orders-0",
    "N": "1",
    "PORT": "1",
    "HOST:PORT": "127.0.0.1:9092",
}
# the reader's files are not here
NO_FILE = re.compile(r"does not exist|No such file|there is no file|is not a directory")
# the name of a program, not a command
NAMES = {"barnabas demo"}


def refusal(words: list[str]) -> str:
    """Why the command line refuses words; empty if it takes them. Nothing is run."""
    if words[0] in ("start", "settings"):
        said = io.StringIO()
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            try:
                parser().parse_args(words)
            except SystemExit as end:
                return said.getvalue() if end.code else ""
        return ""
    command: click.Command = ROOT_COMMAND
    context = click.Context(command, info_name="barnabas")
    while isinstance(command, click.Group):
        if not words or words[0].startswith("-"):
            return "" if not words or words[0] in ("--help", "--version") else f"{words[0]}?"
        found = command.get_command(context, words[0])
        if found is None:
            return f"there is no command {words[0]}"
        context = click.Context(found, info_name=words[0], parent=context)
        command, words = found, words[1:]
    if all(word.startswith("--") for word in words):
        # the text only names an option of the command
        known = {name for option in command.params for name in (*option.opts, "--help")}
        return "".join(f"no option {word}" for word in words if word not in known)
    try:
        command.make_context(str(context.info_name), list(words), parent=context.parent)
    except click.ClickException as error:
        text = error.format_message()
        return "" if NO_FILE.search(text) else text
    return ""


def refusal_of_advice(words: list[str]) -> str:
    """The same for words in which PLACEHOLDER stands for something: one value has to fit."""
    words = [FORMS.get(word, word) for word in words if word != "…"]
    count = sum(word.count(PLACEHOLDER) for word in words)
    why = ""
    for values in itertools.product(VALUES, repeat=min(count, 4)):
        rest = iter(values)
        filled = [
            "".join(next(rest, "x") if one == PLACEHOLDER else one for one in word)
            for word in words
        ]
        # a word that is empty in the advice itself is an argument
        why = refusal(
            [word for word, as_advised in zip(filled, words, strict=True) if word or not as_advised]
        )
        if not why:
            return ""
    return why


@pytest.fixture(autouse=True)
def _no_profiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "/nonexistent")


SOURCES = {"messages": advice.strings, "the page": advice.page, "documents": advice.documents}


@pytest.mark.parametrize("source", SOURCES)
def test_each_command_that_is_advised_is_one_that_works(source: str) -> None:
    found = list(advice.commands(SOURCES[source]()))
    assert found, "the source has no commands, so nothing was checked"
    wrong = [
        (one.where, one.text, why)
        for one, words in found
        if one.text not in NAMES
        and not words[0].startswith((PLACEHOLDER, "…"))
        and (why := refusal_of_advice(words))
    ]
    assert wrong == []


def test_a_wrong_command_would_be_found() -> None:
    texts = (
        Advice("a", "Do `barnabas topics make NAME`."),
        Advice("b", "  Next: barnabas start --no-such-option"),
        Advice("c", f"`barnabas acl add {PLACEHOLDER} describe cluster:kafka-cluster`"),
        Advice("d", "$ barnabas topics create orders --partitions many | cat"),
        Advice("e", "`barnabas topics create orders --partitions 3`, and `barnabas groups`"),
    )
    wrong = {one.where for one, words in advice.commands(texts) if refusal_of_advice(words)}
    assert wrong == {"a", "b", "c", "d"}
    assert len(list(advice.commands(texts))) == 6


@pytest.mark.parametrize("kind", [one for one in ResourceType if one > ResourceType.ANY])
def test_the_command_that_allows_what_was_refused(kind: ResourceType) -> None:
    """The log and the console make it at run time, for each operation and kind of resource."""
    for operation in Operation:
        if operation <= Operation.ANY:
            continue
        name = CLUSTER_NAME if kind == ResourceType.CLUSTER else "two words"
        command = command_that_allows("User:CN=ada, O=x", operation, kind, name)
        assert refusal(shlex.split(command)[1:]) == "", command
        assert f"`{command}`" in refusal_text("User:CN=ada, O=x", operation, kind, name)


# --- settings -------------------------------------------------------------------------------------

_PAGE = (ROOT / "docs" / "CONFIGURATION.md").read_text("utf-8")  # made from the tables of settings
SETTINGS = {*re.findall(r"^\| `([\w.]+)`", _PAGE, re.MULTILINE), *GROUP_SETTINGS}
SET_TO = re.compile(r"(?<![\w./@-])([a-z][a-z0-9]*(?:\.[a-z0-9]+)+)(?==)")
OURS = re.compile(r"(?<![\w./@-])barnabas(?:\.[a-z_][a-z_0-9]*)+")
# names that other programs read, with a value
OF_OTHERS = re.compile(
    r"(spark|kafka|listener\.name|sasl|ssl|security|metadata\.recovery|fetch\.queue)\..+|"
    r"(auto\.offset\.reset|enable\.auto\.commit|isolation\.level|group\.protocol|partition\.assignment\.strategy|"
    r"basic\.auth\.user\.info|config\.providers|"
    r"param\.allowlist\.pattern|controller\.quorum\.voters|cluster\.id|directory\.id)"
)
# features (KIP-584), loggers, and Kafka's settings of groups
FEATURES = {"group.version", "share.version", "streams.version", "transaction.version"}
LOGGERS = {
    match
    for path in (ROOT / "broker", ROOT / "storage", ROOT / "coordinator", ROOT / "barnabas")
    for file in path.rglob("*.py")
    for match in re.findall(r"getLogger\(\"(barnabas\.[\w.]+)\"", file.read_text("utf-8"))
}


@pytest.mark.parametrize("source", SOURCES)
def test_each_setting_that_is_advised_with_a_value_exists(source: str) -> None:
    wrong = {
        (one.where, match[1])
        for one in SOURCES[source]()
        for match in SET_TO.finditer(one.text)
        if match[1] not in SETTINGS | FEATURES | LOGGERS and not OF_OTHERS.fullmatch(match[1])
    }
    assert wrong == set()


def exists(name: str) -> bool:
    """Whether a name that begins with `barnabas.` is a setting, or the beginning of one; a logger;
    or a module, or something in a module.
    """
    if name in SETTINGS | LOGGERS or any(one.startswith(f"{name}.") for one in SETTINGS):
        return True
    parts = name.split(".")
    for count in range(len(parts), 1, -1):
        path = ROOT / "barnabas" / "/".join(parts[1:count])
        if path.is_dir() or path.with_suffix(".py").is_file():
            return True
    return False


@pytest.mark.parametrize("source", SOURCES)
def test_each_name_of_ours_exists(source: str) -> None:
    found = {match[0] for one in SOURCES[source]() for match in OURS.finditer(one.text)}
    assert {name for name in found if not exists(name)} <= EXAMPLES


# a fixture's method; the setting that CONTRIBUTING.md adds; the key of a marker's header
EXAMPLES = {"barnabas.ok", "barnabas.topics.max", "barnabas.whole"}


# --- addresses ------------------------------------------------------------------------------------

DOCUMENT = re.compile(r"\b((?:docs|spark_connector|barnabas|packaging)/[\w./-]+\.md)(#[\w-]+)?")
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(#[^)\s]*)?\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def headings(path: Path) -> set[str]:
    """The addresses of a document's headings, as GitHub and the site make them."""
    text = FENCE.sub("", path.read_text("utf-8"))
    names = set()
    for title in re.findall(r"^#+ +(.+?) *$", text, re.MULTILINE):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title).lower()
        name = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        names |= {f"#{name}", f"#{re.sub('-+', '-', name)}"}
    return names | {f"#{name}" for name in re.findall(r'<a (?:id|name)="([^"]+)"', text)}


@pytest.mark.parametrize("source", ["messages", "the page"])
def test_each_document_that_is_advised_exists(source: str) -> None:
    wrong = [
        (one.where, match[0])
        for one in SOURCES[source]()
        for match in DOCUMENT.finditer(one.text)
        if not (ROOT / match[1]).is_file()
        or (match[2] and match[2] not in headings(ROOT / match[1]))
    ]
    assert wrong == []


def test_each_link_between_documents_leads_to_a_heading() -> None:
    wrong = []
    for one in advice.documents():
        page = ROOT / one.where
        for path, anchor in LINK.findall(FENCE.sub("", one.text)):
            target = page if not path else page.parent / path
            if not target.exists():
                wrong.append((one.where, path))
            elif anchor and target.suffix == ".md" and anchor not in headings(target):
                wrong.append((one.where, path + anchor))
    assert wrong == []


def test_no_document_has_a_heading_twice() -> None:
    """A link would lead to the first one only."""
    texts = {one.where: one.text for one in advice.documents()}
    for path in (ROOT / "tests").rglob("*.md"):
        texts[path.relative_to(ROOT).as_posix()] = path.read_text("utf-8")
    twice = [
        (where, title)
        for where, text in texts.items()
        for titles in [re.findall(r"^#+ .+$", FENCE.sub("", text), re.MULTILINE)]
        for title in sorted(set(titles))
        if titles.count(title) > 1
    ]
    assert (len(texts) > 40, twice) == (True, [])


def test_each_link_of_the_page_is_a_view() -> None:
    main = (ROOT / "barnabas/console/static/main.js").read_text()
    views = set(re.findall(r"^  \"?([a-z-]*)\"?: \{ draw:", main, re.MULTILINE))
    linked = {
        name for one in advice.page() for name in re.findall(r"\"#/([a-z-]*)", one.text) if name
    }
    assert linked and linked <= views, views

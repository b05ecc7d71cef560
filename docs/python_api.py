"""Writes docs/PYTHON_API.md from the docstrings of the public modules.

Run it with `make docs-pages`. A test checks that the page is up to date. griffe reads the
docstrings without importing the modules.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import NamedTuple

import griffe

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "PYTHON_API.md"
_BEFORE = """\
# The Python API

*Written by `make docs-pages` from the docstrings.* A parameter after `*` is given by name.
[TESTING.md](TESTING.md), [PIPELINE.md](PIPELINE.md) and
[TWO_PHASE_COMMIT.md](TWO_PHASE_COMMIT.md) show these in use; the options of
`format("barnabas")` are in [SPARK_OPTIONS.md](SPARK_OPTIONS.md) and in the connector's
[README](../spark_connector/README.md).
"""
# The first words of the sections in docstrings, and the titles that the page uses for them.
_SECTION = re.compile(r"(Takes|Gives|Raises|After|Source): *")
_TITLES = {
    "Takes": "Parameters",
    "Gives": "Returns",
    "Raises": "Raises",
    "After": "Afterwards",
    "Source": "Source",
}


class Chapter(NamedTuple):
    """A heading of the page. The names of one module are described below it."""

    title: str
    module: str
    # The module from which users import. Names that it does not contain are imported from `module`.
    public_module: str
    names: tuple[str, ...]


CHAPTERS = (
    Chapter(
        "A broker for tests",
        "barnabas.local_broker",
        "barnabas",
        ("LocalBroker", "BrokerStartError", "BrokerNotRunningError"),
    ),
    Chapter(
        "Its faults and its clock", "barnabas.control", "", ("Control", "Fault", "ControlError")
    ),
    Chapter(
        "Topics and transactions of a broker",
        "barnabas.admin",
        "",
        ("Admin", "NewTopic", "OpenTransaction", "AdminError"),
    ),
    Chapter(
        "Fixtures of pytest",
        "barnabas.pytest_plugin",
        "",
        ("barnabas_broker", "barnabas_topic", "fresh_barnabas_broker", "barnabas_options"),
    ),
    Chapter(
        "Certificates", "barnabas.certificates", "", ("make_certificates", "CertificatesError")
    ),
    Chapter(
        "Two-phase commit",
        "barnabas.spark_connector.two_phase_producer",
        "barnabas",
        ("TwoPhaseProducer", "TwoPhaseError"),
    ),
    Chapter(
        "Spark",
        "barnabas.spark_connector.session",
        "barnabas.spark",
        ("local_session", "MissingRequirementError"),
    ),
    Chapter("", "barnabas.spark_connector.read.query_lag", "barnabas.spark", ("lag",)),
)


def text() -> str:
    """The whole file."""
    parts = [_BEFORE]
    for chapter in CHAPTERS:
        if chapter.title:
            parts.append(f"## {chapter.title}\n")
        module = _read(chapter.module)
        public = chapter.public_module or chapter.module
        for name in chapter.names:
            is_public = name in (_read(public).exports or ())
            found = module[name]
            assert isinstance(found, griffe.Object)
            parts.append(_described(found, public if is_public else chapter.module))
    return "\n".join(parts)


def _read(module: str) -> griffe.Module:
    """Read only this module. It uses griffe's visitor, since its loader would load the whole
    package.
    """
    path = ROOT / module.replace(".", "/")
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return griffe.visit(module, filepath=path, code=path.read_text("utf-8"))


def _described(one: griffe.Object, imported_from: str) -> str:
    """Make the page's section about a class or function."""
    if isinstance(one, griffe.Function) and any(
        "fixture" in str(mark.value) for mark in one.decorators
    ):
        return f"### {one.name}\n\n{_prose(one)}"
    lines = [f"### {one.name}\n", f"```python\nfrom {imported_from} import {one.name}\n```\n"]
    if isinstance(one, griffe.Function):
        lines.append(_signature(one))
        return "\n".join([*lines, _prose(one)])
    initial = one.members.get("__init__")
    if isinstance(initial, griffe.Function):
        lines.append(_signature(initial, one.name))
    lines.append(_prose(one))
    fields = [
        f"- `{member.name}: {member.annotation}`"
        for member in one.members.values()
        if isinstance(member, griffe.Attribute)
        and "property" not in member.labels
        and not member.name.startswith("_")
        and member.annotation is not None
        and initial is None
    ]
    if fields:
        lines.append("\n".join(fields) + "\n")
    for member in one.members.values():
        if member.name.startswith("_"):
            continue
        if isinstance(member, griffe.Function) or (
            isinstance(member, griffe.Attribute) and "property" in member.labels
        ):
            lines.append(_member(one.name, member))
    return "\n".join(lines)


def _member(class_name: str, member: griffe.Function | griffe.Attribute) -> str:
    """Make the part of a class's section that describes one method or property."""
    head = f"#### {class_name}.{member.name}\n"
    if isinstance(member, griffe.Function):
        return "\n".join([head, _signature(member), _prose(member)])
    return "\n".join(
        [head, f"```python\n{member.name}: {member.annotation}\n```\n", _prose(member)]
    )


def _signature(function: griffe.Function, name: str = "") -> str:
    """Format the parameters with their types, either on one line or on a line each.

    Takes:  name, the name of the class if the function is its `__init__`.
    """
    parts, by_name_only = [], False
    for parameter in function.parameters:
        if parameter.name == "self":
            continue
        if parameter.kind is griffe.ParameterKind.keyword_only and not by_name_only:
            by_name_only = True
            parts.append("*")
        stars = {
            griffe.ParameterKind.var_positional: "*",
            griffe.ParameterKind.var_keyword: "**",
        }.get(parameter.kind, "")
        by_name_only = by_name_only or stars == "*"
        one = f"{stars}{parameter.name}"
        if parameter.annotation is not None:
            one += f": {parameter.annotation}"
        if parameter.default is not None and not stars:
            one += f" = {parameter.default}"
        parts.append(one)
    returns = "" if name or function.returns is None else f" -> {function.returns}"
    name = name or function.name
    short = f"{name}({', '.join(parts)}){returns}"
    if len(short) > 92:
        short = f"{name}(\n" + "".join(f"    {part},\n" for part in parts) + f"){returns}"
    return f"```python\n{short}\n```\n"


def _prose(one: griffe.Object) -> str:
    """Convert the docstring to Markdown. Its sections (Takes, Gives, …) become paragraphs."""
    if one.docstring is None:
        return ""
    paragraphs: list[str] = []
    maker = one.members.get("__init__") if one.is_class else one
    parameters = (
        [parameter.name for parameter in maker.parameters]
        if isinstance(maker, griffe.Function)
        else []
    )
    for block in re.split(r"\n\s*\n", one.docstring.value.strip()):
        if block.startswith("    "):  # an example
            paragraphs.append(f"```\n{textwrap.dedent(block)}\n```")
            continue
        joined = ""
        for line in block.splitlines():
            stripped = line.strip()
            if _SECTION.match(stripped) and joined:
                paragraphs.append(_titled(joined, parameters))
                joined = ""
            joined = f"{joined} {stripped}".strip()
        paragraphs.append(_titled(joined, parameters))
    return "\n\n".join(paragraphs) + "\n"


def _titled(paragraph: str, parameters: list[str]) -> str:
    """Convert a paragraph to one with a title. A section about parameters becomes a list.

    Takes:  parameters, the names of the documented parameters.
    """
    found = _SECTION.match(paragraph)
    if not found:
        return _with_titles(paragraph)
    title, rest = _TITLES[found[1]], _with_titles(paragraph[found.end() :])
    names = "|".join(re.escape(name) for name in parameters)
    first = re.compile(rf"(?:^|(?<=[.;] ))({names})(?:: |, )")
    starts = [match.start() for match in first.finditer(rest)] if names else []
    if found[1] != "Takes" or not starts or starts[0] > 0:
        return f"*{title}:* {rest}"
    rows = [rest[start:end].strip() for start, end in zip(starts, [*starts[1:], None], strict=True)]
    listed = "\n".join(first.sub(r"`\1`: ", row, count=1).rstrip(";") for row in rows)
    return f"*{title}:*\n\n" + textwrap.indent(listed, "- ")


def _with_titles(text: str) -> str:
    """Return the text with the first word of each section inside it replaced by the section's
    title.
    """
    return _SECTION.sub(lambda found: f"*{_TITLES[found[1]]}:* ", text)

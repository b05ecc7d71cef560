"""`python -m barnabas.protocol.generator` generates protocol/messages/, protocol/internal_records/
and protocol/api_table.py.

With --check, it only prints the names of modules that differ from the schemas.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from barnabas.protocol.generator import record_codecs
from barnabas.protocol.generator.api_rows import apis, table_text
from barnabas.protocol.generator.emit import module_name, module_text
from barnabas.protocol.generator.schema import FAMILIES, family_of, structs_of

TARGET = Path(__file__).parent.parent / "messages"
RECORDS = TARGET.parent / "internal_records"
API_TABLE = TARGET.parent / "api_table.py"
WRITTEN_BY_HAND = {"__init__.py", "message.py", "record.py", "record_schema.py"}


def formatted(text: str) -> str:
    """Format the text with ruff."""
    for arguments in (["format"], ["check", "--fix", "--quiet"], ["format"]):
        command = [
            sys.executable,
            "-m",
            "ruff",
            *arguments,
            "--stdin-filename",
            str(TARGET / "generated.py"),
            "-",
        ]
        text = subprocess.run(
            command, input=text, capture_output=True, text=True, check=True
        ).stdout
    return text


def main(arguments: list[str] | None = None) -> int:
    """Generate or check the modules. Gives: the exit code, which is 1 if --check finds a
    difference.
    """
    parser = argparse.ArgumentParser(prog="make protocol", description=__doc__)
    parser.add_argument(
        "--check",
        action="store_true",
        help="write no file; exit 1 if a module differs from the schemas",
    )
    only_check = parser.parse_args(arguments).check
    spoken = apis()
    first_versions = {api.name: api.min_version for api in spoken}
    modules = {f"{module_name(name)}.py": name for name in sorted(api.name for api in spoken)}
    texts = {
        TARGET / file_name: module_text(api_name, structs_of(api_name, first_versions[api_name]))
        for file_name, api_name in modules.items()
    }
    for family in map(family_of, sorted(FAMILIES.glob("*.json"))):
        texts[RECORDS / f"{family.name}.py"] = record_codecs.module_text(family)
    texts[API_TABLE] = table_text()
    differing = [
        path.name
        for folder in (TARGET, RECORDS)
        for path in folder.glob("*.py")
        if path not in texts and path.name not in WRITTEN_BY_HAND
    ]
    for path, unformatted in texts.items():
        text = formatted(unformatted)
        if path.exists() and path.read_text() == text:
            continue
        differing.append(path.name)
        if not only_check:
            path.write_text(text)
    if only_check and differing:
        print(
            f"these differ from the schemas: {', '.join(differing)}; run `make protocol`",
            file=sys.stderr,
        )
    return int(only_check and bool(differing))


if __name__ == "__main__":
    sys.exit(main())

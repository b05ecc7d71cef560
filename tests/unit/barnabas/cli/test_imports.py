"""The package and the command line import only modules that they use."""

from __future__ import annotations

import subprocess
import sys

import pytest
from helpers.places import ROOT

COMMAND = "from barnabas.daemon.main import main; main({arguments!r})"
HEAVY = ("asyncio", "anyio", "click", "rich", "kafka", "email", "urllib.request", "http")


def _loaded(source: str) -> set[str]:
    """The modules that are loaded when the program ends."""
    done = subprocess.run(
        [sys.executable, "-c", f"{source}\nimport sys; print('LOADED', *sys.modules)"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        cwd=ROOT,
    )
    return set(done.stdout.rpartition("LOADED ")[2].split())


@pytest.mark.parametrize(
    "source",
    [
        "import barnabas",
        COMMAND.format(arguments=["--help"]),
        COMMAND.format(arguments=[]),
    ],
)
def test_the_package_and_its_help_load_nothing_heavy(source: str) -> None:
    bare = _loaded("")
    assert sorted(set(HEAVY) & (_loaded(source) - bare)) == []


OF_SCHEMAS = ("fastavro", "google.protobuf", "grpc_tools", "jsonschema", "referencing")
SCHEMAS = {
    "from barnabas.schemas.avro import AvroSerde; AvroSerde('\"long\"')": {"fastavro"},
    "from barnabas.schemas.json_schema import JsonSchemaSerde; JsonSchemaSerde('true')": {
        "jsonschema",
        "referencing",
    },
    "from barnabas.schemas.protobuf import compile_text; compile_text('', {}, '')": {
        "google.protobuf",
        "grpc_tools",
    },
}


@pytest.mark.parametrize("command", ["consume", "produce"])
def test_commands_load_no_library_of_schemas(command: str) -> None:
    found = _loaded(COMMAND.format(arguments=[command, "--help"]))
    assert found & {*OF_SCHEMAS, "http.client"} == set()


@pytest.mark.parametrize("source", SCHEMAS)
def test_a_schema_loads_the_library_of_its_kind(source: str) -> None:
    assert _loaded(source) & set(OF_SCHEMAS) == SCHEMAS[source]


def test_the_broker_loads_no_library_of_schemas_for_its_console() -> None:
    rim = "barnabas.console.rim"
    found = _loaded(f"import {rim}.endpoint, {rim}.decoder")
    assert found & {*OF_SCHEMAS, "barnabas.schemas.registry"} == set()

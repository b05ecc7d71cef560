"""Makes the command that installs extras of Barnabas, for hints and error messages."""

from __future__ import annotations

from typing import Any

NAME = "barnabas"


def install_command(*extras: str) -> str:
    """The command that installs extras of the running Barnabas, from its original source.

    Takes:  extras, such as `cli`, by their names in pyproject.toml.
    Gives:  a line for a shell. It names the project if that was installed from an index; otherwise
            it names the wheel, archive or checkout, since an index may not have this version.
    Source: PEP 610 (direct_url.json), PEP 508 (`name[extra] @ URL`).
    """
    return f"pip install {_requirement(','.join(extras))}"


def _requirement(extras: str) -> str:
    """The argument of `pip install`, quoted for a shell: the project's name, the URL of a wheel or
    archive, or an editable checkout. Takes: extras, separated by commas; may be empty.
    """
    named = f"{NAME}[{extras}]" if extras else NAME
    origin = _origin()
    url = origin.get("url")
    if url is None:
        return f"'{named}'"
    if origin.get("dir_info", {}).get("editable"):
        from urllib.parse import unquote, urlsplit

        folder = unquote(urlsplit(url).path)
        return f"--editable '{folder}[{extras}]'" if extras else f"--editable '{folder}'"
    return f"'{named} @ {url}'"


def _origin() -> dict[str, Any]:
    """What pip recorded about the source of this installation; empty if the source was an index."""
    import importlib.metadata  # imported here, since the start of a broker does not need it
    import json

    try:
        text = importlib.metadata.distribution(NAME).read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:  # run from a folder, not installed
        return {}
    noted: dict[str, Any] = json.loads(text) if text else {}
    return noted

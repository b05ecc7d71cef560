"""Profiles and environment variables: their precedence, and the permissions of the file."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.cli_commands import CommandLine

from barnabas.cli import profiles
from barnabas.cli.profiles import Profile, Profiles, read_profiles, write_profiles
from barnabas.local_broker import LocalBroker

pytestmark = pytest.mark.e2e

PASSWORD = "open-sesame"


@pytest.fixture(scope="module")
def brokers() -> Iterator[tuple[LocalBroker, LocalBroker]]:
    """A broker without authentication, and a broker with users."""
    settings = {"connection.failed.authentication.delay.ms": "1"}
    with (
        LocalBroker(topics=["free"]) as free,
        LocalBroker(users={"alice": PASSWORD}, topics=["guarded"], settings=settings) as guarded,
    ):
        yield free, guarded


@pytest.fixture
def barnabas(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> CommandLine:
    """The command line, with the profiles in a temporary directory."""
    barnabas = CommandLine(monkeypatch, capsys)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return barnabas


def _add_both(barnabas: CommandLine, brokers: tuple[LocalBroker, LocalBroker]) -> None:
    """Add a profile for each of the two brokers; the first becomes the current profile."""
    free, guarded = brokers
    barnabas.ok("profile", "add", "free", "-b", free.bootstrap_servers)
    settings = ("security.protocol=SASL_PLAINTEXT", "sasl.mechanism=SCRAM-SHA-512")
    user = ("sasl.username=alice",)
    options = [option for value in (*settings, *user) for option in ("-c", value)]
    where = ("-b", guarded.bootstrap_servers, "--password-file", "-")
    barnabas.ok("profile", "add", "guarded", *where, *options, stdin=PASSWORD + "\n")


def test_profiles_are_added_used_shown_and_removed(
    barnabas: CommandLine, brokers: tuple[LocalBroker, LocalBroker], tmp_path: Path
) -> None:
    assert "profile add" in barnabas.ok("profile", "list").err
    _add_both(barnabas, brokers)
    assert "free" in barnabas.ok("topics", "list").out, "the first one is the current one"
    assert "guarded" in barnabas.ok("topics", "list", "--profile", "guarded").out
    barnabas.ok("profile", "use", "guarded")
    assert "guarded" in barnabas.ok("topics", "list").out
    listed = barnabas.ok("profile", "list", "--json").data
    assert [(row["profile"], row["current"], row["user"]) for row in listed] == [
        ("free", False, None),
        ("guarded", True, "alice"),
    ]
    shown = barnabas.ok("profile", "show")
    assert "(hidden)" in shown.out
    assert PASSWORD not in shown.out + shown.err
    assert PASSWORD not in barnabas.ok("profile", "show", "--json").out
    assert PASSWORD in barnabas.ok("profile", "show", "--secrets").out
    file = tmp_path / "config" / "barnabas" / "profiles.toml"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert [path.name for path in file.parent.iterdir()] == ["profiles.toml"]
    file.chmod(0o644)
    assert f"chmod 600 {file}" in barnabas.ok("profile", "list").err
    barnabas.ok("profile", "use", "free")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600, "the next write makes it private again"
    asked = barnabas("profile", "add", "free", "-b", "127.0.0.1:1")
    assert (asked.code, "--yes" in asked.err) == (2, True), "it would replace another one"
    assert barnabas("profile", "remove", "guarded").code == 2
    barnabas.ok("profile", "remove", "guarded", "--yes")
    assert PASSWORD not in file.read_text()
    barnabas.ok("profile", "use", "--none")
    assert barnabas("profile", "show").code == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("profile", "use", "nope"), "there is no profile 'nope'"),
        (("profile", "show", "nope"), "there is no profile 'nope'"),
        (("profile", "remove", "nope", "--yes"), "there is no profile 'nope'"),
        (("topics", "list", "--profile", "nope"), "there is no profile 'nope'"),
        (("profile", "add", "x", "-c", "sasl.mechansim=PLAIN"), "sasl.mechansim is unknown"),
        (("profile", "add", "x", "-b", "host:port"), "is not an address"),
    ],
)
def test_mistakes_are_named(barnabas: CommandLine, arguments: tuple[str, ...], said: str) -> None:
    refused = barnabas(*arguments)
    assert (refused.code, said in refused.err) == (1, True), refused


def test_an_option_overrides_the_environment_which_overrides_the_profile(
    barnabas: CommandLine,
    brokers: tuple[LocalBroker, LocalBroker],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, guarded = brokers
    _add_both(barnabas, brokers)

    def topic(*arguments: str) -> str:
        ended = barnabas("topics", "list", *arguments, "--timeout", "60")
        if ended.code:
            return ended.err.splitlines()[-1]
        return ended.out.split()[4]  # the first cell below the table's head

    # For the profile's name, the option overrides the environment, which overrides the default.
    assert topic() == "free"
    monkeypatch.setenv("BARNABAS_PROFILE", "guarded")
    assert topic() == "guarded"
    assert topic("--profile", "free") == "free"
    # For the address, the option overrides the environment, which overrides the profile.
    monkeypatch.setenv("BARNABAS_BOOTSTRAP_SERVER", "127.0.0.1:1")
    assert "no broker at 127.0.0.1:1" in topic()
    assert topic("-b", guarded.bootstrap_servers) == "guarded"
    monkeypatch.delenv("BARNABAS_BOOTSTRAP_SERVER")
    # For a setting, the environment overrides the profile.
    monkeypatch.setenv("BARNABAS_SASL_PASSWORD", "wrong")
    assert "refuses the login" in topic()
    # If a file is given as an option, each setting in the file overrides the environment.
    file = tmp_path / "client.properties"
    file.write_text(f"sasl.password={PASSWORD}\n")
    of_environment = {
        "BARNABAS_SECURITY_PROTOCOL": "SASL_PLAINTEXT",
        "BARNABAS_SASL_MECHANISM": "SCRAM-SHA-512",
        "BARNABAS_SASL_USERNAME": "alice",
    }
    for name, value in of_environment.items():
        monkeypatch.setenv(name, value)
    assert topic("--client-config", str(file)) == "guarded"
    # Environment variables override a file that is named in the environment.
    monkeypatch.setenv("BARNABAS_CLIENT_CONFIG", str(file))
    assert "refuses the login" in topic()
    monkeypatch.delenv("BARNABAS_SASL_PASSWORD")
    assert topic() == "guarded"
    # If there is a file, the profile's settings are ignored.
    for name in of_environment:
        monkeypatch.delenv(name)
    assert "needs security.protocol=SASL_PLAINTEXT" in topic()
    monkeypatch.setenv("BARNABAS_TIMEOUT", "none")
    assert barnabas("topics", "list").code == 2


def test_names_of_profiles_are_completed(
    barnabas: CommandLine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_profiles(Profiles(None, {"staging": Profile("a:1"), "prod": Profile("b:1")}))
    from barnabas.daemon.main import main

    monkeypatch.setenv("_BARNABAS_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "barnabas topics list --profile st")
    monkeypatch.setenv("COMP_CWORD", "4")
    with pytest.raises(SystemExit):
        main([])
    assert capsys.readouterr().out.split() == ["plain,staging"]


@pytest.mark.parametrize(
    "text", ['say "hi"', "back\\slash", "ä – 注", "tab\tand\x7f", "two\nlines", "a.b = c", ""]
)
def test_profiles_with_any_text_are_written_and_read_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    written = Profiles(text or None, {text: Profile(text or None, 2.5, {text: text})})
    write_profiles(written)
    assert read_profiles() == written


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[profiles.a", "is not a file of profiles"),
        ("[profile.a]\n", "profile is unknown"),
        ("[profiles.a]\nserver = 'x'\n", "a.server is unknown"),
        ("[profiles.a]\ntimeout = 'x'\n", "a.timeout must be a number"),
        ("[profiles.a.settings]\nx = 1\n", "a.settings must be texts"),
    ],
)
def test_a_wrong_file_is_named(barnabas: CommandLine, text: str, said: str) -> None:
    file = profiles.profiles_file()
    file.parent.mkdir(parents=True)
    file.write_text(text)
    refused = barnabas("topics", "list")
    assert (refused.code, said in refused.err, str(file) in refused.err) == (1, True, True)

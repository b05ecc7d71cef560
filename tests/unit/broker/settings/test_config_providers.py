"""Values that a configuration file takes from files and the environment with Apache Kafka's
syntax.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.broker.settings.config_providers import resolve
from barnabas.broker.settings.setting import ConfigError

PACKAGE = "org.apache.kafka.common.config.provider"
ENVIRONMENT = {"SECRET": "of-the-environment", "HOME": "/root"}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "secrets").write_text("key=of-a-file\nother.key = with = signs\n")
    (tmp_path / "name").write_text("of-a-directory\n")
    return tmp_path


def value(text: str, **providers: str) -> str:
    """Return the value of ssl.key.password after this text in the file has been resolved. Keywords
    are settings of providers: `_env_param_x` is config.providers.env.param.x.
    """
    settings = {f"config.providers{name}".replace("_", "."): to for name, to in providers.items()}
    settings.setdefault("config.providers", "file,env,directory")
    return resolve({**settings, "ssl.key.password": text}, ENVIRONMENT)["ssl.key.password"]


def test_values_come_from_files_directories_and_the_environment(directory: Path) -> None:
    assert value(f"${{file:{directory}/secrets:key}}") == "of-a-file"
    assert value(f"${{file:{directory}/secrets:other.key}}") == "with = signs"
    assert value(f"${{directory:{directory}:name}}") == "of-a-directory"
    assert value("${env:SECRET}") == "of-the-environment"
    assert value("a ${env:SECRET}, ${env:HOME}.") == "a of-the-environment, /root."


def test_provider_settings_are_removed_from_the_broker_settings() -> None:
    taken = resolve({"config.providers": "env", "config.providers.env.class":
                     f"{PACKAGE}.EnvVarConfigProvider", "node.id": "1"}, {})  # fmt: skip
    assert taken == {"node.id": "1"}


def test_providers_by_other_names(directory: Path) -> None:
    names = {"": "secrets", "_secrets_class": f"{PACKAGE}.FileConfigProvider"}
    assert value(f"${{secrets:{directory}/secrets:key}}", **names) == "of-a-file"


@pytest.mark.parametrize("text", ["${}", "${x}", "$1", "${other:key}", "RULE:^(.*)$/${1}/"])
def test_other_texts_are_left_as_they_are(text: str) -> None:
    assert value(text) == text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("${env:NONE}", "is not there"),
        ("${file:/none:key}", "No such file"),
        ("${file:{}/secrets:none}", "is not there"),
        ("${directory:{}:none}", "is not there"),
        ("${directory:{}/x:../secrets}", "must be in that directory"),
    ],
)
def test_the_error_for_a_missing_value_shows_no_other_value(
    directory: Path, text: str, words: str
) -> None:
    """The values are secrets: each begins with "of-a", which the error must not contain."""
    with pytest.raises(ConfigError, match=r"^ssl\.key\.password: ") as error:
        value(text.replace("{}", str(directory)))
    assert words in str(error.value)
    assert "of-a" not in str(error.value)


def test_the_error_for_a_bad_escape_in_a_provided_file_does_not_quote_the_file(
    directory: Path,
) -> None:
    (directory / "bad").write_text("key=pass\\user\n")
    with pytest.raises(ConfigError, match="four hexadecimal digits") as error:
        value(f"${{file:{directory}/bad:key}}")
    assert "user" not in str(error.value)


def test_a_reference_without_its_provider_is_told_of() -> None:
    with pytest.raises(ConfigError, match=r"needs config\.providers=env"):
        value("${env:SECRET}", **{"": "file"})


@pytest.mark.parametrize("class_name", ["x.Vault", ""])
def test_providers_that_there_are_not(class_name: str) -> None:
    with pytest.raises(ConfigError, match=r"config\.providers\.vault\.class"):
        value("x", **{"": "vault", "_vault_class": class_name})


def test_providers_read_only_allowed_paths_and_variable_names(directory: Path) -> None:
    inside = {"_file_param_allowed_paths": str(directory)}
    assert value(f"${{file:{directory}/secrets:key}}", **inside) == "of-a-file"
    with pytest.raises(ConfigError, match=r"allowed\.paths"):
        value(f"${{file:{directory}/../secrets:key}}", **inside)
    pattern = {"_env_param_allowlist_pattern": "SEC.*"}
    assert value("${env:SECRET}", **pattern) == "of-the-environment"
    with pytest.raises(ConfigError, match="not there"):
        value("${env:HOME}", **pattern)
    with pytest.raises(ConfigError, match="allowlist"):
        value("x", _env_param_allowlist_pattern="(")


@pytest.mark.parametrize("provider", ["file", "directory"])
def test_a_path_with_a_nul(provider: str) -> None:
    with pytest.raises(ConfigError, match=r"a path has no NUL|is not there"):
        resolve({"config.providers": provider, "ssl.key.password": f"${{{provider}:/a\0b:k}}"}, {})

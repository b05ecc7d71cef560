"""`barnabas graduate` and `take-over`, on a directory that a broker has used."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.admin_host import NODE_ID, AdminHost, creatable
from helpers.cli_commands import CommandLine

from barnabas.storage.disk import OsDisk


@pytest.fixture
def barnabas(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    """The command line."""
    return CommandLine(monkeypatch, capsys)


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """The directory of a stopped broker. Partitions that never had a batch have no files."""
    host = AdminHost(tmp_path)
    host.create(creatable("orders", 2, configs={"retention.ms": "-1"}))
    host.broker.topics.logs_of("orders")[0].files.make()
    host.close()
    return tmp_path / "data"


def names(directory: Path) -> dict[str, bytes]:
    """The content of each file below a directory, by its relative path."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


def test_a_dry_run_shows_the_plan_and_changes_nothing(
    barnabas: CommandLine, data_dir: Path
) -> None:
    before = names(data_dir)
    answer = barnabas.ok("graduate", str(data_dir), "--dry-run", "--json", "--kafka", "3.9").data
    assert (answer["topics"], answer["partitions"], answer["kafka"]) == (1, 2, "3.9")
    assert answer["topic_configs"] == {"orders": {"retention.ms": "-1"}}
    assert answer["features"] == {"metadata.version": 21}
    assert answer["next"][0] == f"bin/kafka-server-start.sh {data_dir}/server.properties"
    text = barnabas.ok("graduate", str(data_dir), "--dry-run").out
    assert "Nothing was changed" in text
    assert "process.roles=broker,controller" in text
    assert names(data_dir) == before


def test_listeners_that_are_not_given_are_a_note(barnabas: CommandLine, data_dir: Path) -> None:
    graduate = ("graduate", str(data_dir), "--dry-run")
    answer = barnabas.ok(*graduate, "--json").data
    assert any("127.0.0.1:9092" in note and "listeners" in note for note in answer["notes"])
    assert "note: no listeners are set" in barnabas.ok(*graduate).out
    given = ("--broker-set", "listeners=PLAINTEXT://127.0.0.1:21320")
    assert "no listeners" not in " ".join(barnabas.ok(*graduate, "--json", *given).data["notes"])


def test_a_dry_run_shows_no_private_key(
    barnabas: CommandLine, data_dir: Path, tmp_path: Path
) -> None:
    config = tmp_path / "server.properties"
    config.write_text("ssl.keystore.key=-----BEGIN PRIVATE KEY-----\\nMIIEsecret==\\n-----END\n")
    text = barnabas.ok("graduate", str(data_dir), "--dry-run", "--config", str(config)).out
    assert "ssl.keystore.key=(hidden)" in text
    assert "MIIEsecret" not in text


def test_a_take_over_after_a_hand_over_restores_the_broker(
    barnabas: CommandLine, data_dir: Path, tmp_path: Path
) -> None:
    text = barnabas.ok("graduate", str(data_dir), "--set", "max.message.bytes=5").out
    assert "is handed over to Apache Kafka 4.3" in text
    properties = data_dir / "server.properties"
    assert f"node.id={NODE_ID}\n" in properties.read_text()
    assert properties.stat().st_mode & 0o077 == 0
    refused = barnabas("graduate", str(data_dir))
    assert (refused.code, "handed over already" in refused.err) == (1, True)
    assert "would be brought back" in barnabas.ok("take-over", str(data_dir), "--dry-run").out
    answer = barnabas.ok("take-over", str(data_dir), "--json").data
    assert answer["topics_configured"] == ["orders"]
    host = AdminHost(tmp_path)
    configs = host.broker.metadata.topics["orders"].configs
    assert configs == {"retention.ms": "-1", "max.message.bytes": "5"}
    host.close()
    refused = barnabas("take-over", str(data_dir))
    assert (refused.code, "was not handed over" in refused.err) == (1, True)


def test_settings_of_the_start_that_keep_data_are_shown_on_both_ways(
    barnabas: CommandLine, data_dir: Path, tmp_path: Path
) -> None:
    file = tmp_path / "my server.properties"
    file.write_text("log.retention.ms=-1\noffsets.retention.minutes=525600\n")
    text = barnabas.ok("graduate", str(data_dir), "--config", str(file)).out
    assert f"then barnabas take-over {data_dir} --config '{file}'" in text
    refused = barnabas("take-over", str(data_dir))
    assert (refused.code, "offsets.retention.minutes=525600" in refused.err) == (1, True)
    assert "--config FILE" in refused.err
    given = ("--broker-set", "offsets.retention.minutes=525600")
    answer = barnabas.ok("take-over", str(data_dir), *given, "--dry-run", "--json").data
    assert answer["settings_kept"] == {"log.retention.ms": "-1"}
    start = f"barnabas start --data-dir {data_dir}"
    assert answer["next"] == [f"{start} --set offsets.retention.minutes=525600"]
    text = barnabas.ok("take-over", str(data_dir), "--config", str(file)).out
    assert f"Next: {start} --config '{file}'" in text


def test_a_hand_over_without_the_settings_of_the_start_is_refused(
    barnabas: CommandLine, data_dir: Path, tmp_path: Path
) -> None:
    AdminHost(tmp_path, log_retention_hours="-1").close()
    refused = barnabas("graduate", str(data_dir), "--recover", "--abort-transactions")
    assert (refused.code, "was started with log.retention.hours=-1" in refused.err) == (1, True)
    given = ("--broker-set", "log.retention.hours=-1")
    answer = barnabas.ok("graduate", str(data_dir), *given, "--json").data
    assert answer["broker_default_configs"]["log.retention.ms"] == "-1"


def test_a_copy_leaves_the_original(barnabas: CommandLine, data_dir: Path, tmp_path: Path) -> None:
    before = names(data_dir)
    target = tmp_path / "kafka" / "logs"
    barnabas.ok("graduate", str(data_dir), "--to", str(target))
    assert names(data_dir) == before
    assert f"log.dirs={target}\n" in (target / "server.properties").read_text()
    assert (target / "orders-1" / f"{0:020}.log").exists()
    assert [path.name for path in target.parent.iterdir()] == ["logs"]
    refused = barnabas("graduate", str(data_dir), "--to", str(target))
    assert (refused.code, "exists: name a new directory" in refused.err) == (1, True)


def test_only_an_unfinished_copy_is_removed(
    barnabas: CommandLine, data_dir: Path, tmp_path: Path
) -> None:
    """`graduate` removes the remains of an earlier copy, which has a marker file. A directory of
    the same name without the marker is refused and kept.
    """
    target, unfinished = tmp_path / "copy", tmp_path / "copy.unfinished"
    unfinished.mkdir()
    (unfinished / "file.txt").write_text("a user's file")
    refused = barnabas("graduate", str(data_dir), "--to", str(target))
    assert (refused.code, "move it away" in refused.err) == (1, True)
    assert (unfinished / "file.txt").exists()
    (unfinished / "barnabas-unfinished").touch()  # marks the copy as unfinished
    barnabas.ok("graduate", str(data_dir), "--to", str(target))
    assert not unfinished.exists()
    assert not (target / "barnabas-unfinished").exists()


def test_a_running_or_killed_broker_is_refused(barnabas: CommandLine, data_dir: Path) -> None:
    lock = OsDisk().lock(str(data_dir / ".lock"))
    refused = barnabas("graduate", str(data_dir))
    assert (refused.code, "in use by a broker" in refused.err) == (1, True)
    lock.release()
    host = AdminHost(data_dir.parent)
    host.broker.topics.set_broker_configs({"log.retention.ms": "77"})
    host.close()
    (data_dir / ".kafka_cleanshutdown").unlink()
    refused = barnabas("graduate", str(data_dir))
    assert (refused.code, "pass --recover" in refused.err) == (1, True)
    answer = barnabas.ok("graduate", str(data_dir), "--recover", "--abort-transactions", "--json")
    assert answer.data["topics"] == 1
    assert answer.data["broker_configs"] == {"log.retention.ms": "77"}
    assert "log.retention.ms" not in answer.data["broker_default_configs"]


def test_a_damaged_log_refuses_the_hand_over_unless_it_is_not_verified(
    barnabas: CommandLine, data_dir: Path
) -> None:
    segment = data_dir / "orders-0" / f"{0:020}.log"
    segment.write_bytes(b"no batch at all, and long enough to be one: " * 4)
    refused = barnabas("graduate", str(data_dir))
    assert refused.code == 1
    assert str(segment) in refused.err
    barnabas.ok("graduate", str(data_dir), "--no-verify")


def test_wrong_settings_are_named(barnabas: CommandLine, data_dir: Path) -> None:
    refused = barnabas("graduate", str(data_dir), "--set", "retention=1")
    assert "unknown topic setting retention" in refused.err
    refused = barnabas("graduate", str(data_dir), "--broker-set", "num.partition=1")
    assert "unknown setting num.partition" in refused.err

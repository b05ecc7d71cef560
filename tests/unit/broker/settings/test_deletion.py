"""Settings that decide what is deleted stay in force on the way to Apache Kafka and back, or the
way is refused with their names.
"""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from helpers.admin_host import NOW_MS
from helpers.graduation import (
    DATA,
    config_of,
    flush,
    new_disk,
    opened,
    planned,
    properties_of,
    run_kafka,
)
from sim.disk import SimDisk

from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.deletion import (
    DELETING_BROKER_SETTINGS,
    DELETING_TOPIC_SETTINGS,
    NOTE_NAME,
    StartNote,
    is_topic_default,
)
from barnabas.broker.settings.properties import read_properties
from barnabas.broker.settings.rows_broker import BROKER_SETTINGS
from barnabas.broker.settings.rows_topic import TOPIC_SETTINGS
from barnabas.broker.settings.setting import Kind
from barnabas.broker.settings.topic_config import topic_setting_value
from barnabas.graduation.bootstrap import encode_bootstrap
from barnabas.graduation.bring_back import BringBackReport, bring_back
from barnabas.graduation.kafka_directory.kafka_records import CONFIG, KafkaRecord
from barnabas.graduation.steps import PROPERTIES_NAME, hand_over
from barnabas.graduation.survey import GraduationError, take_survey
from barnabas.storage.disk import NotWrittenError

WORDS_OF_DELETION = (
    "retention", "cleanup.policy", "compaction", "cleanable", "cleaner.enable", "delete.topic",
    "expiration.ms", "segment.bytes", "segment.ms", "segment.jitter", "roll.", "timestamp.type",
)  # fmt: skip
# Settings with such a name that decide nothing about data of topics, groups or producers.
NOT_ABOUT_DELETION = {
    "log.local.retention.bytes": "there is no tiered storage",
    "local.retention.bytes": "there is no tiered storage",
    "log.local.retention.ms": "there is no tiered storage",
    "local.retention.ms": "there is no tiered storage",
    "log.retention.check.interval.ms": "how often it is checked, not what is deleted",
    "offsets.retention.check.interval.ms": "how often it is checked, not what is deleted",
    "offsets.topic.segment.bytes": "a compacted topic of the broker's own",
    "share.coordinator.state.topic.segment.bytes": "a compacted topic of the broker's own",
    "transaction.state.log.segment.bytes": "a compacted topic of the broker's own",
}
# Kafka 4.3 takes no smaller segments.
VALUES = {"log.segment.bytes": str(2 << 20), "log.cleanup.policy": "compact"}


def other_value(name: str) -> str:
    """A value of a broker's setting that is not its default."""
    setting = BROKER_SETTINGS[name]
    if name in VALUES:
        return VALUES[name]
    if setting.kind is Kind.BOOLEAN:
        return "false" if setting.default else "true"
    if setting.choices:
        return next(one for one in setting.choices if one != setting.default)
    if setting.kind is Kind.DOUBLE:
        return "0.25"
    return "-1" if setting.never else "12345"


TOPIC_DEFAULTS = sorted(name for name in DELETING_BROKER_SETTINGS if is_topic_default(name))
OTHERS = sorted(name for name in DELETING_BROKER_SETTINGS if not is_topic_default(name))


def effective(config: BrokerConfig, name: str) -> Any:
    """The value that the broker uses: of a topic's setting for a topic that does not set it."""
    for setting in TOPIC_SETTINGS.values():
        if name in setting.synonyms:
            return topic_setting_value(config, {}, setting.name)
    return config[name]


def filled(**settings: str) -> SimDisk:
    """A directory that a broker with these settings has used and stopped cleanly."""
    disk = new_disk()
    broker = opened(disk, **settings)
    broker.topics.create_topic("t", 1, {}, topic_id=uuid.UUID(int=5), now_ms=NOW_MS)
    broker.topics.logs_of("t")[0].files.make()
    broker.close_logs(NOW_MS)
    return disk


def handed_over(disk: SimDisk, **settings: str) -> None:
    plan = planned(disk, **settings)
    hand_over(disk, DATA, plan, encode_bootstrap(plan, NOW_MS), lambda path: flush(disk, path))


def brought_back(disk: SimDisk, **settings: str) -> BringBackReport:
    return bring_back(disk, DATA, config_of(**settings), lambda path: flush(disk, path))


def config_at_start(disk: SimDisk, **settings: str) -> BrokerConfig:
    """The settings of a broker that was started on the directory, with those of its journal."""
    broker = opened(disk, **settings)
    broker.close_logs(NOW_MS)
    config = config_of(**settings)
    config.set_dynamic(broker.metadata.broker_configs)
    config.set_dynamic_defaults(broker.metadata.broker_default_configs)
    return config


def test_each_setting_with_a_word_of_deletion_is_judged() -> None:
    """A new setting with such a name has to be flagged in its row, or to be listed here."""
    named = {
        name
        for name in [*TOPIC_SETTINGS, *BROKER_SETTINGS]
        if any(word in name for word in WORDS_OF_DELETION)
    }
    flagged = DELETING_TOPIC_SETTINGS | DELETING_BROKER_SETTINGS
    assert named - flagged == NOT_ABOUT_DELETION.keys()
    assert flagged - named == {"remote.storage.enable"}


@pytest.mark.parametrize("name", sorted(DELETING_BROKER_SETTINGS))
def test_on_the_way_to_kafka_a_setting_of_the_start_is_kept_or_named(name: str) -> None:
    settings = {name.replace(".", "_"): other_value(name)}
    disk = filled(**settings)
    with pytest.raises(GraduationError, match=rf"started with {name}=.*pass --config FILE"):
        planned(disk)
    plan = planned(disk, **settings)
    given = read_properties(plan.properties) | plan.broker_default_configs | plan.broker_configs
    kafkas = BrokerConfig.from_properties(
        {key: text for key, text in given.items() if key in DELETING_BROKER_SETTINGS}
    )
    assert effective(kafkas, name) == effective(config_of(**settings), name)
    assert effective(kafkas, name) != effective(config_of(), name)
    other = planned(disk, **{name.replace(".", "_"): str(BROKER_SETTINGS[name].render(
        BROKER_SETTINGS[name].default) or 77)})  # fmt: skip
    assert other.notes == []  # the operator's word, since the setting is named


@pytest.mark.parametrize("name", TOPIC_DEFAULTS)
def test_on_the_way_back_a_default_of_topics_stays_in_force(name: str) -> None:
    settings = {name.replace(".", "_"): other_value(name)}
    expected = effective(config_of(**settings), name)
    disk = filled(**settings)
    handed_over(disk, **settings)
    run_kafka(disk)
    report = brought_back(disk)
    assert len(report.kept) == 1
    assert effective(config_at_start(disk), name) == expected
    # the settings kept go to Kafka again, although no file has them
    plan = planned(disk)
    assert plan.broker_default_configs.items() >= report.kept.items()


@pytest.mark.parametrize("name", TOPIC_DEFAULTS)
def test_on_the_way_back_the_file_of_the_next_start_decides(name: str) -> None:
    settings = {name.replace(".", "_"): other_value(name)}
    disk = filled(**settings)
    handed_over(disk, **settings)
    run_kafka(disk)
    report = brought_back(disk, **settings)
    assert (report.kept, report.differing) == ({}, [])
    config = config_at_start(disk, **settings)
    assert effective(config, name) == effective(config_of(**settings), name)
    assert config.dynamic_defaults == {}


@pytest.mark.parametrize("name", OTHERS)
def test_on_the_way_back_another_setting_has_to_be_given(name: str) -> None:
    settings = {name.replace(".", "_"): other_value(name)}
    disk = filled(**settings)
    handed_over(disk, **settings)
    run_kafka(disk)
    for is_there in (True, False):
        if not is_there:  # the note of the last start says it, too
            disk.unlink(f"{DATA}/{PROPERTIES_NAME}")
        with pytest.raises(GraduationError, match=rf"has {name}=.*pass --config FILE"):
            brought_back(disk)
    brought_back(disk, **settings)


def test_a_default_that_was_written_into_kafkas_file_has_to_be_given() -> None:
    disk = filled()
    handed_over(disk)
    run_kafka(disk)
    text = disk.read(f"{DATA}/{PROPERTIES_NAME}")
    disk.write_atomic(f"{DATA}/{PROPERTIES_NAME}", text + b"log.retention.hours = -1\n")
    with pytest.raises(GraduationError, match=r"has log\.retention\.hours=-1, which decides"):
        brought_back(disk)
    brought_back(disk, log_retention_ms="-1")


def test_a_default_that_was_changed_or_removed_under_kafka_is_as_kafka_had_it() -> None:
    for value, expected in (("5000", 5000), (None, 7 * 86_400_000)):
        disk = filled(log_retention_ms="-1")
        handed_over(disk, log_retention_ms="-1")
        fields = {"resource_type": 4, "resource_name": "", "name": "log.retention.ms"}
        run_kafka(disk, [KafkaRecord(CONFIG, {**fields, "value": value})])
        assert brought_back(disk).kept == {}
        assert effective(config_at_start(disk), "log.retention.ms") == expected


def test_a_shorter_retention_in_the_file_of_the_next_start_is_named() -> None:
    disk = filled(log_retention_ms="-1")
    handed_over(disk, log_retention_ms="-1")
    run_kafka(disk)
    (text,) = brought_back(disk, log_retention_hours="1").differing
    assert text.startswith("log.retention.ms is -1 under Kafka")
    assert "log.retention.hours=1, which applies" in text


def test_a_setting_of_kafka_that_is_not_possible_here_is_refused_if_it_decides() -> None:
    disk = filled()
    handed_over(disk)
    fields = {"resource_type": 2, "resource_name": "t", "name": "remote.storage.enable"}
    run_kafka(disk, [KafkaRecord(CONFIG, {**fields, "value": "true"})])
    with pytest.raises(GraduationError, match=r"the topic t has remote\.storage\.enable=true"):
        brought_back(disk)


def test_the_note_is_of_the_last_start_alone() -> None:
    disk = filled(log_retention_ms="-1", log_cleaner_backoff_ms="5")
    assert take_survey(disk, DATA).start_settings == {"log.retention.ms": "-1"}
    opened(disk, log_retention_ms="-1").close_logs(NOW_MS)
    opened(disk).close_logs(NOW_MS)
    assert not disk.exists(f"{DATA}/{NOTE_NAME}")
    disk.write_atomic(f"{DATA}/{NOTE_NAME}", b"torn")
    assert StartNote(disk, DATA).read() == {}


def test_a_start_without_a_setting_of_the_last_one_warns(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = filled(log_retention_hours="-1", log_cleaner_enable="false")
    opened(disk, log_retention_ms="5", log_cleaner_enable="false").close_logs(NOW_MS)
    assert "the last start had" not in caplog.text  # retention is decided, by another name
    opened(disk, log_retention_ms="5").close_logs(NOW_MS)
    assert "the last start had log.cleaner.enable=false, and this one has not" in caplog.text


def test_a_setting_of_the_note_that_is_dynamic_meanwhile_need_not_be_given() -> None:
    disk = filled(log_retention_hours="-1")
    broker = opened(disk, log_retention_hours="-1")
    broker.topics.set_broker_default_configs({"log.retention.ms": "9"})
    broker.close_logs(NOW_MS)
    assert planned(disk).broker_default_configs["log.retention.ms"] == "9"


def test_without_space_the_note_waits_for_the_next_start(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = filled()

    def refuse(*_: object, **__: object) -> None:
        raise NotWrittenError(28, "No space left on device", NOTE_NAME)

    with monkeypatch.context() as patch:
        patch.setattr(disk, "write_atomic", refuse)
        StartNote(disk, DATA).write(properties_of(log_retention_ms="-1"))
    assert StartNote(disk, DATA).read() == {}

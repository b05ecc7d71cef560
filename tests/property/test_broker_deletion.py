"""Up to Apache Kafka and back, with random settings of the start, of the broker at run time and of
a topic, and with a random part of the start's settings at the take-over: each setting that decides
what is deleted has the value that it had, or the command names it.
"""

from __future__ import annotations

from typing import Any

from helpers.admin_host import NOW_MS
from helpers.examples import drawn
from helpers.graduation import DATA, config_of, flush, new_disk, opened, planned, run_kafka
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.deletion import (
    DELETING_BROKER_SETTINGS,
    DELETING_TOPIC_SETTINGS,
    deleting,
    is_topic_default,
)
from barnabas.broker.settings.rows_broker import BROKER_SETTINGS
from barnabas.broker.settings.rows_topic import TOPIC_SETTINGS
from barnabas.broker.settings.setting import Kind, Setting
from barnabas.broker.settings.topic_config import topic_setting_value
from barnabas.graduation.bootstrap import encode_bootstrap
from barnabas.graduation.bring_back import bring_back
from barnabas.graduation.steps import hand_over
from barnabas.graduation.survey import GraduationError

POSSIBLE_HERE = DELETING_TOPIC_SETTINGS - {"remote.storage.enable"}
Texts = dict[str, str]


def values_of(setting: Setting[Any]) -> st.SearchStrategy[str]:
    """Valid values of a setting, which are possible on Kafka, too."""
    if setting.kind is Kind.BOOLEAN:
        return st.sampled_from(["true", "false"])
    if setting.choices:
        return st.sampled_from(setting.choices)
    if setting.kind is Kind.DOUBLE:
        return st.sampled_from(["0.25", "1"])
    least = 1 << 20 if "segment.bytes" in setting.name else 1
    values = [str(least), str(least + 7)]
    if setting.never or setting.name.endswith(("retention.ms", "retention.bytes")):
        values.append("-1" if "delete" not in setting.name else "0")
    return st.sampled_from(values)


def some_of(names: Any, table: Any) -> st.SearchStrategy[Texts]:
    """Values for some of the settings."""
    chosen = st.lists(st.sampled_from(sorted(names)), max_size=4, unique=True)
    return chosen.flatmap(
        lambda names: st.fixed_dictionaries({name: values_of(table[name]) for name in names})
    )


def as_arguments(texts: Texts) -> dict[str, str]:
    return {name.replace(".", "_"): text for name, text in texts.items()}


def effective(config: BrokerConfig, configs: Texts) -> dict[str, Any]:
    """What decides about deletion: of a topic with these settings, of another, of the broker."""
    of_topics = {
        f"{name} of {whose}": topic_setting_value(config, own, name)
        for whose, own in (("t", configs), ("u", {}))
        for name in POSSIBLE_HERE
    }
    others = (name for name in DELETING_BROKER_SETTINGS if not is_topic_default(name))
    return of_topics | {name: config[name] for name in others}


def config_now(broker: Any, start: Texts) -> BrokerConfig:
    config = config_of(**as_arguments(start))
    config.set_dynamic(broker.metadata.broker_configs)
    config.set_dynamic_defaults(broker.metadata.broker_default_configs)
    return config


DYNAMIC = {name for name in DELETING_BROKER_SETTINGS if BROKER_SETTINGS[name].dynamic}


@settings(max_examples=drawn(60))
@given(
    start=some_of(DELETING_BROKER_SETTINGS, BROKER_SETTINGS),
    of_all=some_of(DYNAMIC, BROKER_SETTINGS),
    of_broker=some_of(DYNAMIC, BROKER_SETTINGS),
    of_topic=some_of(POSSIBLE_HERE - {"min.compaction.lag.ms"}, TOPIC_SETTINGS),
    kept=st.floats(0, 1),
)
def test_what_decides_about_deletion_stays_or_is_named(
    start: Texts, of_all: Texts, of_broker: Texts, of_topic: Texts, kept: float
) -> None:
    disk = new_disk()
    broker = opened(disk, **as_arguments(start))
    for name, configs in (("t", of_topic), ("u", {})):
        broker.topics.create_topic(name, 1, configs, now_ms=NOW_MS)
    broker.topics.set_broker_default_configs(of_all)
    broker.topics.set_broker_configs(of_broker)
    before = effective(config_now(broker, start), of_topic)
    broker.close_logs(NOW_MS)
    plan = planned(disk, **as_arguments(start))
    hand_over(disk, DATA, plan, encode_bootstrap(plan, NOW_MS), lambda path: flush(disk, path))
    run_kafka(disk)
    later = dict(list(start.items())[: round(kept * len(start))])
    try:
        report = bring_back(
            disk, DATA, config_of(**as_arguments(later)), lambda path: flush(disk, path)
        )
    except GraduationError as error:
        missing = [name for name in deleting(start) if name not in later]
        assert any(f"{name}=" in str(error) for name in missing)
        return
    broker = opened(disk, **as_arguments(later))
    topic = broker.metadata.topic("t")
    assert topic is not None
    after = effective(config_now(broker, later), topic.configs)
    broker.close_logs(NOW_MS)
    changed = {name for name in before if before[name] != after[name]}
    for name in changed:
        assert " of " in name, f"{name} is not a default of topics, and had to be refused"
        synonyms = TOPIC_SETTINGS[name.partition(" ")[0]].synonyms
        assert any(text.startswith(f"{one} is ") for text in report.differing for one in synonyms)

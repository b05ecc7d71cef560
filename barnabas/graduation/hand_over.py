"""The settings, users and features that Kafka gets, besides topics and partitions.

    what                                         goes to
    a topic's own settings                       the topic
    `--set` of the command                       each topic that has no value of its own
    the broker's defaults of topics' settings    the default of all brokers, if Kafka's
                                                 differs: so brokers that are added have it, too
    dynamic settings                             dynamic settings of this broker, or of all
    all other settings                           the properties file for Kafka

If eligible leader replicas (KIP-966) are enabled, min.insync.replicas is always set, and has one
value for all brokers. A setting or value that this version of Kafka does not know is left out or
changed, and a note for the operator says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from barnabas.broker.security.stored import ScramCredential
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.deletion import listed, not_decided
from barnabas.broker.settings.rows_topic import TOPIC_SETTINGS
from barnabas.broker.settings.rows_without_effect import ALL_BROKER_SETTINGS
from barnabas.broker.settings.setting import LONG_MAX, OWN_PREFIX
from barnabas.broker.settings.topic_config import broker_default
from barnabas.coordinator.internal_topics import INTERNAL_TOPICS, RETENTION_CONFIGS
from barnabas.graduation.kafka_versions import ELIGIBLE_LEADER_REPLICAS, KafkaVersion
from barnabas.graduation.survey import GraduationError, Survey
from barnabas.graduation.typed_groups import note_of_streams_groups, refused_share_groups

IN_SYNC = "min.insync.replicas"
DIFFERENCE = "message.timestamp.difference.max.ms"
_SHOWN = 10
_EITHER_SIDE = ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms")
_TOPIC_SETTING_OF = {
    synonym: setting.name for setting in TOPIC_SETTINGS.values() for synonym in setting.synonyms
}


@dataclass
class HandOver:
    """The settings, users and features that Kafka gets in a hand-over.

    topic_configs: the settings of each topic. broker_configs: the settings of this broker.
    broker_default_configs: the settings of all brokers. notes: messages for the operator about what
    is different under Kafka.
    """

    survey: Survey
    kafka: KafkaVersion
    topic_configs: dict[str, dict[str, str]] = field(default_factory=dict)
    broker_configs: dict[str, str] = field(default_factory=dict)
    broker_default_configs: dict[str, str] = field(default_factory=dict)
    scram_credentials: dict[tuple[str, int], ScramCredential] = field(default_factory=dict)
    features: dict[str, int] = field(default_factory=dict)
    properties: str = ""
    notes: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        """Add a note, unless the plan has it already."""
        if text not in self.notes:
            self.notes.append(text)


def plan_hand_over(
    survey: Survey, kafka: KafkaVersion, config: BrokerConfig, topic_settings: Mapping[str, str]
) -> HandOver:
    """The settings, users and features of a hand-over, without the properties file.

    Takes:  config, with the settings that the broker was started with; topic_settings, valid
            settings for each topic that has no value of its own.
    Raises: GraduationError if the version of Kafka cannot take over the share groups, or if
            `config` lacks settings of the last start that decide about deletion.
    """
    refused = refused_share_groups(survey.typed_groups, kafka)
    if refused is not None:
        raise GraduationError(refused)
    metadata = survey.metadata
    _check_start_settings(survey, config)
    plan = HandOver(survey, kafka)
    for topic in survey.topics:
        configs = dict(topic.configs)
        if topic.name in INTERNAL_TOPICS:
            configs |= RETENTION_CONFIGS[topic.name]
        else:
            configs = {**topic_settings, **configs}
        plan.topic_configs[topic.name] = _for_kafka(plan, configs, f"the topic {topic.name}")
    plan.broker_default_configs = {
        **_defaults(plan, config),
        **_dynamic(plan, metadata.broker_default_configs),
    }
    plan.broker_configs = _dynamic(plan, metadata.broker_configs)
    plan.scram_credentials = dict(metadata.scram_credentials)
    plan.features = kafka.feature_levels(metadata.feature_levels)
    if ELIGIBLE_LEADER_REPLICAS in plan.features:
        least = plan.broker_configs.pop(IN_SYNC, str(config[IN_SYNC]))
        plan.broker_default_configs.setdefault(IN_SYNC, least)
    _note_of_minima(plan)
    note = note_of_streams_groups(survey.typed_groups, kafka)
    if note is not None:
        plan.note(note)
    return plan


def _check_start_settings(survey: Survey, config: BrokerConfig) -> None:
    """Raise GraduationError if the settings for the hand-over lack some with which the broker was
    started, and Kafka would delete what they keep.
    """
    metadata = survey.metadata
    missing = not_decided(
        survey.start_settings,
        config.explicit,
        metadata.broker_configs.keys() | metadata.broker_default_configs.keys(),
    )
    if missing:
        raise GraduationError(
            f"the broker was started with {listed(missing)}, which decides what is deleted, and "
            "Kafka would not have it: pass --config FILE, the properties file of that start, or "
            "--broker-set NAME=VALUE for each"
        )


def _note_of_minima(plan: HandOver) -> None:
    """Add a note if topics need more in-sync replicas than a single broker has. With one broker
    Barnabas ignores min.insync.replicas, but Kafka does not.
    """
    of_brokers = {**plan.broker_default_configs, **plan.broker_configs}
    names = [
        f"the topic {topic}"
        for topic, configs in plan.topic_configs.items()
        if int(configs.get(IN_SYNC, 1)) > 1
    ]
    if int(of_brokers.get(IN_SYNC, 1)) > 1:
        names = ["all brokers", *names]
    if names:
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        plan.note(
            f"{IN_SYNC} of {', '.join(names[:_SHOWN])}{more} is above 1: until Kafka has as many "
            "brokers and replicas it refuses Produce with acks=all, and, where it holds for all "
            "brokers, offsets of groups; lower it before, or with kafka-configs.sh"
        )


def _for_kafka(plan: HandOver, configs: Mapping[str, str], whose: str) -> dict[str, str]:
    """A topic's settings for the version of Kafka in the plan. A note is added for each setting
    that this version does not know.
    """
    kept = dict(configs)
    if DIFFERENCE in kept and DIFFERENCE in plan.kafka.gone:
        for name in _EITHER_SIDE:
            kept[name] = str(min(int(kept[DIFFERENCE]), int(kept.get(name, LONG_MAX))))
    for name in sorted(kept.keys() & plan.kafka.gone):
        del kept[name]
        plan.note(f"{name} of {whose} is left out: Kafka {plan.kafka.name} does not have it")
    least = plan.kafka.lowest_segment_bytes
    if int(kept.get("segment.bytes", least)) < least:
        plan.note(
            f"segment.bytes of {whose} is {least} instead of {kept['segment.bytes']}: Kafka "
            f"{plan.kafka.name} takes no less"
        )
        kept["segment.bytes"] = str(least)
    return kept


def _defaults(plan: HandOver, config: BrokerConfig) -> dict[str, str]:
    """The broker's defaults of topic settings, if they differ from the defaults of the version of
    Kafka in the plan.

    The result uses the names of the settings that can be changed while Kafka runs (those in ms).
    """
    different: dict[str, str] = {}
    for setting in TOPIC_SETTINGS.values():
        if not setting.synonyms:
            continue
        value, _ = broker_default(config, setting)
        if value != plan.kafka.topic_defaults.get(setting.name, setting.default):
            text = setting.render(value)
            assert text is not None, f"{setting.name} has a default"
            different[setting.name] = text
    by_topics_names = _for_kafka(plan, different, "the broker's defaults")
    return {TOPIC_SETTINGS[name].synonyms[0]: text for name, text in by_topics_names.items()}


def _dynamic(plan: HandOver, configs: Mapping[str, str]) -> dict[str, str]:
    """The dynamic broker settings that Kafka also has."""
    is_kafkas: Callable[[str], bool] = lambda name: (  # noqa: E731
        name in ALL_BROKER_SETTINGS
        and not name.startswith(OWN_PREFIX)
        and _TOPIC_SETTING_OF.get(name) not in plan.kafka.gone
    )
    for name in sorted(configs):
        if not is_kafkas(name):
            plan.note(f"the broker's setting {name} is left out: Kafka does not have it")
    return {name: text for name, text in configs.items() if is_kafkas(name)}

"""The settings that decide which data are deleted, and the note of those of the last start.

A setting of topics is decided by the first of these that has it: the topic, the dynamic settings of
the broker, those of all brokers, the settings of the start (`--config`, `--set`), the default. Only
the settings of the start are not in the data directory. If they are missing when the directory goes
to Apache Kafka, comes back, or starts again, the default applies, and the next check deletes what
the settings kept. So each start notes those that decide about deletion and differ from the default:

    barnabas-start-settings    a line NAME=VALUE for each; no file if there is none

`barnabas graduate` and `barnabas take-over` compare the note with the settings that they are given.
A start that lacks settings of the last one continues, as in Kafka, with a warning.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from barnabas.broker.settings.rows_broker import BROKER_SETTINGS
from barnabas.broker.settings.rows_topic import TOPIC_SETTINGS
from barnabas.broker.settings.setting import ConfigError
from barnabas.storage.disk import Disk, log_lack_of_space
from barnabas.storage.files.checkpoints import (
    CorruptCheckpoint,
    decode_properties,
    encode_properties,
)

logger = logging.getLogger("barnabas.opening")

NOTE_NAME = "barnabas-start-settings"
# The names under which the broker has the default of each topic setting, by each of these names.
_SYNONYMS = {
    name: setting.synonyms for setting in TOPIC_SETTINGS.values() for name in setting.synonyms
}
DELETING_TOPIC_SETTINGS = frozenset(
    name for name, setting in TOPIC_SETTINGS.items() if setting.deletes
)
DELETING_BROKER_SETTINGS = frozenset(
    name for name, setting in BROKER_SETTINGS.items() if setting.deletes
) | {name for topic_name in DELETING_TOPIC_SETTINGS for name in TOPIC_SETTINGS[topic_name].synonyms}


def deleting(settings: Mapping[str, str]) -> dict[str, str]:
    """Those of the broker's settings that decide about deletion and differ from their default.

    A text that is not valid here is returned unchanged.
    """
    found = {}
    for name in sorted(DELETING_BROKER_SETTINGS & settings.keys()):
        setting = BROKER_SETTINGS[name]
        try:
            value = setting.parse(settings[name])
        except ConfigError:
            found[name] = settings[name]
            continue
        if value != setting.default:
            found[name] = setting.render(value) or ""
    return found


def is_topic_default(name: str) -> bool:
    """Whether a setting of the broker is the default of a setting of topics."""
    return name in _SYNONYMS


def not_decided(
    settings: Mapping[str, str], given: Collection[str], dynamic: Collection[str]
) -> dict[str, str]:
    """Those of the settings about which neither the settings of a start nor the dynamic settings
    decide.

    Takes:  given, the names of the settings of the start; dynamic, the names of dynamic settings.
            A name of a topic setting's default stands for its other names, too.
    """
    return {
        name: text
        for name, text in settings.items()
        if not any(one in given or one in dynamic for one in _SYNONYMS.get(name, (name,)))
    }


def listed(settings: Mapping[str, str]) -> str:
    """The settings as the text of a message."""
    return ", ".join(f"{name}={text}" for name, text in sorted(settings.items()))


class StartNote:
    """The file `barnabas-start-settings` of a data directory."""

    def __init__(self, disk: Disk, data_dir: str) -> None:
        self._disk, self._path = disk, f"{data_dir}/{NOTE_NAME}"

    def read(self) -> dict[str, str]:
        """The noted settings; empty if there is no note, or if it is damaged."""
        try:
            return decode_properties(self._disk.read(self._path))
        except (FileNotFoundError, CorruptCheckpoint):
            return {}

    def write(self, explicit: Mapping[str, str], dynamic: Collection[str] = ()) -> None:
        """Note those of a start's settings that decide about deletion, if they have changed since
        the last start, and warn of those that are missing.

        Takes:  dynamic, the names of dynamic settings.
        Raises: OSError, except for lack of space.
        """
        settings, before = deleting(explicit), self.read()
        if settings == before:
            return
        missing = not_decided(before, explicit, dynamic)
        if missing:
            logger.warning(
                "the last start had %s, and this one has not: what that kept is deleted at the "
                "next check", listed(missing),
            )  # fmt: skip
        if not settings:
            self._disk.unlink(self._path)
            return
        try:
            self._disk.write_atomic(self._path, encode_properties(settings))
        except OSError as error:
            log_lack_of_space(self._path, error)

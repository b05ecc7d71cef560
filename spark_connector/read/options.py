"""The options of `spark.read.format("barnabas")`, with the names and meanings that they have in
Spark's own Kafka source.

Spark passes option names in lower case. An unknown name is rejected, and the error shows the most
similar name. Otherwise a misspelled `startingOffsets` would silently read everything. `kafka.*`
options are those of a Kafka consumer. kafka_settings.py lists those that have an effect here, and
those that are rejected.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, time
from functools import lru_cache
from typing import Any

from barnabas.client.notices import logger
from barnabas.client.options import DEFAULTS, ClientOptions
from barnabas.client.security import TOKEN_PROVIDER, SecurityError, parse_security
from barnabas.protocol.cut_times import CUT_TIMES_END
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.spark_connector.kafka_settings import (
    CONSUMER,
    refusal,
    warn_of_unused,
    wrong_value,
)
from barnabas.spark_connector.option_error import OptionError
from barnabas.spark_connector.read.offsets import EARLIEST, LATEST, OffsetSpec
from barnabas.spark_connector.read.patterns import PatternError, translate_pattern

MEBIBYTE = 1 << 20
# The largest numbers in the protocol and in a Java client's settings.
MAX_INT, MAX_LONG = (1 << 31) - 1, (1 << 63) - 1
UNITS_MS = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True)
class Subscription:
    """The topics or partitions to read. Exactly one field is set."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] = ()

    @property
    def option(self) -> str:
        """The name of the option that is set."""
        return (
            "subscribePattern"
            if self.pattern is not None
            else "subscribe"
            if self.topics
            else "assign"
        )


@dataclass(frozen=True)
class OpenTransactions:
    """The policy for a range that contains an open transaction."""

    # whether the reader waits; if not, the range ends where the transaction begins
    wait: bool = True
    timeout_ms: int = 20 * 60_000


@dataclass(frozen=True)
class TriggerOptions:
    """The limits of a micro-batch of a stream."""

    max_offsets: int | None = None
    min_offsets: int | None = None  # a batch begins as soon as this many offsets are available
    # a batch also begins when this time has passed since the previous one
    max_delay_ms: int = 15 * 60_000


@dataclass(frozen=True)
class CutOptions:
    """Where a read of whole transactions begins and ends: at the cuts of these times, or, if they
    are None, where startingOffsets says and at the present cut.
    """

    starting_ms: int | None = None
    ending_ms: int | None = None
    ending_option: str = "endingCut"  # the option that gave the end


@dataclass(frozen=True)
class SourceOptions:
    """All options of the source, checked."""

    client: ClientOptions
    subscription: Subscription
    starting: OffsetSpec
    ending: OffsetSpec
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    join_ranges_up_to: int = 1000
    fail_on_data_loss: bool = True
    include_headers: bool = False
    read_committed: bool = True
    open_transactions: OpenTransactions = OpenTransactions()
    push_down_filters: bool = False
    decoder: str = "auto"  # or "numpy", "numba"
    cuts: CutOptions | None = None  # None: batches may end between the halves of a transaction
    trigger: TriggerOptions = TriggerOptions()
    # the interval at which a stream checks for new topics and partitions
    metadata_max_age_ms: int = 30_000


# The options that Spark documents for its own source, and those that only this source has.
SOURCE_OPTIONS = (
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "includeHeaders",
    "onOpenTransaction",
    "openTransactionTimeout",
    "pushDownFilters",
    "decoder",
    "wholeTransactions",
    "startingCut",
    "endingCut",
    "asOf",
    TOKEN_PROVIDER,
)
# Offsets and times of records are no cuts.
NO_CUTS = (
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
)
# A stream rejects these options, as it does with Spark's own source.
BATCH_ONLY = (
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "endingCut",
    "asOf",
)
# A batch read ignores these options, as it does with Spark's own source.
STREAM_ONLY = (
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "joinRangesUpTo",
)
# Options of Spark's own source that have no effect here. The values are the reasons, which the
# warnings contain.
WITHOUT_EFFECT = {
    "groupIdPrefix": "a query is no member of a consumer group",
    "kafkaConsumer.pollTimeoutMs": "kafka.request.timeout.ms limits how long an answer may take",
    "fetchOffset.numRetries": "kafka.default.api.timeout.ms limits how long failures are retried",
    "fetchOffset.retryIntervalMs": "kafka.retry.backoff.ms is the pause between two attempts",
}
# Spark's own options, which it passes to every source.
OF_SPARK = ("checkpointLocation", "queryName", "path")
# Spark's own source rejects these options as well, because the source itself determines these
# values.
REFUSED_KAFKA = {
    "auto.offset.reset": "use startingOffsets",
    "enable.auto.commit": "the reader commits no offsets",
    "key.deserializer": "keys come as binary; cast the column `key`",
    "value.deserializer": "values come as binary; cast the column `value`",
    "interceptor.classes": "Java classes are not supported",
}


def parse_source_options(options: Mapping[str, str], *, streaming: bool = False) -> SourceOptions:
    """Check all options of a batch read, or of a stream. Raises: OptionError."""
    values = OptionValues(options)
    refuse_unknown(
        values,
        (*SOURCE_OPTIONS, *STREAM_ONLY, *WITHOUT_EFFECT, *OF_SPARK),
        ("kafkaconsumer.",),
        REFUSED_KAFKA,
        "source",
    )
    for name, why in WITHOUT_EFFECT.items():
        if values.text(name) is not None:
            warn_without_effect(name, why)
    if streaming:
        _refuse_batch_only(values)
    parsed = SourceOptions(
        client=client_options(values),
        subscription=_subscription(values),
        starting=_offsets(values, "starting", streaming=streaming),
        ending=_offsets(values, "ending", streaming=streaming),
        min_partitions=values.integer("minPartitions", None, minimum=1),
        max_records_per_partition=values.integer("maxRecordsPerPartition", None, minimum=1),
        join_ranges_up_to=values.number("joinRangesUpTo", SourceOptions.join_ranges_up_to),
        fail_on_data_loss=values.boolean("failOnDataLoss", True),
        include_headers=values.boolean("includeHeaders", False),
        read_committed=values.choice(
            "kafka.isolation.level", ("read_committed", "read_uncommitted")
        )
        == "read_committed",
        open_transactions=OpenTransactions(
            wait=values.choice("onOpenTransaction", ("wait", "end")) == "wait",
            timeout_ms=values.duration_ms("openTransactionTimeout", OpenTransactions.timeout_ms),
        ),
        push_down_filters=values.boolean("pushDownFilters", False),
        decoder=values.choice("decoder", ("auto", "numpy", "numba")),
        cuts=_cuts(values),
        trigger=_trigger(values) if streaming else TriggerOptions(),
        metadata_max_age_ms=values.number(
            "kafka.metadata.max.age.ms", SourceOptions.metadata_max_age_ms
        ),
    )
    check_kafka_settings(values, CONSUMER)
    return parsed


@lru_cache
def warn_without_effect(name: str, why: str) -> None:
    """Warn that an option has no effect, once in each process."""
    logger.warning("barnabas: option %s has no effect: %s", name, why)


def includes_headers(options: Mapping[str, str]) -> bool:
    """Whether the schema has the column `headers`. Spark asks for this before the other options are
    parsed.
    """
    return OptionValues(options).boolean("includeHeaders", False)


class OptionValues:
    """Looks up options and converts them to a type. Upper and lower case are the same.

    The error for a wrong value names the option.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self.texts = {name.lower(): value for name, value in options.items()}

    def text(self, name: str) -> str | None:
        value = self.texts.get(name.lower())
        return None if value is None else value.strip()

    def integer(
        self, name: str, default: int | None, *, minimum: int = 0, maximum: int = MAX_LONG
    ) -> int | None:
        """An option as a whole number; the default if it is not set. Raises: OptionError."""
        text = self.text(name)
        if text is None:
            return default
        try:
            value = int(text)
        except ValueError:
            value = minimum - 1
        if value < minimum:
            raise OptionError(f"option {name}={text!r}: give a whole number of at least {minimum}")
        if value > maximum:
            raise OptionError(f"option {name}={text!r}: give a whole number of at most {maximum}")
        return value

    def number(self, name: str, default: int, *, minimum: int = 0, maximum: int = MAX_LONG) -> int:
        value = self.integer(name, default, minimum=minimum, maximum=maximum)
        assert value is not None
        return value

    def duration_ms(self, name: str, default: int) -> int:
        """Return a duration in ms. Spark's notation is 500ms, 30s, 15m, 1h, or a number of ms."""
        text = self.text(name)
        if text is None:
            return default
        match = re.fullmatch(r"(\d{1,15})\s*([a-z]*)", text.lower())
        if not match or match.group(2) not in UNITS_MS:
            raise OptionError(f"option {name}={text!r}: give a duration like 500ms, 30s, 15m or 1h")
        return int(match.group(1)) * UNITS_MS[match.group(2)]

    def time_ms(self, name: str) -> int | None:
        """An option that is a time: ms since 1970, or ISO 8601, local unless it has a zone. Raises:
        OptionError.
        """
        text = self.text(name)
        if text is None:
            return None
        try:
            value = int(text) if text.isdigit() else round(_moment(text).timestamp() * 1000)
        except (ValueError, OverflowError):
            value = -1
        if not 0 <= value < CUT_TIMES_END:
            raise OptionError(
                f"option {name}={text!r}: give a time like 2026-11-29T12:00:00Z or "
                "2026-11-29 12:00 (local), or ms since 1970"
            )
        return value

    def boolean(self, name: str, default: bool) -> bool:
        """An option that is true or false; the default if it is not set. Raises: OptionError."""
        text = self.text(name)
        if text is None:
            return default
        if text.lower() not in ("true", "false"):
            raise OptionError(f"option {name}={text!r}: give true or false")
        return text.lower() == "true"

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        """Return the value of the option, or the first of the choices if the option is not set."""
        text = self.text(name)
        if text is None:
            return choices[0]
        if text.lower() not in choices:
            raise OptionError(f"option {name}={text!r}: give {' or '.join(choices)}")
        return text.lower()

    def json(self, name: str, example: str) -> dict[str, Any] | None:
        """An option that is a JSON object; None if it is not set. Raises: OptionError, whose text
        has the example.
        """
        text = self.text(name)
        if text is None:
            return None
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise OptionError(f"option {name}={text!r}: give JSON like {example}")
        return value


def _moment(text: str) -> datetime:
    """The moment that a text in ISO 8601 names; a time without a date is of today. Raises:
    ValueError.
    """
    if ":" in text and "-" not in text.split("+", 1)[0]:
        return datetime.combine(datetime.now().date(), time.fromisoformat(text))
    return datetime.fromisoformat(text)


def _cuts(values: OptionValues) -> CutOptions | None:
    """The options of whole transactions; None if they are off. A time of a cut turns them on.

    Raises: OptionError.
    """
    times = {name: values.time_ms(name) for name in ("startingCut", "endingCut", "asOf")}
    given = [name for name, time_ms in times.items() if time_ms is not None]
    if not values.boolean("wholeTransactions", bool(given)):
        if given:
            raise OptionError(f"option {given[0]} needs wholeTransactions=true")
        return None
    if "endingCut" in given and "asOf" in given:
        raise OptionError("options endingCut and asOf mean the same: give one of them")
    option = "asOf" if "asOf" in given else "endingCut"
    starting, ending = times["startingCut"], times[option]
    if starting is not None and ending is not None and starting > ending:
        raise OptionError(f"option startingCut is later than {option}")
    if values.choice("kafka.isolation.level", ("read_committed", "read_uncommitted")) != (
        "read_committed"
    ):
        raise OptionError(
            "option wholeTransactions=true reads committed transactions: leave out "
            "kafka.isolation.level=read_uncommitted"
        )
    if values.choice("onOpenTransaction", ("wait", "end")) == "end":
        raise OptionError(
            "option onOpenTransaction=end ends a range within a transaction: leave it out with "
            "wholeTransactions=true, whose batches end before open transactions anyway"
        )
    _refuse_no_cuts(values, starting, ending)
    return CutOptions(starting, ending, option)


def _refuse_no_cuts(values: OptionValues, starting: int | None, ending: int | None) -> None:
    """Raise OptionError for a start or an end that is no cut, and for two starts or ends."""
    for name in NO_CUTS:
        if values.text(name) is not None:
            raise OptionError(
                f"option {name} gives times of records, which may divide a transaction: with "
                "wholeTransactions=true give the time of a cut, as startingCut and endingCut"
            )
    for side, time_ms in (("starting", starting), ("ending", ending)):
        text = values.text(f"{side}Offsets")
        if text is not None and text.lower() not in ("earliest", "latest"):
            raise OptionError(
                f"option {side}Offsets gives offsets, which may divide a transaction: with "
                f"wholeTransactions=true give the time of a cut, as {side}Cut"
            )
        if text is not None and time_ms is not None:
            raise OptionError(f"options {side}Offsets and {side}Cut are given together")


def _refuse_batch_only(values: OptionValues) -> None:
    """Raise OptionError if a stream has an option that only batch reads support."""
    for name in BATCH_ONLY:
        if values.text(name) is not None:
            raise OptionError(
                f"option {name} is for batch reads; leave it out, or stop the stream with "
                ".trigger(availableNow=True)"
            )


def _trigger(values: OptionValues) -> TriggerOptions:
    """The options that limit a micro-batch. Raises: OptionError."""
    least = values.integer("minOffsetsPerTrigger", None, minimum=1)
    most = values.integer("maxOffsetsPerTrigger", None, minimum=1)
    if least is not None and most is not None and least > most:
        raise OptionError(
            f"option minOffsetsPerTrigger={least} is more than maxOffsetsPerTrigger={most}"
        )
    return TriggerOptions(
        most, least, values.duration_ms("maxTriggerDelay", TriggerOptions.max_delay_ms)
    )


def refuse_unknown(
    values: OptionValues,
    names: Iterable[str],
    prefixes: tuple[str, ...],
    refused: Mapping[str, str],
    where: str,
) -> None:
    """Reject names that are not in `names` and do not begin with any of `prefixes`.

    Of the names that begin with `kafka.`, only those in `refused` are rejected.

    Raises: OptionError.
    """
    all_names = {name.lower(): name for name in (*names, "kafka.bootstrap.servers")}
    for name in values.texts:
        if name in all_names or name.startswith(("kafka.", *prefixes)):
            continue
        near = difflib.get_close_matches(name, all_names, n=1, cutoff=0.6)
        hint = (
            f"did you mean {all_names[near[0]]}?"
            if near
            else "spark_connector/README.md lists all options"
        )
        raise OptionError(f"option {name} is unknown to the {where}: {hint}")
    for name, why in refused.items():
        if values.text(f"kafka.{name}") is not None:
            raise OptionError(f"option kafka.{name} cannot be set: {why}")


def check_kafka_settings(values: OptionValues, client: str) -> None:
    """Reject settings that are not supported, and warn of those that have no effect or are unknown.

    A value that a Java client would reject is always rejected, even if the setting has no effect
    here.

    Takes:  client, CONSUMER or PRODUCER.
    Raises: OptionError.
    """
    settings = {
        name.removeprefix("kafka."): value
        for name, value in values.texts.items()
        if name.startswith("kafka.")
    }
    for name, value in settings.items():
        accepted = wrong_value(name, value)
        if accepted:
            raise OptionError(f"option kafka.{name}={value!r}: give {accepted}")
        why = refusal(name, value, client)
        if why:
            raise OptionError(f"option kafka.{name} is not supported: {why}")
    warn_of_unused(settings, client)


def client_options(values: OptionValues) -> ClientOptions:
    """Parse the options of the connection to the brokers.

    Raises: OptionError.
    """
    try:
        security = parse_security(values.text)
    except SecurityError as error:
        raise OptionError(str(error)) from error

    def number(name: str, default: int, minimum: int = 0) -> int:
        return values.number(name, default, minimum=minimum, maximum=MAX_INT)

    return ClientOptions(
        bootstrap_servers=_bootstrap_servers(values.text("kafka.bootstrap.servers")),
        client_id=values.text("kafka.client.id") or DEFAULTS.client_id,
        connect_timeout_ms=number(
            "kafka.socket.connection.setup.timeout.ms", DEFAULTS.connect_timeout_ms, 1
        ),
        tls_timeout_ms=number(
            "kafka.socket.connection.setup.timeout.ms", DEFAULTS.connect_timeout_ms, 1
        ),
        request_timeout_ms=number("kafka.request.timeout.ms", DEFAULTS.request_timeout_ms, 1),
        retry_timeout_ms=number("kafka.default.api.timeout.ms", DEFAULTS.retry_timeout_ms),
        retry_backoff_ms=number("kafka.retry.backoff.ms", DEFAULTS.retry_backoff_ms),
        retry_backoff_max_ms=number("kafka.retry.backoff.max.ms", DEFAULTS.retry_backoff_max_ms),
        send_buffer_bytes=number("kafka.send.buffer.bytes", -1, -1),
        receive_buffer_bytes=number("kafka.receive.buffer.bytes", -1, -1),
        fetch_max_wait_ms=number("kafka.fetch.max.wait.ms", DEFAULTS.fetch_max_wait_ms),
        fetch_min_bytes=number("kafka.fetch.min.bytes", DEFAULTS.fetch_min_bytes),
        # A fetch reads one partition, so the limits of a partition and of a whole response are
        # equal.
        fetch_max_bytes=min(
            number("kafka.max.partition.fetch.bytes", DEFAULTS.fetch_max_bytes, 1),
            number("kafka.fetch.max.bytes", 50 * MEBIBYTE, 1),
        ),
        check_crcs=values.boolean("kafka.check.crcs", True),
        security=security,
    )


def _bootstrap_servers(text: str | None) -> tuple[tuple[str, int], ...]:
    """The hosts and ports of kafka.bootstrap.servers; a protocol before a host is ignored. Raises:
    OptionError.
    """
    if not text:
        raise OptionError(
            "option kafka.bootstrap.servers is missing: give "
            '.option("kafka.bootstrap.servers", "host:port")'
        )
    servers = []
    for server in filter(None, (part.strip() for part in text.split(","))):
        match = re.fullmatch(
            r"(?:[A-Za-z_]+://)?(\[[0-9A-Fa-f:.%]+\]|[^\s:\[\]]+):(\d{1,5})", server
        )
        if not match or not 0 < int(match.group(2)) < 65536:
            raise OptionError(
                f"option kafka.bootstrap.servers={text!r}: {server!r} is not host:port"
            )
        servers.append((match.group(1).strip("[]"), int(match.group(2))))
    if not servers:
        raise OptionError(f"option kafka.bootstrap.servers={text!r}: give at least one host:port")
    return tuple(servers)


def _subscription(values: OptionValues) -> Subscription:
    """The topics or partitions to read, by exactly one of three options. Raises: OptionError."""
    names = ("subscribe", "subscribePattern", "assign")
    used = [name for name in names if values.text(name) is not None]
    if len(used) != 1:
        problem = f"{' and '.join(used)} are given together" if used else "none of them is given"
        raise OptionError(
            "exactly one of the options subscribe, subscribePattern and assign is needed: "
            f"{problem}"
        )
    text = values.text(used[0]) or ""
    if used == ["subscribe"]:
        topics = tuple(dict.fromkeys(filter(None, (part.strip() for part in text.split(",")))))
        if not topics:
            raise OptionError(
                f"option subscribe={text!r}: give a topic, or several with commas between"
            )
        return Subscription(topics=topics)
    if used == ["subscribePattern"]:
        try:
            pattern = translate_pattern(text)
        except PatternError as error:
            raise OptionError(f"option subscribePattern={text!r}: {error}") from error
        if not text:
            raise OptionError(
                "option subscribePattern is empty: give a regular expression that matches names "
                "of topics"
            )
        return Subscription(pattern=pattern)
    example = '{"topic": [0, 1]}'
    assigned = values.json("assign", example) or {}
    partitions = []
    for topic, numbers in assigned.items():
        if (
            not isinstance(numbers, list)
            or not numbers
            or not all(_is_integer(number, minimum=0) for number in numbers)
        ):
            raise OptionError(f"option assign={text!r}: give JSON like {example}")
        partitions += [TopicPartition(topic, number) for number in numbers]
    if not partitions:
        raise OptionError(f"option assign={text!r}: give JSON like {example}")
    return Subscription(partitions=tuple(sorted(set(partitions))))


def _is_integer(value: object, *, minimum: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= minimum


def _offsets(values: OptionValues, side: str, *, streaming: bool) -> OffsetSpec:
    """Find out at which offsets the read begins or ends.

    As in Spark, a timestamp for all partitions overrides timestamps by partition, and these
    override offsets.
    """
    strategy = values.choice("startingOffsetsByTimestampStrategy", ("error", "latest"))
    or_latest = side == "ending" or strategy == "latest"
    timestamp = values.integer(f"{side}Timestamp", None)
    if timestamp is not None:
        return OffsetSpec(f"{side}Timestamp", timestamp_ms=timestamp, or_latest=or_latest)
    name = f"{side}OffsetsByTimestamp"
    if values.text(name) is not None:
        return OffsetSpec(
            name, timestamps_ms=_by_partition(values, name, minimum=0), or_latest=or_latest
        )
    name = f"{side}Offsets"
    text = values.text(name)
    default, other = (EARLIEST, LATEST) if side == "starting" else (LATEST, EARLIEST)
    words = {"earliest": EARLIEST, "latest": LATEST}
    if text is None or text.lower() in words:
        if text is None:
            return OffsetSpec(name, everywhere=LATEST if streaming else default)
        everywhere = words[text.lower()]
        if everywhere == other and not streaming:
            raise OptionError(
                f"option {name}={text}: a batch read would be empty; leave it out, or give offsets "
                "as JSON"
            )
        return OffsetSpec(name, everywhere=everywhere)
    offsets = _by_partition(values, name, minimum=EARLIEST)
    for partition, offset in offsets.items():
        if offset == other and not streaming:
            word = "latest" if other == LATEST else "earliest"
            raise OptionError(
                f"option {name}: {offset} ({word}) for {partition} cannot be used in a batch read"
            )
    return OffsetSpec(name, offsets=offsets)


def _by_partition(values: OptionValues, name: str, *, minimum: int) -> dict[TopicPartition, int]:
    """An option that gives an offset or timestamp to each partition. Raises: OptionError."""
    example = '{"topic": {"0": 23, "1": 42}}'
    wrong = OptionError(f"option {name}={values.text(name)!r}: give JSON like {example}")
    offsets: dict[TopicPartition, int] = {}
    for topic, numbers in (values.json(name, example) or {}).items():
        if not isinstance(numbers, dict):
            raise wrong
        for number, value in numbers.items():
            if (
                not re.fullmatch(r"\d{1,9}", number)
                or not _is_integer(value, minimum=minimum)
                or value > MAX_LONG
            ):
                raise wrong
            offsets[TopicPartition(topic, int(number))] = value
    return offsets

"""The sink's options: valid values, and the errors for invalid ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.protocol.compression import Codec, Levels
from barnabas.spark_connector.option_error import OptionError
from barnabas.spark_connector.write.sink_options import SinkOptions, parse_sink_options

SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9092"}


def parsed(*, streaming: bool = True, **options: str) -> SinkOptions:
    given = {name.replace("__", ".").lower(): value for name, value in options.items()}
    return parse_sink_options(SERVERS | given, streaming=streaming)


def test_defaults() -> None:
    found = parsed()
    assert found.topic is None and found.write_id is None and found.batch_id == 0
    assert found.compression == (Codec.NONE, Levels(gzip=-1, lz4=9, zstd=3))
    assert (found.inline_bytes, found.record_batch_bytes) == (256 << 10, 512 << 10)
    assert found.publish.transaction_timeout_ms == 60_000
    assert found.client.bootstrap_servers == (("127.0.0.1", 9092),)


def test_names_of_a_producer() -> None:
    found = parsed(
        topic="orders",
        kafka__compression__type="zstd",
        kafka__transaction__timeout__ms="5000",
        kafka__delivery__timeout__ms="7000",
        kafka__batch__size="2048",
        kafka__acks="all",
        kafka__max__in__flight__requests__per__connection="3",
        kafka__linger__ms="5",
        checkpointLocation="/there",
        queryName="q",
    )
    assert (found.topic, found.compression.codec, found.record_batch_bytes) == (
        "orders",
        Codec.ZSTD,
        2048,
    )
    assert (found.publish.transaction_timeout_ms, found.publish.delivery_timeout_ms) == (5000, 7000)
    assert found.publish.in_flight == 3
    assert (found.checkpoint_location, found.query_name) == ("/there", "q")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"topik": "t"}, "option topik is unknown to the sink: did you mean topic?"),
        ({"subscribe": "t"}, "option subscribe is unknown to the sink"),
        ({"startingOffsets": "earliest"}, "option startingoffsets is unknown to the sink"),
        ({"topic": "a b"}, "option topic='a b' is not a topic's name"),
        ({"kafka__acks": "1"}, "option kafka.acks='1': a transaction needs acks=all"),
        (
            {"kafka__max__in__flight__requests__per__connection": "6"},
            "give a whole number of at most 5",  # the limit of a Java producer with idempotence
        ),
        ({"kafka__compression__gzip__level": "0"}, "give 1 to 9, or -1 for the codec's own"),
        ({"kafka__compression__zstd__level": "23"}, "give a whole number of at most 22"),
        ({"kafka__compression__lz4__level": "0"}, "give a whole number of at least 1"),
        ({"kafka__enable__idempotence": "false"}, "needs an idempotent producer"),
        ({"kafka__transactional__id": "mine"}, "use transactionalIdPrefix"),
        ({"kafka__value__serializer": "x"}, "the column value is not serialized"),
        ({"kafka__compression__type": "brotli"}, "give none or gzip or snappy or lz4 or zstd"),
        ({"kafka__batch__size": "10"}, "give a whole number of at least 1024"),
        (
            {"asyncProgressTrackingEnabled": "true"},
            "the sink cannot keep exactly-once in this mode",
        ),
        ({"writeId": "x"}, "option writeId is for batch writes"),
        ({"batchId": "1"}, "option batchId is for batch writes"),
    ],
)
def test_refused(options: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError) as caught:
        parsed(**options)
    assert words in str(caught.value)


def test_modes_that_are_switched_off_are_fine() -> None:
    parsed(asyncProgressTrackingEnabled="false", asyncProgressTrackingCheckpointIntervalMs="1000")


def test_names_of_batch_writes() -> None:
    found = parsed(streaming=False, writeId="day-7", batchId="3", checkpointLocation="/ck")
    assert (found.write_id, found.batch_id, found.checkpoint_location) == ("day-7", 3, "/ck")
    with pytest.raises(OptionError, match="give writeId, too"):
        parsed(streaming=False, batchId="3")
    for wrong in ("", "a/b", ".."):
        with pytest.raises(OptionError, match="option writeId"):
            parsed(streaming=False, writeId=wrong)


def test_a_batch_of_a_query_is_not_known_by_its_number_alone() -> None:
    """The number of a batch is that of other rows after the checkpoint was restored."""
    with pytest.raises(OptionError, match="batchId needs the option checkpointLocation"):
        parsed(streaming=False, writeId="q", batchId="3")
    with pytest.raises(OptionError, match="needs the option batchId"):
        parsed(streaming=False, writeId="q", checkpointLocation="/ck")
    found = parsed(streaming=False, writeId="q", batchId="3", compareCheckpoint="false")
    assert not found.compare_checkpoint
    parsed(streaming=False, checkpointLocation="/ck")  # a write without a name is never repeated


def test_who_writes() -> None:
    """Transactions of tasks have a longer default timeout. In a batch write, they need a
    writeId.
    """
    found = parsed()
    assert (found.sink_mode, found.task_timeout_ms) == ("auto", 900_000)
    found = parsed(sinkMode="TASKS", kafka__transaction__timeout__ms="5000")
    assert (found.sink_mode, found.task_timeout_ms) == ("tasks", 5000)
    assert parsed(streaming=False, sinkMode="tasks", writeId="x").sink_mode == "tasks"
    assert parsed(streaming=False).sink_mode == "auto"
    with pytest.raises(OptionError, match=r"sinkMode=tasks in a batch write needs .* writeId"):
        parsed(streaming=False, sinkMode="tasks")
    with pytest.raises(OptionError, match="give auto or driver or tasks"):
        parsed(sinkMode="executor")


def test_values_that_a_java_producer_would_refuse() -> None:
    for streaming in (True, False):
        with pytest.raises(
            OptionError, match=r"option kafka\.linger\.ms='soon': give a whole number of 64 bits"
        ):
            parse_sink_options(
                {"kafka.bootstrap.servers": "x:1", "topic": "t", "kafka.linger.ms": "soon"},
                streaming=streaming,
            )


def test_what_paths_depend_on_is_taken_where_the_driver_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "core-site.xml").write_text(
        "<configuration><property><name>fs.defaultFS</name><value>hdfs://nn</value></property>"
        "</configuration>"
    )
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    found = parsed(checkpointLocation="checkpoints/mine")
    assert (found.checkpoint_location, found.working_directory) == (
        "checkpoints/mine",
        str(tmp_path),
    )
    assert found.site == {"fs.defaultFS": "hdfs://nn"}
    (tmp_path / "core-site.xml").write_text("<configuration>")
    with pytest.raises(OptionError, match=r"core-site\.xml cannot be read"):
        parsed()
    parsed(streaming=False)

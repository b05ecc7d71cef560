"""The steps of docs/SPARK_CLUSTER.md on a cluster on this machine, and a take-over during a query.

    PYTHONPATH=tests/tools:tests:. python -m torture.spark_cluster [--s3-server PROGRAM] [PART …]

document    a broker with TLS and passwords, a master and two workers. The document's program is
            submitted as in the document. After some batches the driver and a worker are killed;
            then the program is submitted again. Its spool files are on an S3 server if there is one
            (moto_server), otherwise in a directory
take-over   two brokers with a lease in etcd; the leader is killed twice during a query, which
            continues without a restart

At the end, each record of the input must be in the output exactly once.
"""

from __future__ import annotations

import argparse
import re
import secrets
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka
import pyarrow.fs as arrow_fs
from helpers.e2e_clients import PATIENCE_S, QUIET, eventually, read_all
from helpers.pair import FOLLOWS, PairNode, etcd, pair
from helpers.ports import free_port
from helpers.processes import ROOT
from helpers.spark_cluster import Cluster, spark_home
from helpers.spark_driver import MARK, Query
from helpers.spark_queries import Driver, kill_session, spark_environment, topics_with_input

from barnabas import LocalBroker

DOCUMENT = ROOT / "docs" / "SPARK_CLUSTER.md"
USER, PASSWORD = "alice", "the password of alice"
SOURCE, SINK, BUCKET = "orders", "loud-orders", "lake"
PER_TRIGGER, BATCHES, BATCHES_BEFORE_A_KILL = 1_000, 12, 3
RECORD_BYTES = 2_000  # each task then writes more than 256 KiB, so it uses a spool file
PAIR_RECORDS, PAIR_PER_TRIGGER, BATCHES_BETWEEN_KILLS = 3_000, 100, 5
IN_SYNC_S = 4.0  # the time until the lease's record names the standby as in sync


def main() -> None:
    """Run the given parts, or all parts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", default=["document", "take-over"])
    parser.add_argument("--s3-server", help="a program that takes -H HOST and -p PORT")
    options = parser.parse_args()
    for part in options.parts:
        with tempfile.TemporaryDirectory(prefix="spark-cluster-") as directory:
            print(f"{part}:", flush=True)
            if part == "document":
                run_document(Path(directory), options.s3_server)
            elif part == "take-over":
                run_take_over(Path(directory))
            else:
                sys.exit(f"no part is called {part!r}")


def compare(found: Iterable[bytes], wanted: Iterable[bytes]) -> None:
    """Print how many records were found, and exit with an error if a record is missing or
    duplicated.
    """
    have, want = Counter(found), Counter(wanted)
    missing, more = sum((want - have).values()), sum((have - want).values())
    print(f"  {have.total():,} records, {missing} missing, {more} doubled or foreign", flush=True)
    if missing or more:
        sys.exit(1)


def batches_in(checkpoint: Path) -> int:
    """The number of batches that the query has committed."""
    return sum(path.name.isdigit() for path in checkpoint.glob("commits/*"))


# --- the document


def run_document(directory: Path, s3_server: str | None) -> None:
    """Submit the document's program, kill its driver and a worker, submit it again, and compare its
    input and output.
    """
    checkpoint = directory / "checkpoint"
    with (
        LocalBroker(users={USER: PASSWORD}, tls=True) as broker,
        object_store(directory, s3_server) as (spool, keys),
        Cluster(directory) as cluster,
    ):
        values = fill(broker)
        program, command = written(directory, broker, spool, cluster.url)
        (directory / "secured_query.py").write_text(program)
        began_s = time.monotonic()
        with submitted(directory, command, keys) as driver:
            await_batches(checkpoint, BATCHES_BEFORE_A_KILL, driver, directory)
            print(f"  {batches_in(checkpoint)} batches, {time.monotonic() - began_s:.0f} s")
            kill_session(driver)
        cluster.kill_worker(1)
        with submitted(directory, command, keys) as driver:
            await_batches(checkpoint, BATCHES, driver, directory)
        print(f"  {batches_in(checkpoint)} batches, {time.monotonic() - began_s:.0f} s")
        assert "Traceback" not in (directory / "driver.log").read_text()
        left = spool_files(spool, keys)
        assert not left, f"spool files are left: {left}"
        compare(read_secured(broker), [value.upper() for value in values])


def written(directory: Path, broker: LocalBroker, spool: str, master: str) -> tuple[str, str]:
    """Return the program and the command of the document, with the paths and addresses of this
    machine.
    """
    text = DOCUMENT.read_text()
    (program,) = re.findall(r"```python\n(# secured_query\.py\n.*?)```", text, re.DOTALL)
    (command,) = re.findall(r"```sh\nexport AWS_.*?\n(\$SPARK_HOME.*?)```", text, re.DOTALL)
    places = {
        "broker.example.org:9093": broker.bootstrap_servers,
        '"alice"': repr(USER),
        '"ca.pem"': repr(broker.ca_file),
        '"5000000"': repr(str(PER_TRIGGER)),
        "file:///mnt/shared/loud-orders": (directory / "checkpoint").as_uri(),
        "s3://lake/spool?region=eu-central-1": spool,
    }
    cluster = {"spark://10.0.0.1:7077": master, "driver.host=10.0.0.1": "driver.host=127.0.0.1"}
    return replaced(program, places), replaced(command, cluster)


def replaced(text: str, places: dict[str, str]) -> str:
    """Replace the document's addresses and paths by ours. Each of them must occur in the text."""
    for place, ours in places.items():
        assert place in text, f"{DOCUMENT.name} does not have {place!r} any more"
        text = text.replace(place, ours)
    return text


@contextmanager
def object_store(directory: Path, program: str | None) -> Iterator[tuple[str, dict[str, str]]]:
    """Provide a location for spool files: an S3 server, or a directory. Gives: the location, and
    the environment variables that its use requires.
    """
    if program is None:
        print("  without an S3 server: spool files are in a directory")
        yield (directory / "spool").as_uri(), {}
        return
    port = free_port()
    keys = {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
    }
    with (directory / "s3.log").open("wb") as log:
        server = subprocess.Popen(
            [program, "-H", "127.0.0.1", "-p", str(port)], stdout=log, stderr=log
        )
    try:
        store = file_system(keys)
        eventually(lambda: made(store), what="the S3 server")
        yield f"s3://{BUCKET}/spool?region=us-east-1", keys
        asked = (directory / "s3.log").read_text().count(f"POST /{BUCKET}/spool/")
        print(f"  {asked} uploads were begun or ended on the S3 server")
        assert asked
    finally:
        server.kill()
        server.wait()


def file_system(keys: dict[str, str]) -> arrow_fs.S3FileSystem:
    return arrow_fs.S3FileSystem(
        access_key=keys["AWS_ACCESS_KEY_ID"],
        secret_key=keys["AWS_SECRET_ACCESS_KEY"],
        endpoint_override=keys["AWS_ENDPOINT_URL"],
        region="us-east-1",
        allow_bucket_creation=True,
    )


def made(store: arrow_fs.S3FileSystem) -> bool:
    """Whether the bucket could be created, which shows that the server is running."""
    try:
        store.create_dir(BUCKET)
    except OSError:
        return False
    return True


def spool_files(spool: str, keys: dict[str, str]) -> list[str]:
    """The spool files that are left once the query has ended."""
    if not keys:
        return [str(path) for path in Path(spool.removeprefix("file://")).rglob("*.batches*")]
    selector = arrow_fs.FileSelector(f"{BUCKET}/spool", recursive=True, allow_not_found=True)
    return [info.path for info in file_system(keys).get_file_info(selector) if info.is_file]


@contextmanager
def submitted(
    directory: Path, command: str, keys: dict[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """Run the command in a shell, as a user would run `spark-submit`. It is killed when the context
    ends.
    """
    more = {**keys, "SPARK_HOME": str(spark_home()), "BROKER_PASSWORD": PASSWORD}
    with (directory / "driver.log").open("wb") as log:
        driver = subprocess.Popen(
            ["sh", "-c", command],
            cwd=directory,
            env={**spark_environment(), **more},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield driver
    finally:
        kill_session(driver)


def await_batches(
    checkpoint: Path, count: int, driver: subprocess.Popen[bytes], directory: Path
) -> None:
    """Wait until the query has committed this number of batches."""
    deadline = time.monotonic() + 3 * PATIENCE_S
    while batches_in(checkpoint) < count:
        if driver.poll() is not None or time.monotonic() > deadline:
            sys.exit((directory / "driver.log").read_text()[-5000:])
        time.sleep(0.1)


def client_settings(broker: LocalBroker) -> dict[str, str | int]:
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": broker.security_protocol,
        "ssl.ca.location": broker.ca_file,
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
        **QUIET,
    }


def fill(broker: LocalBroker) -> list[bytes]:
    """Create the two topics, and write the records of the source. Gives: the records' values."""
    for topic in (SOURCE, SINK):
        broker.create_topic(topic, 2)
    producer = confluent_kafka.Producer(client_settings(broker))
    values = [secrets.token_hex(RECORD_BYTES // 2).encode() for _ in range(PER_TRIGGER * BATCHES)]
    for number, value in enumerate(values):
        producer.produce(SOURCE, value, partition=number % 2)
    assert producer.flush(PATIENCE_S) == 0
    return values


def read_secured(broker: LocalBroker) -> list[bytes]:
    """All committed values in the sink's topic, read with the user's password over TLS."""
    consumer = confluent_kafka.Consumer(
        {
            **client_settings(broker),
            "group.id": "judge",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    consumer.subscribe([SINK])
    values: list[bytes] = []
    ended: set[int] = set()
    while len(ended) < 2:
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        if message.error() is None:
            values.append(message.value() or b"")
        else:
            ended.add(message.partition() or 0)
    consumer.close()
    return values


# --- a take-over


def run_take_over(directory: Path) -> None:
    """Kill the leader twice during a query that is not restarted."""
    checkpoint = directory / "checkpoint"
    with etcd(directory / "etcd") as (engine, _), pair(directory, engine) as (leader, standby):
        servers = f"{leader.servers},{standby.servers}"
        source, sink, records = topics_with_input(servers, records=PAIR_RECORDS)
        query = Query(
            servers,
            source,
            sink,
            str(checkpoint),
            records_per_batch=PAIR_PER_TRIGGER,
            options={"inlineBytes": "0"},
        )
        with Driver(query) as driver:
            for _ in range(2):
                await_more(checkpoint, BATCHES_BETWEEN_KILLS)
                time.sleep(IN_SYNC_S)
                kill_in_mid_query(leader, standby, checkpoint)
                leader, standby = standby, leader
            assert driver.wait() == 0, driver.said()
        found = (seen.value or b"" for seen in read_all(servers, sink))
        compare(found, (record.value + MARK for record in records))


def kill_in_mid_query(leader: PairNode, standby: PairNode, checkpoint: Path) -> None:
    """Kill the leader. When the query continues, start the killed node again as a standby."""
    follows = standby.log.read_text().count(FOLLOWS)
    leader.kill()
    took_s = await_more(checkpoint, 2)
    print(f"  two more batches {took_s:.1f} s after the leader was killed", flush=True)
    leader.start()
    eventually(lambda: standby.says(FOLLOWS, follows + 1), what="the old leader follows")


def await_more(checkpoint: Path, count: int) -> float:
    """Wait until the query has committed `count` more batches. Gives: how many seconds this
    took.
    """
    began_s, before = time.monotonic(), batches_in(checkpoint)
    eventually(lambda: batches_in(checkpoint) >= before + count, what="more batches")
    return time.monotonic() - began_s


if __name__ == "__main__":
    main()

"""A checkpoint in an object store. An S3 server runs on this machine, the moto_server that `make
spark-cluster` installs; the tests are skipped if it is missing.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

import pyarrow.fs as arrow_fs
from helpers.e2e_clients import eventually
from helpers.ports import free_port

from barnabas.spark_connector.write.checkpoint import Checkpoint, CheckpointError, CheckpointPlace
from barnabas.spark_connector.write.deduplication import PlannedBatch, Trail

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[arrow_fs.S3FileSystem]:
    """An object store with the bucket `lake`."""
    server = shutil.which("moto_server", path=f"{ROOT}/build/s3/bin")
    if server is None:
        pytest.skip("no moto_server")
    port = free_port()
    command = [server, "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    # Set after the server was started, since it must not have these variables.
    for name, value in (
        ("AWS_ACCESS_KEY_ID", "key"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
        ("AWS_DEFAULT_REGION", "us-east-1"),
        ("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}"),
    ):
        monkeypatch.setenv(name, value)
    try:
        found = arrow_fs.S3FileSystem(
            access_key="key",
            secret_key="secret",
            endpoint_override=f"127.0.0.1:{port}",
            scheme="http",
            region="us-east-1",
            allow_bucket_creation=True,
        )
        eventually(lambda: _made(found), what="the S3 server")
        yield found
    finally:
        process.terminate()
        process.wait(60)


def _made(store: arrow_fs.S3FileSystem) -> bool:
    """Create the bucket. Gives: False if the server does not answer yet."""
    try:
        store.create_dir("lake")
    except OSError:
        return False
    return True


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_a_checkpoint_in_an_object_store_is_read_and_keeps_its_trail(
    store: arrow_fs.S3FileSystem, scheme: str
) -> None:
    for name, data in (
        ("q/metadata", b'{"id": "q"}'),
        ("q/offsets/3", b"v1"),
        ("o/metadata", b'{"id": "o"}'),
    ):
        with store.open_output_stream(f"lake/{name}") as stream:
            stream.write(data)
    checkpoint = Checkpoint(f"{scheme}://lake/q", "q")
    assert checkpoint.plan_of_batch(3, check_id=True) and checkpoint.trail() == Trail()
    trail = Trail("g", "run", PlannedBatch(3, "plan"))
    checkpoint.write(trail)
    assert checkpoint.trail() == trail
    assert Checkpoint.at(CheckpointPlace(root=f"{scheme}://lake"), "q").trail() == trail
    with pytest.raises(CheckpointError, match="has no file offsets/4"):
        checkpoint.plan_of_batch(4, check_id=True)
    with pytest.raises(CheckpointError, match="has no file metadata"):
        Checkpoint(f"{scheme}://lake/elsewhere", "q").plan_of_batch(3, check_id=True)

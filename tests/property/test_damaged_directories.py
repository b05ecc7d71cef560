"""One file of the broker's directory is truncated, changed or missing. The broker must start with
everything that the other files contain, or name the bad file and say what to do.

The requirements are in helpers/damaged_directories.py, which also tries every byte
(`PYTHONPATH=tests/tools:tests:. python -m helpers.damaged_directories`).
"""

from __future__ import annotations

import pytest
from helpers.damaged_directories import KINDS, WAYS, Damage, check, files_of, original
from helpers.examples import drawn
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barnabas.storage.files.checkpoints import METADATA_JOURNAL_NAME
from barnabas.storage.opening.last_run import BOOT_ID_NAME

pytestmark = pytest.mark.deep


@settings(max_examples=drawn(150), suppress_health_check=[HealthCheck.too_slow])
@given(
    way=st.sampled_from(WAYS),
    pick=st.floats(0, 0.999),
    kind=st.sampled_from(KINDS),
    where=st.floats(0, 0.999),
    value=st.integers(1, 255),
)
def test_the_broker_handles_any_damage_of_one_file(
    way: str, pick: float, kind: str, where: float, value: int
) -> None:
    # contract: kip-98/damage
    """`check` fails if the broker loses anything but the damaged part, or does not report a
    loss.
    """
    files = files_of(way)
    name = list(files)[int(len(files) * pick)]
    if kind == "flip" and not files[name]:
        kind = "delete"
    check(Damage(way, name, kind, int(files[name] * where), value))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "suffix",
    [
        ".index",
        ".timeindex",
        ".txnindex",
        ".snapshot",
        "manifest",
        "checkpoint",
        BOOT_ID_NAME,
        METADATA_JOURNAL_NAME,
    ],
)
def test_the_broker_starts_without_any_one_of_the_files_beside_the_logs(
    way: str, suffix: str
) -> None:
    """The logs are enough to rebuild indexes, snapshots, manifests, checkpoints and the journal."""
    names = [name for name in files_of(way) if name.endswith(suffix)]
    assert names or (suffix, way) in ((".index", "killed"), (".timeindex", "killed")), (
        "there is such a file"
    )
    for name in names:
        assert check(Damage(way, name, "delete", 0)) in ("silent", "said")


@pytest.mark.parametrize("way", WAYS)
def test_the_undamaged_directory_has_data_of_every_kind(way: str) -> None:
    """Without such data, the tests above would damage files that have no content to lose."""
    found = original(way)
    assert set(found.topics) == {"plain", "payments", "__consumer_offsets", "__transaction_state"}
    assert {metadata.state.name for metadata in found.transactions.values()} == {
        "COMPLETE_COMMIT",
        "ONGOING",
    }
    segments = [name for name in files_of(way) if name.endswith(".log")]
    assert len(segments) >= 8
    assert list(found.committed["payments", 0].values()) == [
        b"t0",
        b"t0",
        b"t2",
        b"t2",
        b"t3",
        b"t3",
    ]
    assert min(found.committed["plain", 0]) == 2

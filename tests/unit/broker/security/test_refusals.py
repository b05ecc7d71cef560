"""Log lines about requests that ACLs refused: when they are written, how many, and what they
contain.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.broker.logs.metadata import ClusterMetadata
from barnabas.broker.observation.log_lines import INTERVAL_MS, MOST_PEERS
from barnabas.broker.security.acls import CLUSTER_NAME, Operation, ResourceType
from barnabas.broker.security.authorizer import Authorizer
from barnabas.broker.security.refusals import RefusalLines
from barnabas.protocol.request_context import RequestContext
from barnabas.storage.disk import OsDisk

READ, CREATE = Operation.READ, Operation.CREATE
TOPIC, CLUSTER = ResourceType.TOPIC, ResourceType.CLUSTER
FETCH = 1
ANN = ("User:ann", "192.0.2.1")


@pytest.fixture
def lines() -> RefusalLines:
    lines = RefusalLines()
    lines.api_key = FETCH
    return lines


def test_a_line_names_the_user_the_operation_and_the_command_that_allows_it(
    lines: RefusalLines, caplog: pytest.LogCaptureFixture
) -> None:
    lines.write(*ANN, READ, TOPIC, "orders")
    (text,) = caplog.messages
    assert text.startswith("User:ann at 192.0.2.1 may not read topic:orders (Fetch): ")
    assert "`barnabas acl add ann read topic:orders` allows it" in text


def test_arguments_of_the_suggested_command_are_quoted_for_a_shell(
    lines: RefusalLines, caplog: pytest.LogCaptureFixture
) -> None:
    lines.write("User:CN=ann, O=x", "192.0.2.1", Operation.DESCRIBE_CONFIGS, TOPIC, "$(reboot)")
    assert "`barnabas acl add 'CN=ann, O=x' describe-configs 'topic:$(reboot)'`" in caplog.text


def test_the_cluster_has_no_name(lines: RefusalLines, caplog: pytest.LogCaptureFixture) -> None:
    lines.write(*ANN, CREATE, CLUSTER, CLUSTER_NAME)
    assert "`barnabas acl add ann create cluster`" in caplog.text


def test_a_client_has_one_line_a_minute(
    lines: RefusalLines, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(100):
        lines.write(*ANN, READ, TOPIC, f"t{number}")
        lines.now_ms += 1
    lines.write("User:ann", "192.0.2.2", READ, TOPIC, "t")
    lines.write("User:ben", "192.0.2.1", READ, TOPIC, "t")
    assert [text.partition(" may")[0] for text in caplog.messages] == [
        "User:ann at 192.0.2.1",
        "User:ann at 192.0.2.2",
        "User:ben at 192.0.2.1",
    ]
    lines.now_ms = INTERVAL_MS
    lines.write(*ANN, READ, TOPIC, "later")
    assert "topic:later" in caplog.messages[-1]


def test_the_table_of_clients_is_bounded(
    lines: RefusalLines, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(3 * MOST_PEERS):
        lines.write("User:ann", f"host-{number}", READ, TOPIC, "t")
    assert len(caplog.messages) == MOST_PEERS + 1, "the others share a line"
    assert len(lines._lines._rows) == MOST_PEERS + 1
    lines.now_ms = INTERVAL_MS
    lines.write(*ANN, READ, TOPIC, "t")
    assert len(lines._lines._rows) == 1


@pytest.mark.parametrize("is_audited", [False, True])
def test_only_what_is_refused_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_audited: bool
) -> None:
    """Two kinds of failed check are not logged: one whose entry is silently left out of the
    response, and one that another permission may replace.
    """
    metadata = ClusterMetadata(OsDisk(), str(tmp_path / "journal"))
    authorizer = Authorizer(metadata, audit=(lambda record: None) if is_audited else None)
    context = RequestContext(1, 0, "client", "/192.0.2.1", connection_id=1, api_key=FETCH)
    access = authorizer.access("User:ann", "/192.0.2.1", context)
    assert not access.sees(READ, TOPIC, "orders")
    assert not access.is_enough_on_cluster(CREATE)
    assert not access.may_any(READ, TOPIC)
    assert caplog.messages == []
    assert not access.may(READ, TOPIC, "orders")
    assert len(caplog.messages) == 1
    authorizer.refusals.now_ms = INTERVAL_MS
    assert not access.may(READ, TOPIC, "orders"), "the decision is remembered"
    assert len(caplog.messages) == 2


def test_a_check_for_the_console_is_not_logged_as_the_last_clients_request(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The console has no connection of its own: its checks name the equivalent request."""
    authorizer = Authorizer(ClusterMetadata(OsDisk(), str(tmp_path / "journal")))
    produce = RequestContext(1, 9, "client", "/192.0.2.1", api_key=0)
    assert not authorizer.access("User:ben", "/192.0.2.1", produce).may(READ, TOPIC, "a")
    fetch = RequestContext(-1, 0, "console", "/192.0.2.2", api_key=FETCH)
    assert not authorizer.access("User:ann", "/192.0.2.2", fetch).may(READ, TOPIC, "orders")
    assert "User:ann at 192.0.2.2 may not read topic:orders (Fetch): " in caplog.text

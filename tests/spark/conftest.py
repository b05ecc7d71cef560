"""One Spark session for the tests of each file, and one broker for all tests. Without Java or
PySpark the tests are skipped, and the reason is shown.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from barnabas import LocalBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


SETTINGS = {"spark.log.level": "OFF", "spark.sql.shuffle.partitions": "2"}


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """A session that is stopped at the end of the file, since tests in other files need other
    settings and would otherwise get this session. Its Java process keeps running.
    """
    from barnabas.spark_connector.session import MissingRequirementError, local_session, prepare

    try:
        prepare()
    except MissingRequirementError as error:
        pytest.skip(str(error))
    session = local_session("tests", cores=2, settings=SETTINGS)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def broker() -> Iterator[LocalBroker]:
    """A real broker, on which a topic created by a write has two partitions."""
    with LocalBroker(
        settings={"num.partitions": "2", "log.retention.ms": "-1"}
    ) as running:  # no deletion by age, since some records have timestamps of 1970
        yield running


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Ignore warnings about resources that PySpark, py4j and librdkafka leave open."""
    for item in items:
        if "tests/spark" in str(item.path):
            item.add_marker(pytest.mark.spark)
            for ignored in (
                "ResourceWarning",
                "pytest.PytestUnraisableExceptionWarning",
                "FutureWarning",
                "DeprecationWarning",
            ):
                item.add_marker(pytest.mark.filterwarnings(f"ignore::{ignored}"))

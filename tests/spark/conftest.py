"""One Spark and one broker for all tests here; both are skipped, with the reason, where Java or PySpark is missing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from barnabas import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# A quick start is worth more here than the best code of Java's compiler.
SETTINGS = {
    "spark.log.level": "OFF",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from spark_connector.session import MissingRequirementError, local_session, prepare

    try:
        prepare()
    except MissingRequirementError as error:
        pytest.skip(str(error))
    session = local_session("tests", cores=2, settings=SETTINGS)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def broker() -> Iterator[BrokerProcess]:
    """A real one, with two partitions for a topic that is made by writing to it."""
    with BrokerProcess(settings={"num.partitions": "2"}) as running:
        yield running


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What PySpark, py4j and librdkafka leave open is their own affair."""
    for item in items:
        if "tests/spark" in str(item.path):
            item.add_marker(pytest.mark.spark)
            for ignored in ("ResourceWarning", "pytest.PytestUnraisableExceptionWarning", "FutureWarning", "DeprecationWarning"):
                item.add_marker(pytest.mark.filterwarnings(f"ignore::{ignored}"))

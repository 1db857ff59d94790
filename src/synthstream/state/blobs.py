"""Arrays as bytes and back. Bytes that are no arrays raise one error, whatever is in them."""

from __future__ import annotations

import io
import zipfile
import zlib
from typing import Any

import numpy as np

from synthstream.errors import StateCorrupt
from synthstream.workload import IntArray

Arrays = dict[str, np.ndarray[Any, np.dtype[Any]]]

# A release of the deepest partition is half as large; zlib makes at most a thousand bytes of one.
_LARGEST = 1 << 34


def packed(arrays: Arrays) -> bytes:
    """Named arrays, not compressed: the size tells shapes only."""
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def unpacked(blob: bytes) -> Arrays:
    """What :func:`packed` packed. Raises ``StateCorrupt`` if it is something else."""
    try:
        with zipfile.ZipFile(io.BytesIO(blob)) as members:
            if any(m.compress_type != zipfile.ZIP_STORED or m.file_size > len(blob) for m in members.infolist()):
                raise ValueError
        with np.load(io.BytesIO(blob), allow_pickle=False) as stored:
            return dict(stored)
    except Exception:  # numpy and zipfile raise many kinds; none of them may tell what the bytes are
        raise _no_arrays() from None


def packed_ints(values: IntArray) -> bytes:
    """Integers as bytes, low bytes of all first, so that the high ones compress."""
    planes = np.ascontiguousarray(values, dtype="<i8").view(np.uint8).reshape(-1, 8).T
    return zlib.compress(np.ascontiguousarray(planes).tobytes(), 1)


def unpacked_ints(blob: bytes) -> IntArray:
    """What :func:`packed_ints` packed. Raises ``StateCorrupt`` if it is something else."""
    reader = zlib.decompressobj()
    try:
        raw = reader.decompress(blob, _LARGEST)
    except (zlib.error, MemoryError):
        raise _no_arrays() from None
    if not reader.eof or reader.unused_data or len(raw) % 8:
        raise _no_arrays()
    planes = np.frombuffer(raw, dtype=np.uint8).reshape(8, -1)
    return np.ascontiguousarray(planes.T).view("<i8").reshape(-1).astype(np.int64)


def _no_arrays() -> StateCorrupt:
    return StateCorrupt("The state is damaged: what should be arrays is not. Restore the folder whole.")

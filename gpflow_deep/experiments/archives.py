"""Files of NumPy arrays, as they are found."""

from __future__ import annotations

import pickle
import zlib
from zipfile import BadZipFile

__all__ = ["UNREADABLE"]

#: What numpy, zipfile and zlib say of a file that is damaged, or was none of theirs.
UNREADABLE = (
    *(ValueError, EOFError, OSError, NotImplementedError),
    *(BadZipFile, pickle.UnpicklingError, zlib.error),
)

"""Where a fit of an estimator keeps its checkpoints until it is done."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np

from gpflow_deep.training.checkpoints import check_directory
from gpflow_deep.training.progress import fingerprint
from gpflow_deep.validation.files import written_whole

from .kept import has_work

__all__ = ["checkpoint_folder"]

_SEED = "seed"


@contextmanager
def checkpoint_folder(
    estimator: Any, data: Sequence[np.ndarray], seed: int
) -> Iterator[tuple[Path | None, int]]:
    """
    While a fit is made, a folder for the checkpoints of its members.

    It is gone once the fit is done, so that the next one begins anew: it may be told to start from this one.
    Data and random state decide about its name, so that the parts of a cross-validation do not meet. The
    command line keeps one folder for all, until what was fitted is saved.

    :param data: that decide about the fit.
    :param seed: drawn for it.
    :return: the folder, ``None`` without `checkpoint_dir`; and the seed, which is that of the interrupted
        call where `random_state` gives another each time.
    :raises OSError: nothing can be written there.
    """
    directory, state = estimator.checkpoint_dir, estimator.random_state
    if directory is None:
        yield None, seed
        return
    check_directory(directory)
    if estimator._checkpoints_are_kept:
        yield Path(directory), seed
        return
    is_given = isinstance(state, Integral)
    call = f"{fingerprint(data)} {int(state) if is_given else None}"
    folder = Path(directory) / f"fit-{hashlib.sha256(call.encode()).hexdigest()[:16]}"
    if not is_given:
        seed = _kept(folder / _SEED, seed)
    try:
        yield folder, seed
    except BaseException:
        if not any(map(has_work, folder.glob("*"))):
            shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)


def _kept(path: Path, seed: int) -> int:
    """The seed that was written there before, or this one, which now is."""
    with suppress(OSError, ValueError):
        return int(path.read_text())
    with written_whole(path) as file:
        file.write(str(seed).encode())
    return seed

"""Members of a fit that is not done yet, kept until it is."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from gpflow_deep import __version__
from gpflow_deep.training.checkpoints import whole_checkpoints
from gpflow_deep.training.progress import fingerprint
from gpflow_deep.validation.files import written_whole

from .fitted import FittedModel

__all__ = ["MEMBER", "has_work", "kept_member"]

#: The file of a member, beside the checkpoints of its training if there are any.
MEMBER = "member.npz"
_FACTS, _CALL, _OWN_ROWS = "facts", "call", "own_rows"


def kept_member(
    run: Path | None,
    fit: Callable[[], FittedModel],
    data: Sequence[np.ndarray],
    options: Any,
) -> FittedModel:
    """
    A fitted member: as an interrupted fit has left it, or else fitted, and kept for the case that this one
    is interrupted later.

    :param run: its folder; nothing is kept without.
    :param fit: fits it.
    :param data: that decide about it; those of another call are fitted again.
    :param options: likewise; they have a `repr` of their values.
    """
    if run is None:
        return fit()
    call = f"{__version__} {fingerprint(data)} {options!r}"
    call = hashlib.sha256(call.encode()).hexdigest()
    # What is damaged, or of another version, is fitted again.
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError, BadZipFile, EOFError):
        return _read(run / MEMBER, call)
    member = fit()
    with suppress(OSError):  # a full disk costs what it may save, not the fit
        _write(run / MEMBER, call, member)
    return member


def has_work(run: Path) -> bool:
    """Whether there is something in a member's folder that a fit can go on from."""
    return bool(whole_checkpoints(run)) or (run / MEMBER).exists()


def _write(path: Path, call: str, member: FittedModel) -> None:
    facts, arrays = member.state()
    if member.own_rows is not None:
        arrays = {**arrays, _OWN_ROWS: member.own_rows}
    with written_whole(path) as file:
        np.savez(file, **{_FACTS: np.array(json.dumps(facts)), _CALL: np.array(call)}, **arrays)


def _read(path: Path, call: str) -> FittedModel:
    # Opened here: of a damaged archive NumPy leaves its own file open.
    with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
        arrays = dict(file)
    if str(arrays.pop(_CALL)) != call:
        raise ValueError("a member of another call")
    own_rows = arrays.pop(_OWN_ROWS, None)
    member = FittedModel.from_state(json.loads(str(arrays.pop(_FACTS))), arrays)
    member.own_rows = own_rows
    os.utime(path.parent)  # as training leaves a run that it goes on with
    return member

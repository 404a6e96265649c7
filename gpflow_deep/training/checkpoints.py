"""The checkpoints of a run: whole or not there, verified when read, of one process at a time."""

from __future__ import annotations

__all__ = ["Checkpoints", "NoRoomError", "check_directory", "whole_checkpoints"]

import hashlib
import json
import os
import re
import shutil
import warnings
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from gpflow_deep.validation.files import check_writable

from .descriptions import describe_optimizer
from .lock import Lock
from .progress import Progress

_CHECKSUMS = "checksums.json"
_PROGRESS = "progress.json"
_VARIABLES = "variables"

#: Settings that a run may go on with other values of: what a failed run's error says to change.
_CHANGEABLE = re.compile(
    r"optimizer\..*(learning_rate|decay_rate|decay_steps)|natural_gradient|.*jitter"
)


class NoRoomError(OSError):
    """There is none for two checkpoints."""


class _Damaged(Exception):
    """Why a checkpoint cannot be read."""


class Checkpoints(AbstractContextManager["Checkpoints"]):
    """
    The checkpoints of one run: the two latest, each with all that it takes to go on from it.

    A checkpoint is a folder `step-N`, renamed to that when all of it is written: a kill leaves none
    by halves. A checksum of each of its files tells when it was damaged later; :meth:`restore` then
    goes back to the one before. As a context it holds the directory for this process alone.

    :param directory: where they are; made, with its parents, if it is not there.
    :param progress: of this run; :meth:`restore` fills it.
    :param model: of this run.
    :param optimizer: built for the model's variables.
    :param best: the parameters with the best validation score, if there is validation.
    :param sampler: built for the chains of the model, if it has any.
    :param is_writer: whether this process writes them; of several workers one does, the others only read.
    :raises OSError: nothing can be written there, or there is no room for two checkpoints.
    :raises RuntimeError: another process is at a run there.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        progress: Progress,
        model: tf.Module,
        optimizer: Any,
        best: Sequence[tf.Variable] = (),
        sampler: tf.Module | None = None,
        is_writer: bool = True,
    ) -> None:
        self._directory = Path(directory)
        self._progress = progress
        self._optimizer = optimizer
        parts = {} if sampler is None else {"sampler": sampler}
        self._checkpoint = tf.train.Checkpoint(
            model=model, optimizer=optimizer, best=list(best), **parts
        )
        self._latest: Path | None = None  # of those known to be whole
        self._failed = False
        self._lock: Lock | None = None
        if not is_writer:
            return
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            self._lock = Lock(self._directory / "lock")
        except OSError as error:
            raise type(error)(
                f"checkpoint_dir: expected a folder that can be written to, got {directory}: {error}"
            ) from error
        try:
            self._check_room([*model.variables, *optimizer.variables, *best])
        except OSError:
            self._lock.release()
            raise

    def __exit__(self, *_: object) -> None:
        if self._lock is not None:
            self._lock.release()

    def _check_room(self, variables: Sequence[Any]) -> None:
        needed = 2 * sum(np.asarray(variable).nbytes for variable in variables)
        free = shutil.disk_usage(self._directory).free
        if free < needed:
            raise NoRoomError(
                f"checkpoint_dir: two checkpoints of this model take {needed / 2**20:.1f} MiB, but "
                f"{self._directory} has room for {free / 2**20:.1f} MiB."
            )

    def save(self) -> None:
        """
        Write the present state.

        Where that fails, training loses nothing: a warning says so once, and the next save tries again.
        Another process writes where this is no writer.
        """
        if self._lock is None:
            return
        folder = self._directory / f"step-{self._progress.step}"
        partial = folder.with_suffix(".partial")
        try:
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            self._checkpoint.write(os.fspath(partial / _VARIABLES))
            (partial / _PROGRESS).write_text(json.dumps(asdict(self._progress)))
            checksums = {path.name: _checksum(path) for path in sorted(partial.iterdir())}
            (partial / _CHECKSUMS).write_text(json.dumps(checksums))
            _flush(partial)
            if folder.exists():  # damaged, or it would have been gone on from
                shutil.rmtree(folder)
            partial.rename(folder)
        except (OSError, tf.errors.OpError) as error:
            shutil.rmtree(partial, ignore_errors=True)
            if not self._failed:
                warnings.warn(
                    f"checkpoint_dir: step {self._progress.step} could not be written to "
                    f"{self._directory}: {_first_line(error)} Training goes on, and the model in memory "
                    "has its result; saving is tried again at every checkpoint.",
                    stacklevel=3,
                )
            self._failed = True
            return
        for path in self._directory.glob("step-*"):
            if path not in (folder, self._latest):
                shutil.rmtree(path, ignore_errors=True)
        self._latest = folder

    def restore(self, steps: int) -> bool:
        """
        Set progress and variables to the latest checkpoint that is whole, if there is one.

        :param steps: that the run is to have in all.
        :return: whether there was one.
        :raises ValueError: it is of a run with other settings or more steps, or none of this package's.
        """
        folders = whole_checkpoints(self._directory)
        if not folders and any(self._directory.glob("*.index")):
            raise ValueError(
                f"checkpoint_dir: the checkpoint in {self._directory} was not written by fit."
            )
        for folder in sorted(folders, key=_step, reverse=True):
            try:
                found = _read(folder)
            except _Damaged as damage:
                warnings.warn(
                    f"checkpoint_dir: {folder} is damaged: {damage}. It is passed over: training goes on "
                    "from the checkpoint before it, or starts anew where there is none.",
                    stacklevel=3,
                )
                continue
            self._check_settings(found.settings)
            if found.step > steps:
                raise ValueError(
                    f"steps: expected at least the {found.step} that the run in checkpoint_dir "
                    f"{self._directory} has taken, got {steps}."
                )
            learning_rate = describe_optimizer(self._optimizer).get("learning_rate")
            self._checkpoint.read(os.fspath(folder / _VARIABLES)).assert_existing_objects_matched()
            before, now = (
                _flat(run.settings).get("optimizer.learning_rate")
                for run in (found, self._progress)
            )
            # A variable, which now has the run's last value: what callbacks made of it, say.
            if isinstance(learning_rate, Real) and now != before:
                self._optimizer.learning_rate = float(learning_rate)
            for name in ("losses", "validations", "times", "seconds", "burn_in"):
                setattr(self._progress, name, getattr(found, name))
            self._latest = folder
            return True
        return False

    def _check_settings(self, found: Mapping[str, Any]) -> None:
        there, here = _flat(found), _flat(self._progress.settings)
        differences = {
            name: f"{name} was {there.get(name)!r} and is now {here.get(name)!r}"
            for name in sorted(there.keys() | here.keys())
            if there.get(name) != here.get(name)
        }
        refused = [
            text
            for name, text in differences.items()
            if not _may_change(name, there.get(name), here.get(name))
        ]
        if refused:
            advice = ". Use the same settings to go on with it, or another directory."
            if "data" in differences:
                advice += (
                    " Data are the same rows in the same order: of a dataset, without shuffle()."
                )
            raise ValueError(
                f"checkpoint_dir: {self._directory} holds a run with other settings: "
                + "; ".join(refused)
                + advice
            )
        if differences:
            warnings.warn(
                f"checkpoint_dir: the run in {self._directory} goes on with other settings: "
                + "; ".join(differences.values()),
                stacklevel=4,
            )


def _may_change(name: str, before: Any, now: Any) -> bool:
    """Natural gradients may have another size; begun or ended, they leave Adam with other parameters."""
    if name == "natural_gradient" and None in (before, now):
        return False
    return _CHANGEABLE.fullmatch(name) is not None


def whole_checkpoints(directory: Path) -> list[Path]:
    """
    The checkpoints in a directory, in no order. What a kill left by halves is none.

    :param directory: of a run; it need not be there.
    """
    return [path for path in directory.glob("step-*") if path.suffix != ".partial"]


def check_directory(directory: Any, is_writer: bool = True) -> None:
    """
    Check that a run can be kept there.

    :param is_writer: whether it is this process that writes it.
    :raises TypeError: it is no path.
    :raises ValueError: it is empty.
    :raises OSError: it cannot be written to.
    """
    if not isinstance(directory, str | os.PathLike):
        raise TypeError(
            f"checkpoint_dir: expected the path of a folder, got {type(directory).__name__}."
        )
    if not os.fspath(directory):
        raise ValueError("checkpoint_dir: expected the path of a folder, got an empty one.")
    if is_writer:
        try:
            check_writable(Path(directory))
        except OSError as error:
            raise type(error)(
                f"checkpoint_dir: expected a folder that can be written to, got {directory}:"
                f" {error.__cause__}"
            ) from error


def _read(folder: Path) -> Progress:
    """
    The progress that a checkpoint holds, all of its files verified.

    :raises _Damaged: Something is missing, or not what was written.
    """
    try:
        checksums = json.loads((folder / _CHECKSUMS).read_bytes())
        for name, checksum in checksums.items():
            if _checksum(folder / name) != checksum:
                raise _Damaged(f"{name} is not what was written")
        if not {f"{_VARIABLES}.index", _PROGRESS} <= checksums.keys():
            raise _Damaged(f"{_CHECKSUMS} is not what was written")
        saved = json.loads((folder / _PROGRESS).read_bytes())
    except FileNotFoundError as error:
        raise _Damaged(f"{Path(error.filename).name} is missing") from error
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise _Damaged(f"it cannot be read ({error})") from error
    for name in ("validations", "times"):
        saved[name] = [(step, value) for step, value in saved.get(name, ())]
    return Progress(**saved)


def _step(folder: Path) -> int:
    number = folder.name.removeprefix("step-")
    return int(number) if number.isdecimal() else -1


def _checksum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _flush(folder: Path) -> None:
    """See to it that what was written is on the disk before its name says so."""
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings as one dictionary, with dots in its keys."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".") + "."

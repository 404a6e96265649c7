"""
The record of finished runs: a file of JSON lines, and beside it what a line has no room for.

Next to `NAME.jsonl` lie `NAME.points/KEY.npz`, the run's test points one by one, and, while the run
is unfinished, `NAME.checkpoints/KEY/`.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gpflow_deep.experiments.archives import UNREADABLE
from gpflow_deep.experiments.splits import STUDIES
from gpflow_deep.presets import Settings
from gpflow_deep.validation.files import written_whole

__all__ = ["Results", "Run", "warn_of_each"]

#: What every record has, whatever else its run was found to be.
_KINDS = dict(model=str, dataset=str, study=str, split=int, seed=int, settings=dict, key=str)
_WARNED = 3  # of the lines of a file that are wrong, one by one


@dataclass(frozen=True)
class Run:
    """
    One model trained and tested on one split.

    :param model: a registered name.
    :param dataset: name of a data set.
    :param study: `interpolation` or `extrapolation`.
    :param split: number of the split, from 0.
    :param seed: of initial values, minibatches and samples.
    :param settings: size and training of the model.
    """

    model: str
    dataset: str
    study: str
    split: int
    seed: int
    settings: Settings

    @property
    def key(self) -> str:
        """The same for the same run, whenever and wherever it is asked for."""
        text = json.dumps({**asdict(self), "settings": self.settings.identity()}, sort_keys=True)
        return hashlib.sha256(text.encode("utf-8")).hexdigest()[:16]

    def __str__(self) -> str:
        return (
            f"{self.model}, {self.settings.num_layers} layer(s), {self.dataset}, "
            f"{self.study} split {self.split}, seed {self.seed}"
        )


class Results:
    """
    Finished runs in a file of JSON lines.

    Safe against a kill at any moment: a line that was not written to its end counts for nothing.

    :param path: the file, by convention `*.jsonl`. It need not exist yet.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        if self.path.is_dir():
            raise ValueError(f"path: expected a file, got the folder {self.path}.")

    def read(self) -> list[dict[str, Any]]:
        """One record a finished run, in the order of the file; of equal keys, the last."""
        records: dict[str, dict[str, Any]] = {}
        if self.path.exists():
            wrong = []
            # A kill can cut a character in two, and editors set a mark before the first.
            text = self.path.read_text(encoding="utf-8-sig", errors="replace")
            for number, line in enumerate(text.split("\n"), start=1):
                record = _parse(line)
                if record is not None:
                    records[record["key"]] = record
                elif line.strip():
                    wrong.append(f", line {number}: not a complete record; it is ignored")
            warn_of_each(self.path, wrong, "line")
        return list(records.values())

    def append(self, run: Run, record: dict[str, Any], points: dict[str, np.ndarray]) -> None:
        """
        Add a finished run.

        :param run: which one.
        :param record: what else is to be kept of it, as JSON has it.
        :param points: arrays with one row a test point.
        :raises ValueError: a number of the record is not finite.
        """
        try:
            line = json.dumps({"key": run.key, **asdict(run), **record}, allow_nan=False)
        except ValueError as error:
            names = ", ".join(_not_finite(record))
            raise ValueError(f"record: expected finite numbers, got {names}.") from error
        self._save_points(run.key, points)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab+") as file:
            # A killed run may have left half a line: that must not swallow this one.
            broken = file.tell() > 0 and _last_byte(file) != b"\n"
            file.write((b"\n" if broken else b"") + line.encode("utf-8") + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def points(self, key: str) -> dict[str, np.ndarray] | None:
        """
        The test points of a finished run, or None where their file is not there or is damaged.

        :param key: of the run.
        """
        path = self._points_path(key)
        if not path.exists():
            return None
        try:
            with np.load(path) as arrays:
                return dict(arrays)
        except UNREADABLE as error:
            warnings.warn(f"{path}: damaged ({error}); it is ignored.", stacklevel=2)
            return None

    def checkpoint_dir(self, key: str) -> Path:
        """
        Folder for the checkpoints of an unfinished run.

        :param key: of the run.
        """
        return self.path.with_suffix(".checkpoints") / key

    def _points_path(self, key: str) -> Path:
        return self.path.with_suffix(".points") / f"{key}.npz"

    def _save_points(self, key: str, points: dict[str, np.ndarray]) -> None:
        with written_whole(self._points_path(key)) as file:
            np.savez_compressed(file, **points)


def warn_of_each(path: Path, wrong: Sequence[str], what: str) -> None:
    """
    Warn of what is wrong in a file, of the first few one by one: a file of another kind has many lines.

    :param path: of the file.
    :param wrong: each as it follows the file's name.
    :param what: they are, one of them.
    """
    told, others = [*wrong[:_WARNED]], len(wrong) - _WARNED
    if others > 0:
        told.append(f": the same of {others} more {what}{'s' if others > 1 else ''}")
    for text in told:
        warnings.warn(f"{path}{text}.", stacklevel=3)


def _last_byte(file: Any) -> bytes:
    file.seek(-1, os.SEEK_END)
    return bytes(file.read(1))


def _parse(line: str) -> dict[str, Any] | None:
    try:
        record = json.loads(line, parse_constant=_refuse)
    # A number can have more digits than Python reads, and lists can be deeper.
    except (ValueError, RecursionError):
        return None
    if not _is_record(record):
        return None
    return {**record, "settings": {**Settings.added_defaults(), **record["settings"]}}


def _is_record(record: Any) -> bool:
    """Whether it has what tells a run from others; its scores are for those to check who want them."""
    return (
        isinstance(record, dict)
        and all(isinstance(record.get(name), kind) for name, kind in _KINDS.items())
        and not any(isinstance(record[name], bool) for name in ("split", "seed"))
        and record["study"] in STUDIES  # figures are named by it
        and isinstance(record["settings"].get("num_layers"), int)
        and all(map(_is_setting, record["settings"].values()))
    )


def _is_setting(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int | str) and not isinstance(value, bool)


def _refuse(constant: str) -> None:
    """What JSON does not have: no record was written with it."""
    raise ValueError(f"expected a finite number, got {constant}.")


def _not_finite(record: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Names and values of the numbers that JSON does not have."""
    for name, value in record.items():
        if isinstance(value, Mapping):
            yield from _not_finite(value, f"{prefix}{name}.")
        elif isinstance(value, float) and not math.isfinite(value):
            yield f"{prefix}{name} = {value}"

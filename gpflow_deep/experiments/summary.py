"""Means and standard errors over the splits of a benchmark."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from gpflow_deep.experiments.results import Results

__all__ = ["Estimate", "Group", "group", "shares"]

#: Settings that are a column of every table, whether or not they differ between the runs.
_DEPTH = "num_layers"

#: Settings of training, which tell runs apart where those of one model differ in them.
_TRAINING = frozenset(
    (
        *("likelihood_variance", "steps", "batch_size", "natural_gradient"),
        *("learning_rate", "decay_rate", "decay_steps"),
        *("validation_fraction", "validate_every", "patience"),
    )
)


_SMALL = 5e-4  # what three digits round to nothing
_MOST_DIGITS = 10


@dataclass(frozen=True)
class Estimate:
    """
    Mean over repetitions.

    :param mean: the mean.
    :param error: its standard error; None for a single repetition.
    :param count: number of repetitions.
    """

    mean: float
    error: float | None
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Estimate:
        """
        From the values of the repetitions.

        :param values: at least one.
        """
        count = len(values)
        error = float(np.std(values, ddof=1)) / math.sqrt(count) if count > 1 else None
        return cls(float(np.mean(values)), error, count)

    def __str__(self) -> str:
        # Of small numbers, as errors of targets in small units are, as many digits as say something.
        resolution = self.error or abs(self.mean) / 100.0
        small = 0.0 < resolution < _SMALL
        digits = min(1 - math.floor(math.log10(resolution)), _MOST_DIGITS) if small else 3
        if self.error is None:
            return f"{self.mean:.{digits}f}"
        return f"{self.mean:.{digits}f} ({self.error:.{digits}f})"


@dataclass(frozen=True)
class Group:
    """
    Runs that differ in the split and the seed only.

    :param study: name of the study.
    :param dataset: name of the data set.
    :param model: registered name.
    :param num_layers: GP layers.
    :param variant: those other settings, by name, in which the runs of the file differ: of training where
        this model's runs do.
    :param records: the runs.
    """

    study: str
    dataset: str
    model: str
    num_layers: int
    variant: tuple[tuple[str, Any], ...]
    records: tuple[dict[str, Any], ...]

    @property
    def label(self) -> str:
        """Model, depth and variant, for a reader."""
        parts = [f"L={self.num_layers}", *(f"{name}={_shown(x)}" for name, x in self.variant)]
        return f"{self.model} ({', '.join(parts)})"

    @property
    def num_splits(self) -> int:
        """How many different ones, of whatever seeds."""
        return len({record["split"] for record in self.records})

    def metric(self, name: str) -> Estimate:
        """
        A score over the splits.

        :param name: of the score.
        """
        return _over_splits((record, record["metrics"][name]) for record in self.records)

    def seconds(self) -> Estimate:
        """Seconds a run."""
        return _over_splits((record, record["seconds"]) for record in self.records)


def _over_splits(values: Iterable[tuple[dict[str, Any], float]]) -> Estimate:
    """From runs and their values: seeds of one split share its data, and are no repetitions of it."""
    of_split: dict[int, list[float]] = {}
    for record, value in values:
        of_split.setdefault(record["split"], []).append(value)
    return Estimate.of([float(np.mean(seeds)) for seeds in of_split.values()])


def _shown(value: int | float | str) -> str:
    """Whole numbers in full: labels are to tell groups apart."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def group(records: Iterable[dict[str, Any]]) -> list[Group]:
    """
    Put together what differs in the split and the seed only, in the order of the tables.

    :param records: finished runs.
    """
    records = list(records)
    varying = _varying(records)
    varying_of = {
        model: _varying([record for record in records if record["model"] == model])
        for model in {record["model"] for record in records}
    }

    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for record in records:
        settings = record["settings"]
        # How models are trained tells apart runs of one of them; that others are trained otherwise does not.
        names = sorted((varying - _TRAINING) | (varying_of[record["model"]] & _TRAINING))
        variant = tuple((name, settings[name]) for name in names if name in settings)
        # One data set's rows stand together, the shallow before the deep.
        key = (record["study"], record["dataset"], settings[_DEPTH], record["model"], variant)
        groups.setdefault(key, []).append(record)
    return [
        Group(study, dataset, model, num_layers, variant, tuple(members))
        for (study, dataset, num_layers, model, variant), members in sorted(
            groups.items(), key=lambda item: _order(*item[0])
        )
    ]


def _order(*key: Any) -> tuple[Any, ...]:
    """Of groups: a setting that is a number in one record may be text in another."""
    *names, variant = key
    return *names, [(name, isinstance(value, str), value) for name, value in variant]


def _varying(records: Sequence[dict[str, Any]]) -> set[str]:
    """The settings, but for the number of layers, that are not the same in all runs."""
    values: dict[str, set[Any]] = {}
    for record in records:
        for name, value in record["settings"].items():
            values.setdefault(name, set()).add(value)
    return {name for name, seen in values.items() if len(seen) > 1 and name != _DEPTH}


def shares(
    results: Results,
    groups: Sequence[Group],
    model: str,
    rival: str,
    alike: Sequence[str] | None = None,
) -> list[tuple[Group, Estimate]]:
    """
    Share of the test points to which a model gives a higher density than its rival.

    Runs are compared with those of the rival on the same split with the same seed and settings, or with some
    of the settings the same: of several with the most alike. The share is of the points of a split, averaged
    over seeds; mean and standard error are over splits.

    :param results: where the runs' test points are.
    :param groups: of these results.
    :param model: registered name.
    :param rival: registered name.
    :param alike: the settings that are to be the same; all by default.
    :return: the model's groups for which there is a comparison, and the share.
    """
    candidates: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for theirs in groups:
        for record in theirs.records if theirs.model == rival else ():
            candidates.setdefault(_setting(record, alike), []).append(record)
    estimates = []
    for ours in groups:
        if ours.model != model:
            continue
        values = []
        for record in ours.records:
            likeness = partial(_likeness, record)
            rivals = candidates.get(_setting(record, alike), [])
            other = max(reversed(rivals), key=likeness, default=None)
            if other is None:
                continue
            mine, its = _log_density(results, record), _log_density(results, other)
            if mine is None or its is None:
                continue
            if mine.shape != its.shape:
                warnings.warn(
                    f"{results.path}: runs {record['key']} and {other['key']} of one split have {len(mine)}"
                    f" and {len(its)} test points; they are not compared.",
                    stacklevel=2,
                )
                continue
            values.append((record, float(np.mean(mine > its))))
        if values:
            estimates.append((ours, _over_splits(values)))
    return estimates


def _log_density(results: Results, record: dict[str, Any]) -> np.ndarray | None:
    """Of a run's test points, where it is known."""
    points = results.points(record["key"])
    if points is not None and "log_density" not in points:
        warnings.warn(
            f"{results.path}: the test points of run {record['key']} have no log_density; they are not"
            " compared.",
            stacklevel=3,
        )
    return None if points is None else points.get("log_density")


def _likeness(record: dict[str, Any], other: dict[str, Any]) -> int:
    """How many settings two runs have in common."""
    theirs = other["settings"]
    return sum(theirs.get(name) == value for name, value in record["settings"].items())


def _setting(record: dict[str, Any], alike: Sequence[str] | None) -> tuple[Any, ...]:
    """What two runs must share to be compared point by point."""
    settings = record["settings"]
    names = sorted(settings if alike is None else alike)
    settings = tuple((name, settings.get(name)) for name in names)
    return record["study"], record["dataset"], record["split"], record["seed"], settings

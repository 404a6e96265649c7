"""Which families: fits of several, and all of them mixed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from gpflow_deep.numerics.factorisations import FactorisationError
from gpflow_deep.presets.registry import CONSTANT, EXACT, LINEAR
from gpflow_deep.training import TrainingError

from .fitted import FittedModel
from .rows import Rows, folds
from .stacking import stacking_weights

__all__ = [
    "FOLDS",
    "LEAST",
    "QUICK",
    "Budget",
    "Candidate",
    "Fit",
    "candidates",
    "cross_validate",
    "select",
]

#: Families that take next to no time.
QUICK = (CONSTANT, LINEAR)
#: Families of a single layer that are worth a try, by likelihood.
_SHALLOW = {
    "gaussian": (*EXACT, LINEAR),
    "student-t": ("svgp",),
    "bernoulli": ("svgp", "gp", LINEAR),
    "softmax": ("svgp", "gp", LINEAR),
}

_SHORT = 0.25  # share of the steps that tells whether a family is worth the rest
_SHARE = 0.2  # of the time that is left, for every fit but the last
_FEW_ROWS, _SHARE_OF_FEW = 500, 0.4  # likewise, of exact GPs that with it get where they are going
FOLDS = 4
_WHOLE = 4  # times the share of a fit to parts of the rows, for the one that predicts
_EQUAL_ROWS = 50.0  # for nearly equal weights,
# Of which an e-th is for a member that is so many nats behind; of classes such a share of the best one's log
# loss, which may be next to nothing.
_BEHIND, _BEHIND_OF_CLASSES = 0.1, 0.25
_BY_CHANCE = 10.0  # nats in all, which tell nothing of far fewer classified rows than _EQUAL_ROWS
#: Of the constant: what the others are sure of may be wrong once in so many rows.
LEAST = 0.001
# Rounded targets whose probabilities are so much on average are known: what is left to tell is the density.
_KNOWN = 0.9
# Of one family, each annealed in up to so many times the steps that the first took to its best.
_MOST_ALIKE, _ANNEALED = 4, 2.0

_NEXT_TO_NOTHING = 1e-3  # seconds

Mixed = tuple[list[FittedModel], np.ndarray, list["Candidate"]]


class Fit(Protocol):
    """Trains a family for a share of its steps and of the time that is left, the label telling fits apart."""

    def __call__(
        self,
        name: str,
        train: Rows,
        held_out: Rows | None,
        *,
        label: str,
        steps: float = 1.0,
        time: float = 1.0,
        start: FittedModel | None = None,
        again: Again | None = None,
    ) -> FittedModel:
        """Of rows to train on and rows to stop by; `start` has the initial values."""


class Again(NamedTuple):
    """A further fit of a family."""

    seed: int  # added to that of all fits
    steps: int  # in place of a share


@dataclass(frozen=True)
class Candidate:
    """A family that was tried, and how it did on rows that it was not trained on, if there were any."""

    name: str
    log_density: float | None
    seconds: float
    weight: float = 0.0
    error: str = ""


class Budget:
    """
    The time for several fits.

    :param seconds: in all; ``None`` for no limit.
    """

    def __init__(self, seconds: float | None) -> None:
        self._left = seconds

    def share(self, share: float) -> float | None:
        """Seconds: a share of those left."""
        return None if self._left is None else share * self._left

    @property
    def is_spent(self) -> bool:
        """Whether next to nothing is left."""
        return self._left is not None and self._left <= _NEXT_TO_NOTHING

    def spend(self, seconds: float) -> None:
        """Leave fewer, but some: every fit takes a step."""
        if self._left is not None:
            self._left = max(self._left - seconds, _NEXT_TO_NOTHING)


def candidates(likelihood: str, predictive: bool) -> tuple[tuple[str, ...], str]:
    """
    The families that are worth a try: those of a single layer, and a deep one.

    A model trained for its predictive density mixes best with exact GPs, as it errs elsewhere; of classes it
    learns too much.

    :param likelihood: as `Settings.likelihood` has it.
    :param predictive: whether there are rows enough for such a model, and weights, if any, are counts.
    """
    predictive &= likelihood in ("gaussian", "student-t")
    return _SHALLOW[likelihood], "dspp" if predictive else "mean-field"


def select(
    shallow: Sequence[str],
    deep: str,
    fit: Fit,
    train: Rows,
    held_out: Rows,
    budget: Budget,
    tell: Callable[[str], None],
    of_classes: bool = False,
    spacing: float = 0.0,
) -> Mixed:
    """
    Fit the single-layer families, and the deep one with all the time that is left, or, if one of the others
    is trained by steps too, for a short time before the better of both goes on; mix all by stacking weights,
    but for what was cut short.
    Where the deep one was at its best long before the end, it is fitted again from other draws, annealed in
    about as many steps, as often as there is time; of these fits those that help are mixed alike.
    A family that fails is left out. The constant keeps a thousandth, for rows unlike all that were held out.

    :param shallow: the families of a single layer.
    :param deep: the other.
    :param fit: trains one.
    :param train: rows to train on.
    :param held_out: rows to judge by.
    :param budget: what the fits have left.
    :param tell: takes lines on what is being done.
    :param of_classes: whether densities are probabilities.
    :param spacing: of rounded targets, over which densities are averaged; zero for others.
    :return: the members, their weights, and what was tried.
    :raises TrainingError: where all families fail.
    """
    tried = _Tried(held_out, tell, of_classes, spacing)

    def attempt(name: str, label: str, **options: Any) -> None:
        def scored() -> tuple[FittedModel, np.ndarray]:
            fitted = fit(name, train, held_out, label=label, **options)
            return fitted, _judged(fitted, held_out, spacing)

        tried.attempt(name, scored, beside="again" in options)

    # Exact GPs first: others can start from them.
    for name in sorted(shallow, key=lambda name: name not in EXACT):
        converges = name in EXACT and len(train.X) <= _FEW_ROWS
        attempt(name, "whole", time=_SHARE_OF_FEW if converges else _SHARE)
    rivals = [name for name in shallow if name not in (*EXACT, LINEAR)]
    if not rivals:
        attempt(deep, "whole")
        if first := tried.fitted(deep):
            for again in _further(first, budget):
                attempt(deep, f"again-{again.seed}", again=again)
        return tried.mixed()
    attempt(deep, "short", steps=_SHORT, time=_SHARE)
    if best := tried.best([*rivals, deep]):
        # By a name of its own, or it would go on from the checkpoints of a fit that is done.
        attempt(best, "longer", start=tried.fitted(best))
    return tried.mixed(cut_short=None if best == deep else deep)


def _further(first: FittedModel, budget: Budget) -> Iterator[Again]:
    """The fits that time and steps are left for, after a first."""
    report = first.report
    best, pace = report["best_step"], report["seconds"] / report["steps"]
    left = first.settings.steps - report["steps"]
    for seed in range(1, _MOST_ALIKE):
        seconds = budget.share(1.0)
        affordable = left if seconds is None else min(left, seconds / pace)
        steps = int(min(_ANNEALED * best, affordable))
        if steps < best or report["starved"]:
            return
        left -= steps
        yield Again(seed, steps)


def cross_validate(
    names: Sequence[str],
    fit: Fit,
    rows: Rows,
    budget: Budget,
    seed: int,
    tell: Callable[[str], None],
    of_classes: bool = False,
    spacing: float = 0.0,
) -> Mixed:
    """
    Where rows are too few to hold any out: all of them in turn, a quarter at a time. The families are then
    fitted to all rows and mixed by stacking weights. A family that fails is left out, and the last ones where
    no time is left.

    :param names: the families.
    :param fit: trains one.
    :param rows: to train on.
    :param budget: what the fits have left.
    :param seed: of the folds.
    :param tell: takes lines on what is being done.
    :param of_classes: whether densities are probabilities.
    :param spacing: of rounded targets, over which densities are averaged; zero for others.
    :return: the members, their weights, and what was tried.
    :raises TrainingError: where all families fail.
    """
    fold = folds(rows, FOLDS, seed, of_classes)
    tried = _Tried(rows, tell, of_classes, spacing)
    to_come = len(names) * (FOLDS + _WHOLE)
    for number, name in enumerate(names):
        if budget.is_spent and any(earlier not in QUICK for earlier in names[:number]):
            tell(f"{name}: no time left.")
            continue

        def scored(name: str = name) -> tuple[FittedModel, np.ndarray]:
            nonlocal to_come
            density, seconds = np.zeros([len(rows.X), 2]), 0.0
            if of_classes and name in EXACT:
                # It has learned its link from rows left out, and knows how likely these are.
                to_come -= FOLDS
                whole = fit(name, rows, None, label="whole", time=_WHOLE / to_come)
                to_come -= _WHOLE
                assert whole.own_rows is not None
                return whole, np.stack([whole.own_rows] * 2, axis=1)
            for k in range(FOLDS):
                part = rows.take(np.flatnonzero(fold != k))
                fitted = fit(name, part, None, label=f"fold-{k}", steps=_SHORT, time=1.0 / to_come)
                out = rows.take(np.flatnonzero(fold == k))
                density[fold == k] = _judged(fitted, out, spacing)
                seconds += fitted.report["seconds"]
                to_come -= 1
            whole = fit(name, rows, None, label="whole", time=_WHOLE / to_come)
            to_come -= _WHOLE
            seconds += whole.report["seconds"]
            return replace(whole, report={**whole.report, "seconds": seconds}), density

        tried.attempt(name, scored)
    return tried.mixed()


def _judged(fitted: FittedModel, rows: Rows, spacing: float) -> np.ndarray:
    """Log densities of rows, and likewise averaged over the spacing of their targets, [N, 2]."""
    density = fitted.log_density(rows.X, rows.Y)
    mean = fitted.log_mean_density(rows.X, rows.Y, spacing) if spacing else density
    return np.stack([density, mean], axis=1)


def _nearer_to_all(
    weights: np.ndarray, means: np.ndarray, num_rows: float, behind: float = _BEHIND
) -> np.ndarray:
    """
    What some rows say of weights, as if so many more had spoken for nearly equal ones of all that have any:
    of few rows they say little, and too much good of what was trained until it was best on them. What is far
    behind in its mean log density has next to nothing of those.
    """
    level = np.where(weights > 0.0, np.exp((means - means.max()) / behind), 0.0)
    more = _EQUAL_ROWS * level / level.sum()
    return (num_rows * weights + more) / (num_rows + _EQUAL_ROWS)


class _Tried:
    """
    What has been fitted, with the log densities of the rows to judge by, [N, 2]. At rounded targets a density
    is the better the narrower it is: what counts is its mean over their spacing, the second column, which for
    others is the same.
    """

    def __init__(
        self,
        judged: Rows,
        tell: Callable[[str], None],
        of_classes: bool = False,
        spacing: float = 0.0,
    ) -> None:
        self._judged, self._tell, self._of_classes = judged, tell, of_classes
        self._spacing = spacing
        self._fits: dict[str, tuple[list[FittedModel], np.ndarray]] = {}
        self._failed: dict[str, Candidate] = {}

    def attempt(
        self, name: str, fit: Callable[[], tuple[FittedModel, np.ndarray]], beside: bool = False
    ) -> None:
        """
        Fit a family, perhaps again; of two fits the better one counts: what overfits is kept short.

        :param beside: whether the better of the fits so far and of their mixture with this one counts.
        """
        started = time.perf_counter()
        try:
            fitted, density = fit()
        except (TrainingError, FactorisationError) as error:
            if name not in self._fits:
                seconds = time.perf_counter() - started
                self._failed[name] = Candidate(name, None, seconds, error=str(error))
            self._tell(f"{name}: failed, left out.")
            return
        self._tell(f"{name}: log density {self._mean(density):.3f} on held-out rows.")
        fits = [fitted]
        if beside:
            others, before = self._fits[name]
            fits = [*others, fitted]
            density = np.logaddexp(before + np.log(len(others)), density) - np.log(len(fits))
            self._tell(f"{name}: {self._mean(density):.3f} by {len(fits)} mixed.")
        if name not in self._fits or self._mean(density) > self._mean(self._fits[name][1]):
            self._fits[name] = fits, density

    def fitted(self, name: str) -> FittedModel | None:
        """The first fit of a family, if it did not fail."""
        return self._fits[name][0][0] if name in self._fits else None

    def best(self, names: Sequence[str]) -> str | None:
        """The best of some families, of those that did not fail."""
        there = [name for name in names if name in self._fits]
        return max(there, key=lambda name: self._mean(self._fits[name][1]), default=None)

    def mixed(self, cut_short: str | None = None) -> Mixed:
        """
        The members of the mixture, their weights, and what was tried.

        :param cut_short: a family that is left out if there is another.
        """
        if not self._fits:
            errors = " ".join(candidate.error for candidate in self._failed.values())
            raise TrainingError(f"All families failed: {errors}")
        densities = np.stack([self._counting(d) for _, d in self._fits.values()], axis=1)
        # Rows that are few may like by chance what had no time to learn.
        starved = np.array(
            [
                name == cut_short or bool(fits[0].report.get("starved"))
                for name, (fits, _) in self._fits.items()
            ]
        )
        taken = starved if starved.all() else ~starved
        weights = np.zeros(len(taken))
        weights[taken] = stacking_weights(densities[:, taken], self._judged.weights)
        means = np.average(densities, axis=0, weights=self._judged.weights)
        behind = _BEHIND
        if self._of_classes:
            few = max(1.0 / float(np.sum(self._judged.weights)) - 1.0 / _EQUAL_ROWS, 0.0)
            loss = -float(means[taken].max())
            behind = max(_BEHIND_OF_CLASSES * loss, LEAST, _BY_CHANCE * few)
        weights = _nearer_to_all(weights, means, float(np.sum(self._judged.weights)), behind)
        constant = np.array([name == CONSTANT for name in self._fits])
        weights = np.where(constant, np.maximum(weights, LEAST), weights)
        weights /= weights.sum()
        members: list[FittedModel] = []
        shares: list[float] = []
        tried: list[Candidate] = []
        for (name, (fits, density)), weight in zip(self._fits.items(), weights, strict=True):
            seconds = sum(fitted.report["seconds"] for fitted in fits)
            tried.append(Candidate(name, self._mean(density), seconds, float(weight)))
            if weight > 0.0:
                members += fits
                shares += [weight / len(fits)] * len(fits)
        return members, np.array(shares), tried + list(self._failed.values())

    def _counting(self, log_density: np.ndarray) -> np.ndarray:
        """Those that count, [N]."""
        if not self._spacing:
            return log_density[:, 0]
        means = [self._average(np.exp(density[:, 1])) for _, density in self._fits.values()]
        known = self._spacing * max(means, default=0.0) > _KNOWN
        return log_density[:, 0 if known else 1]

    def _mean(self, log_density: np.ndarray) -> float:
        return self._average(self._counting(log_density))

    def _average(self, log_density: np.ndarray) -> float:
        return float(np.average(log_density, weights=self._judged.weights))

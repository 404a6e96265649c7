"""Which family: short fits of several, the best trained on and mixed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from gpflow_deep.numerics.linalg import FactorisationError
from gpflow_deep.training import TrainingError

from .fitted import FittedModel
from .rows import Rows
from .stacking import stacking_weights

__all__ = ["Candidate", "candidates", "select"]

_EXACT_ROWS = 5000  # an exact GP of more takes minutes and gigabytes
_SHORT = 0.25  # share of the training that tells which families are worth the rest
_FINALISTS = 2

#: (name, share of the training) -> the fit
Fit = Callable[[str, float], FittedModel]


@dataclass(frozen=True)
class Candidate:
    """A family that was tried, and how it did on the held-out rows, if there were any."""

    name: str
    log_density: float | None
    seconds: float
    weight: float = 0.0
    error: str = ""


def candidates(num_rows: int, likelihood: str) -> list[str]:
    """
    The families that are worth a try.

    :param num_rows: training rows, distinct ones.
    :param likelihood: as `Settings.likelihood` has it.
    """
    exact = likelihood == "gaussian" and num_rows <= _EXACT_ROWS
    # With an exact GP there is nothing for a sparse one to add.
    return [
        "gp" if exact else "svgp",
        "mean-field",
        *(["dspp"] if likelihood == "gaussian" else []),
    ]


def select(
    names: Sequence[str], fit: Fit, held_out: Rows, tell: Callable[[str], None]
) -> tuple[list[FittedModel], np.ndarray, list[Candidate]]:
    """
    Fit all families for a short time, then the two best at the held-out rows, and the single-layer one, to
    the end; mix these by stacking weights.

    A family that fails is left out.

    :param names: the families, the first of one layer.
    :param fit: trains one, for a share of the time it can have.
    :param held_out: rows to judge by.
    :param tell: takes lines on what is being done.
    :return: the members, their weights, and what was tried.
    :raises TrainingError: where all families fail.
    """
    trials: dict[str, tuple[FittedModel, np.ndarray]] = {}
    failed: list[Candidate] = []

    def attempt(name: str, share: float) -> None:
        started = time.perf_counter()
        try:
            fitted = fit(name, share)
            density = fitted.log_density(held_out.X, held_out.Y)
        except (TrainingError, FactorisationError) as error:
            failed.append(Candidate(name, None, time.perf_counter() - started, error=str(error)))
            tell(f"{name}: failed, left out.")
            return
        trials[name] = fitted, density
        tell(f"{name}: log density {_mean(density, held_out):.3f} on held-out rows.")

    first, *deep = names
    attempt(first, 1.0)
    for name in deep:
        attempt(name, _SHORT)
    best = sorted(trials, key=lambda name: -_mean(trials[name][1], held_out))
    for name in [name for name in best if name != first][:_FINALISTS]:
        short = trials.pop(name)
        attempt(name, 1.0)
        # Longer is not always better: what overfits is kept short.
        if name not in trials or _mean(short[1], held_out) > _mean(trials[name][1], held_out):
            trials[name] = short
    if not trials:
        raise TrainingError("All families failed: " + " ".join(c.error for c in failed))
    members = list(trials)
    densities = np.stack([trials[name][1] for name in members], axis=1)
    weights = stacking_weights(densities, held_out.weights)
    tried = [
        Candidate(name, _mean(density, held_out), fitted.report["seconds"], float(weight))
        for (name, (fitted, density)), weight in zip(trials.items(), weights, strict=True)
    ]
    kept = weights > 0.0
    chosen = [trials[name][0] for name, keep in zip(members, kept, strict=True) if keep]
    return chosen, weights[kept], tried + failed


def _mean(log_density: np.ndarray, rows: Rows) -> float:
    return float(np.average(log_density, weights=rows.weights))

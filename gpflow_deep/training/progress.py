"""What a training run has come to: its result, or its error."""

from __future__ import annotations

__all__ = ["FitResult", "Progress", "ProgressBar", "TrainingError", "fingerprint"]

import hashlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tqdm import tqdm


class TrainingError(RuntimeError):
    """
    A loss, gradient, parameter or validation score that is not finite, or a failed factorisation.

    When it is raised, the model has been set back to `parameters`: the last ones at which both the
    loss and its gradient were finite.

    >>> try:
    ...     raise gd.training.TrainingError("the loss is NaN: a smaller learning rate may help", step=7)
    ... except gd.training.TrainingError as error:
    ...     error.step
    7

    :param message: what happened, and what to try.
    :param step: the step that failed, counted from 1.
    :param loss: the loss found there; NaN where a factorisation failed before there was one.
    :param parameters: path to value, as :func:`gpflow.utilities.multiple_assign` takes them.
    """

    def __init__(
        self,
        message: str,
        step: int = 0,
        loss: float = float("nan"),
        parameters: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        super().__init__(message)
        self.step = step
        self.loss = loss
        self.parameters = dict(parameters or {})


@dataclass(frozen=True)
class FitResult:
    """
    What a call of `fit` came to; the fitted parameters are in the model.

    `steps`: steps taken, those of the runs that this one continued included. `stopped_early`:
    whether the patience ran out. `best_step`, `best_score`: where the validation score was highest,
    and that score (None without validation). `history`: four arrays of shape [steps], `step`,
    `loss` (on the step's minibatch, before its update), `validation` (NaN where there was none) and
    `seconds` (from the beginning to after the step; interpolated between those that were compiled into
    one call). `seconds`: time spent, continued runs included. `out_of_time`: whether it was the time limit
    that ended the run.

    >>> model = gpflow.models.SVGP(
    ...     gpflow.kernels.Matern52(), gpflow.likelihoods.Gaussian(0.1), X[::4].copy()
    ... )
    >>> result = gd.training.fit(model, (X, Y), steps=2, progress=False)
    >>> result.stopped_early, result.best_step, sorted(result.history)
    (False, None, ['loss', 'seconds', 'step', 'validation'])
    """

    steps: int
    stopped_early: bool
    best_step: int | None
    best_score: float | None
    history: dict[str, np.ndarray]
    seconds: float
    out_of_time: bool


@dataclass
class Progress:
    """All that a run has come to, apart from the values of variables."""

    settings: dict[str, Any] = field(default_factory=dict)
    losses: list[float] = field(default_factory=list)
    validations: list[tuple[int, float]] = field(default_factory=list)  # (step, score)
    times: list[tuple[int, float]] = field(default_factory=list)  # (step, seconds after it)
    seconds: float = 0.0
    burn_in: int | None = None  # of a sampler that is not a user's

    @property
    def step(self) -> int:
        """Steps taken."""
        return len(self.losses)

    @property
    def best(self) -> tuple[int, float] | None:
        """Step and score of the first of the highest validation scores."""
        return max(self.validations, key=lambda entry: entry[1], default=None)

    def out_of_patience(self, patience: int | None) -> bool:
        """Whether the last `patience` validations brought no improvement."""
        if patience is None or self.best is None:
            return False
        return sum(step > self.best[0] for step, _ in self.validations) >= patience

    def result(self, patience: int | None, out_of_time: bool) -> FitResult:
        """The same as what users are given."""
        steps = np.arange(1, self.step + 1)
        known = np.array([(0, 0.0), *self.times])
        validation = np.full(self.step, np.nan)
        for step, score in self.validations:
            validation[step - 1] = score
        best_step, best_score = self.best or (None, None)
        return FitResult(
            steps=self.step,
            stopped_early=self.out_of_patience(patience),
            best_step=best_step,
            best_score=best_score,
            history={
                "step": steps,
                "loss": np.array(self.losses),
                "validation": validation,
                "seconds": np.interp(steps, known[:, 0], known[:, 1]),
            },
            seconds=self.seconds,
            out_of_time=out_of_time,
        )


class ProgressBar(tqdm):
    """
    Of a run's steps; or, where its time is limited, of the way to the end.

    :param objective: what is maximised, in a word.
    :param steps: of the run.
    :param place: where it is on its clock.
    :param time_limit: of the run, or None.
    :param hidden: whether it is not to be seen.
    """

    def __init__(
        self, objective: str, steps: int, place: int, time_limit: float | None, hidden: bool
    ) -> None:
        options: dict[str, Any] = {"unit": "step"}
        if time_limit is not None:
            options = {"bar_format": "{percentage:3.0f}%|{bar}| {elapsed}{postfix}"}
        # A log keeps every line.
        options["mininterval"] = 0.1 if sys.stderr.isatty() or "ipykernel" in sys.modules else 10.0
        super().__init__(total=steps, initial=place, disable=hidden, **options)
        self._objective, self._time_limit = objective, time_limit

    def show(self, run: Progress, place: int) -> None:
        """How far a run has come."""
        shown = {self._objective: f"{-run.losses[-1]:.5g}"}
        if self._time_limit is not None:
            shown = {"limit": f"{self._time_limit:.3g} s", "steps": str(run.step), **shown}
        if run.validations:
            shown["validation"] = f"{run.validations[-1][1]:.5g}"
        self.set_postfix(shown, refresh=False)
        self.update(place - self.n)


def fingerprint(arrays: Sequence[np.ndarray]) -> str:
    """Shapes and a hash of the values: two runs with equal ones had the same data."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).data)
    return " ".join(str(list(array.shape)) for array in arrays) + f" {digest.hexdigest()[:16]}"

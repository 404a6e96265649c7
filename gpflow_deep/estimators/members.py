"""Fits of an estimator's members, one after another in the time that there is for all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from gpflow_deep import presets
from gpflow_deep.presets import Settings, recommended
from gpflow_deep.presets.exact import ExactGP
from gpflow_deep.presets.registry import EXACT, LINEAR

from .completing import given_all
from .fitted import FittedModel
from .fitting import fit_family
from .given import given_settings, given_steps
from .kept import kept_member
from .rows import Rows, distinct_rows
from .selection import Again, Budget

if TYPE_CHECKING:
    from .base import DeepGPEstimator

__all__ = ["Members"]

_MOST_OF_SHARE = 2.0  # of the time of one fit of several, which the others then have less of


class Members:
    """
    What fits members, see `selection.Fit`.

    :param estimator: whose parameters count.
    :param num_outputs: columns of the targets, or number of classes.
    :param rounding: variance that rounding makes of scaled targets.
    :param budget: what all fits together have left.
    :param folder: of checkpoints, if any.
    :param train: rows that a fit which is not to parts of them is of.
    :param held_out: rows that exact and linear members take in once they are scored.
    :param earlier: members of an earlier fit to start from, by name.
    """

    def __init__(
        self,
        estimator: DeepGPEstimator,
        num_outputs: int,
        rounding: float,
        budget: Budget,
        folder: Path | None,
        train: Rows,
        held_out: Rows | None,
        earlier: Mapping[str, FittedModel],
    ) -> None:
        self._estimator, self._num_outputs, self._rounding = estimator, num_outputs, rounding
        self._budget, self._folder = budget, folder
        self._earlier = earlier
        self._likelihood = estimator._likelihood()
        self._of_labels: ExactGP | None = None
        self._everything: Rows | None = None
        if held_out is not None:
            pairs = zip(train, held_out, strict=True)
            self._everything = distinct_rows(*(np.concatenate(pair) for pair in pairs))
        #: Those that have taken in the rows held out, by name.
        self.completed: dict[str, FittedModel] = {}

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
        estimator, budget = self._estimator, self._budget
        start = self._earlier.get(name, start)
        settings, given = self.settings(name, train, start is not None), given_settings(estimator)
        number = given_steps(estimator)
        if number is None and estimator.time_limit is None:
            number = settings.steps
        if number is not None:
            number = max(1, round(steps * number))
        if again is not None:
            number = again.steps
        estimator._tell(f"{name}: training, {label}.")
        seed = estimator.random_seed_ + (again.seed if again else 0)
        run = self._folder and self._folder / f"{name}-{label}"
        fit = partial(
            fit_family,
            name,
            settings,
            train,
            held_out,
            self._num_outputs,
            seed=seed,
            steps=number,
            given=given,
            seconds=budget.share(time),
            most_seconds=budget.share(min(1.0, _MOST_OF_SHARE * time)),
            start=start,
            of_labels=self._of_labels,
            forest=self._forest,
            checkpoint_dir=run,
            progress=estimator.verbose > 1,
        )
        decides = (
            settings,
            seed,
            number,
            given,
            estimator.time_limit,
            self._forest,
            estimator.jitter,
        )
        # One that starts from a member of an earlier fit is not known by these.
        kept = None if name in self._earlier else run
        fitted = kept_member(kept, fit, [*train, *(held_out or ())], decides)
        budget.spend(fitted.report["seconds"])
        if fitted.labels is not None:
            self._of_labels = fitted.model
        self._complete(fitted, len(train.X))
        return fitted

    def settings(self, name: str, train: Rows, has_start: bool) -> Settings:
        """Those that follow from the data, and those that the estimator was given."""
        estimator = self._estimator
        settings = recommended(
            name,
            len(train.X),
            train.X.shape[1],
            likelihood=self._likelihood,
            num_layers=estimator.num_layers,
            started=has_start
            or estimator._is_classifier(),  # which starts from an exact GP of the labels
        )
        if not presets.get(name).weights and not estimator._is_classifier():
            # A predictive objective would rather name each whole number than predict.
            floor = max(settings.noise_floor, self._rounding)
            settings = replace(settings, noise_floor=floor)
        return replace(settings, **given_settings(estimator))

    @property
    def _forest(self) -> bool:
        """Whether there may be one: who asks for a GP or a constant gets one."""
        return bool(self._estimator.model == "auto")

    def _complete(self, fitted: FittedModel, trained_on: int) -> None:
        """Here, so that the others have what time this leaves."""
        # A linear model with Student-t noise is trained by steps.
        of_all = EXACT if self._likelihood == "student-t" else (*EXACT, LINEAR)
        if self._everything is None or fitted.name not in of_all:
            return
        started, estimator = perf_counter(), self._estimator
        self.completed[fitted.name] = given_all(
            fitted,
            self._everything,
            trained_on,
            estimator.random_seed_,
            estimator.time_limit,
            classes=estimator._is_classifier(),
            forest=self._forest,
        )
        self._budget.spend(perf_counter() - started)

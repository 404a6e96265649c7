"""The exact GP by evidence: kernel, several starts, and all rows in the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter

import gpflow
import numpy as np

from gpflow_deep.presets import Settings, get
from gpflow_deep.presets.exact import ExactGP, let_inputs_go

from .ascent import (
    LAST_RESORT,
    NOTHING_BUT_NOISE,
    START,
    Objective,
    Start,
    maximise,
    shared_objective,
)
from .calibration import Errors, calibrate, calibrated_log_density, left_out, predicted
from .few_rows import are_few, each_left_out
from .rows import Predicted, Rows

__all__ = [
    "condition",
    "first_ascent",
    "fit_exact",
    "most_rows",
    "named_objectives",
]

_KERNELS = ("matern52", "matern32", "rbf")


# Of few rows the evidence may have several maxima of like height, of which those of less noise and other
# inputs often predict better.
_OTHER_STARTS = (Start(3.0, 0.001), Start(3.0, 0.0001))
# Of each stage; the times are shares of all.
_TRIAL_ROWS, _TRIAL_ITERATIONS, _TRIAL_TIME = 400, 30, 0.25
_RACE_ITERATIONS, _RACE_TIME = 30, 0.5
_CLOSE = 0.05  # nats a row behind the first, that an iteration or a few may still bring
_SAME = 0.001  # nats a row between two fits of one kernel that are one
_ROWS, _ITERATIONS, _LAST_TIME = 1000, 60, 0.25
# To let inputs go: of fewer rows, those are kept that tell them by heart.
_FREE_TIME = 0.1
_FREER = 0.01  # nats a row that this has to gain for rows left out: theirs are the rows that it learned from
# One lengthscale for all inputs is tried where there are fewer.
_ROWS_AN_INPUT, _ALIKE_TIME = 30, 0.1
_MOST_ALIKE = 500  # rows, of which parts do not take long
_TOLD = 0.2  # nats a row that no lengthscales have without reason
_SHORT = 10.0  # seconds that do not do for so many rows
_MOST_ROWS = 5000  # to predict from: more take minutes and gigabytes
_VERY_SHORT = 5.0  # seconds in which these are half as many
# Where predictions take their time, and the noise, as a share of the kernel's variance, hides what float32
# gets wrong: a thousandth of an observation's variance.
_FLOAT32_ROWS, _FLOAT32_NOISE = 1000, 0.005


@dataclass
class _Rival:
    """Hyperparameters of one kernel, on their way."""

    settings: Settings
    objective: Objective  # that rivals of one kernel share
    first: np.ndarray  # unconstrained values, as a noise at its floor could not be assigned
    values: np.ndarray
    named: Callable[[ExactGP], Objective]  # makes it of other rows
    reached: float = np.inf  # loss a row

    @classmethod
    def of(
        cls, model: ExactGP, settings: Settings, named: Callable[[ExactGP], Objective] = Objective
    ) -> _Rival:
        """At the model's values."""
        objective = named(model)
        return cls(settings, objective, objective.values, objective.values, named)

    @property
    def model(self) -> ExactGP:
        """That the objective is of."""
        return self.objective.model

    @property
    def noise(self) -> float:
        """Its variance, where the last ascent ended."""
        return float(self.model.likelihood.variance.numpy())

    def move_to(self, model: ExactGP) -> None:
        """Go on with other rows."""
        self.objective = self.named(model)

    def climb(self, iterations: int, seconds: float, longer: float) -> None:
        """Maximise the evidence, from where it was left."""
        self.objective.assign(self.values)
        maximise(self.objective, iterations, seconds, longer)
        self.values = self.objective.values
        self.reached = self.objective(self.values)[0] / self.objective.num_rows

    def climb_from(self, start: Start, seconds: float, longer: float) -> Start:
        """The same from a start, or from the last resort where that leads nowhere: the one taken."""
        self.objective.assign(self.first)
        self.model.kernel.lengthscales.assign(start.lengthscales * self.model.kernel.lengthscales)
        self.model.likelihood.variance.assign(start.noise)
        self.values = self.objective.values
        self.climb(_TRIAL_ITERATIONS, seconds, longer)
        if self.noise < NOTHING_BUT_NOISE or start == LAST_RESORT:
            return start
        other = replace(self)
        other.climb_from(LAST_RESORT, seconds, longer)
        if other.reached > self.reached:
            return start
        self.values, self.reached = other.values, other.reached
        return LAST_RESORT

    def leave_one_out(self) -> float:
        """The average log density of a row predicted from the others."""
        self.objective.assign(self.values)
        return _leave_one_out(self.model)


def fit_exact(
    name: str,
    rows: Rows,
    settings: Settings,
    seed: int,
    seconds: float | None = None,
    most_seconds: float | None = None,
    forest: bool = True,
    inputs_may_go: bool = True,
) -> tuple[ExactGP, Settings, Errors | None]:
    """
    Hyperparameters by L-BFGS on the evidence, with priors if there are any: from several starts, for each
    kernel that the settings leave open, on some hundreds of rows, then on up to a thousand. There those that
    are far behind are left out (few rows favour a smooth kernel), and of the others, fitted further, those
    are taken that predict each row best from all others. Where there are rows enough, the prior then gives
    way to long lengthscales, which is kept if it predicts rows left out better: inputs that do not count
    have each some of the evidence by chance. Where there are few, one lengthscale for all inputs is tried in
    the same way. Predictions are from up to 5000 rows, drawn at random where there are more. In the end all
    variances get the factor that is best for these rows, each predicted from the others, which leaves the
    mean as it is, and the predictions what errors are like; but not those of labels. Of fewer rows than ten
    an input, hyperparameters for that are told by other rows.

    :param name: of the preset.
    :param rows: standardised.
    :param settings: name the kernel and the floor of the noise.
    :param seed: of the draw of rows.
    :param seconds: for the evidence; below ten, of half as many rows. As many again for what errors are like.
    :param most_seconds: for it where it still rises fast, as many as `seconds` by default.
    :param forest: whether errors may be described by the inputs.
    :param inputs_may_go: whether lengthscales may be without end: not of labels, nor where others start from
        them, whose training could not bring an input back.
    :return: the model, the settings with the kernel and the precision taken, and the errors; of classes
        none.
    """
    started, limit = time.perf_counter(), np.inf if seconds is None else seconds
    longer = 1.0 if seconds is None or most_seconds is None else most_seconds / seconds
    order = np.random.default_rng(seed).permutation(len(rows.X))
    most = _ROWS if limit > _SHORT else _ROWS // 2
    most_given = most_rows(seconds)
    trial, some = rows.take(order[:_TRIAL_ROWS]), rows.take(order[:most])
    kernels = _KERNELS if settings.kernel == "own" else (settings.kernel,)
    choices = [replace(settings, kernel=kernel) for kernel in kernels]
    named = partial(named_objectives, name)
    rivals: list[_Rival] = []
    start = START
    for chosen in choices:
        rival = _Rival.of(_model(name, trial, chosen, seed), chosen, named(chosen))
        start = rival.climb_from(start, _TRIAL_TIME * limit / len(kernels), longer)
        rivals.append(rival)
    if len(some.X) > len(trial.X):
        for rival in rivals:
            rival.move_to(_model(name, some, rival.settings, seed))
    others = _OTHER_STARTS if len(some.X) < _ROWS else ()
    each = _RACE_TIME * limit / ((1 + len(others)) * len(kernels))
    if len(rivals) > 1 or len(some.X) > len(trial.X):
        for rival in rivals:
            rival.climb(_RACE_ITERATIONS, each, longer)
    for start in others:
        for rival in rivals[: len(kernels)]:
            other = replace(rival)
            other.climb_from(start, each, longer)
            rivals.append(other)
            behind = other.reached - rival.reached
            if abs(behind) < _SAME or behind > _CLOSE:
                break  # of the other kernels too there is one maximum
    rivals = _leading(rivals)
    left = max(started + limit - time.perf_counter(), _LAST_TIME * limit) / len(rivals)
    for rival in rivals:
        rival.climb(_ITERATIONS, left, longer)
    winner = rivals[0] if len(rivals) == 1 else max(rivals, key=_Rival.leave_one_out)
    if inputs_may_go:
        left = max(started + limit - time.perf_counter(), _FREE_TIME * limit)
        winner = _without_idle_inputs(winner, left, longer)
    known: list[Predicted] = []
    is_wide = 1 < rows.X.shape[1] and are_few(winner.model, _ROWS_AN_INPUT)
    if settings.likelihood == "gaussian" and is_wide and len(rows.X) <= _MOST_ALIKE:
        winner, own = _rather_alike(name, winner, some, seed, seconds, named)
        known.append(own)
    best, settings = winner.model, winner.settings
    winner.objective.assign(winner.values)
    if len(rows.X) > len(some.X):
        best = condition(name, best, rows, settings, seed, most_given)
    errors = None
    if settings.likelihood == "gaussian":
        known = known or [each_left_out(best, seed, seconds, winner.named)]
        if len(rows.X) > most_given:
            known.append(predicted(best, rows.take(order[most_given : 2 * most_given])))
        errors = calibrate(best, *known, seed=seed, forest=forest, seconds=seconds)
    if settings.compute_dtype == "own":
        settings = replace(settings, compute_dtype=_compute_dtype(best))
        best.compute_dtype = settings.compute_dtype
    return best, settings, errors


def first_ascent(rows: Rows, settings: Settings, seed: int) -> tuple[ExactGP, np.ndarray]:
    """
    The GP that some iterations from the usual start lead to, in about a second, and what they reach: the
    evidence, and the log density of rows predicted from the others, a row, [2]. To compare rows that differ
    in the scales of their inputs.

    :param rows: standardised.
    :param settings: of the exact GP, with the kernel.
    :param seed: of the model.
    """
    named = named_objectives("gp", settings)
    rival = _Rival.of(_model("gp", rows, settings, seed), settings, named)
    rival.climb_from(START, np.inf, 1.0)
    return rival.model, np.array([-rival.reached, rival.leave_one_out()])


def named_objectives(
    name: str, settings: Settings, alike: bool = False
) -> Callable[[ExactGP], Objective]:
    """
    Makes objectives that have one compilation where a family and its settings are the same.

    :param name: of the preset.
    :param settings: with the kernel.
    :param alike: whether all lengthscales have one value.
    """
    structure = settings.kernel, settings.positive_bijector, settings.noise_floor
    return lambda model: shared_objective(
        model, name, structure, type(model.kernel.lengthscales.prior).__name__, alike=alike
    )


def _without_idle_inputs(rival: _Rival, seconds: float, longer: float) -> _Rival:
    """Fitted further, so that inputs go that do not count, where that predicts rows left out better."""
    if are_few(rival.model) or not let_inputs_go(rival.model):
        return rival
    freer = replace(rival)
    freer.move_to(rival.model)
    freer.climb(_ITERATIONS, seconds, longer)
    return freer if freer.leave_one_out() > rival.leave_one_out() + _FREER else rival


def _rather_alike(
    name: str,
    rival: _Rival,
    rows: Rows,
    seed: int,
    seconds: float | None,
    named: Callable[[Settings, bool], Callable[[ExactGP], Objective]],
) -> tuple[_Rival, Predicted]:
    """
    With one lengthscale for all inputs and no priors, where rows left out are more likely so; and each row
    predicted as if it had not been there.
    """
    model = _model(name, rows, rival.settings, seed)
    model.kernel.lengthscales.prior = model.likelihood.variance.prior = None
    other = _Rival.of(model, rival.settings, named(rival.settings, True))
    other.climb_from(START, np.inf if seconds is None else _ALIKE_TIME * seconds, 1.0)
    both = rival, other
    for one in both:
        one.objective.assign(one.values)
    by_parts = [each_left_out(r.model, seed, seconds, r.named, _ROWS_AN_INPUT) for r in both]
    each = [left_out(r.model) for r in both]
    gain, told = (
        calibrated_log_density(own) - calibrated_log_density(others)
        for own, others in (by_parts, each)
    )
    # Parts of the rows may be too few to find what all of them tell. One lengthscale knows none by heart.
    few = are_few(rival.model)
    if gain < 0.0 and (few or told <= _TOLD):
        return other, each[1]
    return rival, by_parts[0] if few else each[0]


def _leading(rivals: Sequence[_Rival]) -> list[_Rival]:
    """Those that are not far behind the first, the most evidence first, and of those in one place one."""
    leading: list[_Rival] = []
    for rival in sorted(rivals, key=attrgetter("reached")):
        if leading and rival.reached > leading[0].reached + _CLOSE:
            break
        same = (
            other.settings == rival.settings and rival.reached - other.reached < _SAME
            for other in leading
        )
        if not any(same):
            leading.append(rival)
    return leading


def most_rows(seconds: float | None) -> int:
    """That a GP fitted in so many seconds predicts from."""
    return _MOST_ROWS if seconds is None or seconds > _VERY_SHORT else _MOST_ROWS // 2


def condition(
    name: str,
    model: ExactGP,
    rows: Rows,
    settings: Settings,
    seed: int,
    most: int | None = None,
) -> ExactGP:
    """The same GP given other rows, or as many of them as it can take; or so many."""
    most = most or _MOST_ROWS
    if len(rows.X) > most:
        order = np.random.default_rng(seed).permutation(len(rows.X))
        rows = rows.take(np.sort(order[:most]))
    return _with_hyperparameters(_model(name, rows, settings, seed), model)


def _compute_dtype(model: ExactGP) -> str:
    """Of predictions: float32 where these are many operations and it does not show."""
    noise = float(model.likelihood.variance.numpy()) / float(model.kernel.variance.numpy())
    enough = noise < _FLOAT32_NOISE or model.inputs.shape[0] <= _FLOAT32_ROWS
    return gpflow.default_float().__name__ if enough else "float32"


def _leave_one_out(model: ExactGP) -> float:
    """The average log density of a row predicted from the others."""
    residuals, variances = (array.numpy() for array in model.leave_one_out())
    densities = -0.5 * (np.log(2.0 * np.pi * variances) + np.square(residuals) / variances)
    return float(np.average(densities.sum(axis=1), weights=model.weights))


def _model(name: str, rows: Rows, settings: Settings, seed: int) -> ExactGP:
    model: ExactGP = get(name).build(rows.X, rows.Y, settings, seed)
    model.weights.assign(rows.weights)
    return model


def _with_hyperparameters(model: ExactGP, other: ExactGP) -> ExactGP:
    for own, value in zip(model.trainable_variables, other.trainable_variables, strict=True):
        own.assign(value)
    return model

"""What the regressor and the classifier share: parameters, fitting, members and their mixture."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar

import numpy as np
from scipy.special import logsumexp
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from gpflow_deep.numerics.factorisations import FactorisationError
from gpflow_deep.presets.registry import CONSTANT, LINEAR

from .averaged import AVERAGED, average
from .checkpoints import checkpoint_folder
from .data import checked_data
from .fitted import FittedModel, precision
from .given import check_parameters
from .input_warping import InputWarping, choose_input_warping
from .limits import Limits, called, limits_of, warn_of_clipping
from .logistic import is_too_wide
from .members import Members
from .rivals import FEWEST_ROWS, alone, are_averaged, rivals
from .rows import Mixture, Rows, distinct_rows, hold_out
from .scaling import Scaling
from .selection import Budget, Candidate, candidates, cross_validate, select
from .warping import Warping

__all__ = ["DeepGPEstimator"]

_MOST_HELD_OUT = 2000  # enough to choose by; more would cost more than it tells
_FEWEST_HELD_OUT = 50  # of fewer the log density is noise, and they are missed in training
_FARTHEST = 1e4  # standard deviations: further out, squares have no digits left for distances
_Chosen = TypeVar("_Chosen")


class DeepGPEstimator(BaseEstimator):
    """See `DeepGPRegressor`, whose parameters these are."""

    #: As the command line does, until it has saved what was fitted.
    _checkpoints_are_kept = False

    def __init__(
        self,
        model: str = "auto",
        num_layers: int | None = None,
        num_inducing: int | None = None,
        steps: int | None = None,
        time_limit: float | None = None,
        validation_fraction: float = 0.1,
        float: str = "float64",  # noqa: A002
        random_state: Any = None,
        verbose: int = 0,
        *,
        kernel: str | None = None,
        likelihood: str | None = None,
        jitter: float | None = None,
        settings: Mapping[str, Any] | None = None,
        warm_start: bool = False,
        checkpoint_dir: str | None = None,
        warp: bool = True,
    ) -> None:
        self.model = model
        self.num_layers = num_layers
        self.num_inducing = num_inducing
        self.steps = steps
        self.time_limit = time_limit
        self.validation_fraction = validation_fraction
        self.float = float
        self.random_state = random_state
        self.verbose = verbose
        self.kernel = kernel
        self.likelihood = likelihood
        self.jitter = jitter
        self.settings = settings
        self.warm_start = warm_start
        self.checkpoint_dir = checkpoint_dir
        self.warp = warp

    @property
    def model_(self) -> Any:
        """The GPflow model, on standardised data; of several members the one of the largest weight."""
        check_is_fitted(self)
        return self.members_[int(np.argmax(self.weights_))].model

    @property
    def prediction_limits_(self) -> Limits:
        """
        Between which inputs predictions follow them: in columns that had slips in training those by which
        they were clipped, in others ten thousand standard deviations from the mean. What is further out is
        taken for the nearest that is not, with a warning.
        """
        check_is_fitted(self)
        mean, scale = self.scaling_.X_mean, self.scaling_.X_scale
        with np.errstate(over="ignore"):
            far = _FARTHEST * scale
            return self.input_limits_.within(Limits(mean - far, mean + far))

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """
        Write the fitted estimator to one file, without pickle; `gpflow_deep.estimators.load` reads it.

        :param path: of the file; folders are made.
        :param overwrite: whether an earlier file may be replaced; it is whole at any time.
        :raises FileExistsError: where there is one and it may not.
        """
        from .persistence import save

        save(self, path, overwrite=overwrite)

    # Fitting.

    def _likelihood(self) -> str:
        """As `Settings.likelihood` has it."""
        raise NotImplementedError

    def _fit(
        self,
        X: np.ndarray,
        Y: np.ndarray,
        weights: np.ndarray | None,
        num_outputs: int,
        before: Mapping[str, Any],
    ) -> None:
        """
        :param X: checked inputs [N, D].
        :param Y: targets [N, P], or classes [N, 1].
        :param weights: checked, [N].
        :param num_outputs: columns of the targets, or number of classes.
        :param before: the estimator's attributes when the call began.
        """
        data = [X, Y] if weights is None else [X, Y, weights]
        with checkpoint_folder(self, data, check_parameters(self)) as (folder, self.random_seed_):
            again = self.warm_start and hasattr(self, "members_")
            if again:
                self._check_again(X.shape[1], num_outputs, before)
            classes = self._is_classifier()
            rows = distinct_rows(X, Y, weights)
            self._find_limits(rows, classes)
            rows = self._within_limits(rows)
            train, held_out = self._split(rows, classes)
            budget = Budget(self.time_limit)
            if not again:
                self.warping_ = None
                if held_out is not None:
                    self.warping_ = self._choose_warping(train, budget)
                warped = train._replace(Y=self._warped(train.Y))
                of_inputs = self._choose_input_warping(
                    warped, num_outputs if classes else None, budget
                )
                self.scaling_ = Scaling.fit(*warped, of_inputs)
                if classes:
                    self.scaling_ = replace(self.scaling_, Y_mean=np.zeros(1), Y_scale=np.ones(1))
            with precision(self.float, self.jitter and float(self.jitter)):
                self._fit_members(
                    self._scaled(train),
                    held_out and self._scaled(held_out),
                    num_outputs,
                    self._rounding_variance(train),
                    budget,
                    folder,
                )

    def _find_limits(self, rows: Rows, classes: bool) -> None:
        names = getattr(self, "feature_names_in_", None)
        self.input_limits_ = limits_of(rows.X, "X", names, rows.weights)
        self.target_limits_ = None if classes else limits_of(rows.Y, "y", weights=rows.weights)

    def _within_limits(self, rows: Rows) -> Rows:
        X = self.input_limits_.clip(rows.X)
        Y = rows.Y if self.target_limits_ is None else self.target_limits_.clip(rows.Y)
        if np.array_equal(X, rows.X) and np.array_equal(Y, rows.Y):
            return rows
        return distinct_rows(X, Y, rows.weights)

    @contextmanager
    def _all_or_nothing(self) -> Iterator[Mapping[str, Any]]:
        """What is fitted is as before, which this gives, where a fit fails or is interrupted."""
        before = dict(self.__dict__)
        try:
            yield before
        except BaseException:
            self.__dict__ = before
            raise

    def _check_again(self, num_inputs: int, num_outputs: int, before: Mapping[str, Any]) -> None:
        """A fit that goes on knows columns and classes by their positions: as many, and the same ones."""
        first, outputs = self.members_[0], "classes" if self._is_classifier() else "columns"
        compared: list[tuple[str, Any, Any, str]] = [
            ("X", num_inputs, first.num_inputs, " columns"),
            ("y", num_outputs, first.num_outputs, f" {outputs}"),
        ]
        for name, attribute in (("X", "feature_names_in_"), ("y", "classes_")):
            now, expected = getattr(self, attribute, None), before.get(attribute)
            if now is not None and expected is not None:
                compared.append((name, now.tolist(), expected.tolist(), ""))
        for name, now, expected, what in compared:
            if now != expected:
                raise ValueError(
                    f"{name}: expected {expected}{what}, as in the fit that warm_start goes on from, got"
                    f" {now}."
                )

    def _choose_warping(self, train: Rows, budget: Budget) -> Warping | None:
        """A scale for the targets on which they are more nearly Gaussian."""
        return None

    def _choose_input_warping(
        self, train: Rows, num_classes: int | None, budget: Budget
    ) -> InputWarping | None:
        """Scales for the inputs on which they are less skewed; targets as they are learned."""
        if not (self.warp and self.model == "auto"):
            return None
        choose = partial(choose_input_warping, num_classes=num_classes)
        warping = self._chosen(choose, train, budget)
        if warping is not None:
            names = getattr(self, "feature_names_in_", None)
            told = (called(d, names) for d in warping.columns)
            self._tell(f"inputs: less skewed on another scale, and learned so: {', '.join(told)}.")
        return warping

    def _chosen(
        self,
        choose: Callable[..., _Chosen | None],
        train: Rows,
        budget: Budget,
    ) -> _Chosen | None:
        """A choice by an exact GP of some rows, in the time of the fit."""
        started = perf_counter()
        try:
            return choose(train, self.random_seed_, self.time_limit)
        except FactorisationError:  # as of a member that fails, the others can do without
            return None
        finally:
            budget.spend(perf_counter() - started)

    def _warped(self, Y: np.ndarray) -> np.ndarray:
        return Y if self.warping_ is None else self.warping_.forward(Y)

    def _rounding_variance(self, train: Rows) -> float:
        """What rounding does to the scaled targets."""
        if self.warping_ is None:
            return self._scaled(train).rounding_variance()
        slopes = np.exp(self.warping_.log_slope(train.Y)) / self.scaling_.Y_scale
        return train.rounding_variance() * float(np.mean(np.square(slopes)))

    def _fit_members(
        self,
        train: Rows,
        held_out: Rows | None,
        num_outputs: int,
        rounding: float,
        budget: Budget,
        folder: Path | None,
    ) -> None:
        likelihood, classes = self._likelihood(), self._is_classifier()
        shallow: Sequence[str] = [self.model]
        deep = ""
        if self.model == "auto":
            enough = held_out is not None  # fewer rows are overfitted by a predictive objective
            predictive = enough and train.are_few_observations()
            shallow, deep = candidates(likelihood, predictive=predictive)
            if classes and is_too_wide(train.X.shape[1], num_outputs):
                shallow = [name for name in shallow if name != LINEAR]
        before: list[FittedModel] = getattr(self, "members_", []) if self.warm_start else []
        earlier = {member.name: member for member in before}
        fit = Members(self, num_outputs, rounding, budget, folder, train, held_out, earlier)
        # Numbers that are d apart are rounded with a variance of d^2 / 12.
        spacing = np.sqrt(12.0 * rounding) if num_outputs == 1 and not classes else 0.0
        limit = np.inf if self.time_limit is None else self.time_limit
        tried = rivals(shallow, deep, len(train.X), limit, classes=classes) if deep else []
        if deep and held_out is not None:
            chosen = select(
                shallow, deep, fit, train, held_out, budget, self._tell, classes, spacing
            )
        elif tried:
            chosen = cross_validate(
                tried, fit, train, budget, self.random_seed_, self._tell, classes, spacing
            )
        elif deep and are_averaged(shallow, len(train.X), classes=classes):
            names = (*AVERAGED, CONSTANT)
            own = {n: fit.settings(n, train, has_start=False) for n in names}
            chosen = average(train, own, self.random_seed_, budget.share(1.0), self._tell)
        else:  # nothing to choose, or nothing to choose by
            name = alone(shallow, len(train.X), classes=classes) if deep else shallow[0]
            fitted = fit(name, train, held_out, label="whole")
            density = None
            if held_out is not None:
                log_density = fitted.log_density(held_out.X, held_out.Y)
                density = float(np.average(log_density, weights=held_out.weights))
            candidate = Candidate(name, density, fitted.report["seconds"], 1.0)
            chosen = [fitted], np.ones(1), [candidate]
        self.members_, self.weights_, tried_families = chosen
        self.members_ = [fit.completed.get(member.name, member) for member in self.members_]
        self.report_ = [asdict(candidate) for candidate in tried_families]

    def _split(self, rows: Rows, classes: bool) -> tuple[Rows, Rows | None]:
        if self.validation_fraction == 0.0 or len(rows.X) < FEWEST_ROWS:
            return rows, None
        fraction = max(self.validation_fraction, _FEWEST_HELD_OUT / len(rows.X))
        train, held_out = hold_out(rows, fraction, _MOST_HELD_OUT, self.random_seed_, classes)
        if len(train.X) < 2:
            raise ValueError(
                f"validation_fraction: expected a share that leaves two rows to train on, got {fraction:g} of"
                f" {len(rows.X)}."
            )
        return (train, held_out) if len(held_out.X) else (rows, None)

    def _scaled(self, rows: Rows) -> Rows:
        X, Y = self.scaling_.inputs(rows.X), self.scaling_.targets(self._warped(rows.Y))
        return Rows(X.astype(self.float), Y.astype(self.float), rows.weights.astype(self.float))

    def _tell(self, line: str) -> None:
        if self.verbose:
            print(line)

    def _is_classifier(self) -> bool:
        return False

    # Predictions.

    @property
    def _fitted_float(self) -> str:
        """The parameter may have changed since."""
        return self.members_[0].float_name

    def _inputs(self, X: Any) -> np.ndarray:
        """Checked, clipped and standardised inputs [N, D]."""
        check_is_fitted(self)
        X = checked_data(self, X, reset=False)
        limits = self.prediction_limits_
        warn_of_clipping(limits, X, "X", getattr(self, "feature_names_in_", None))
        return self.scaling_.inputs(limits.clip(X)).astype(self._fitted_float)

    def _mixture(self, prediction: str, inputs: np.ndarray) -> Mixture:
        """The members' mixtures as one: means [S, N, P], variances [S, N, P], log weights [S]."""
        parts = [getattr(member, prediction)(inputs) for member in self.members_]
        means, variances, log_weights = zip(*parts, strict=True)
        weighted = [
            np.asarray(log, np.float64) + np.log(weight)
            for log, weight in zip(log_weights, self.weights_, strict=True)
        ]
        return np.concatenate(means), np.concatenate(variances), np.concatenate(weighted)

    def _member_log_density(self, inputs: np.ndarray, Y: np.ndarray) -> np.ndarray:
        """Log density of standardised targets or classes under the members' mixture, [N]."""
        densities = [member.log_density(inputs, Y) for member in self.members_]
        mixed: np.ndarray = logsumexp(
            np.stack(densities), axis=0, b=np.asarray(self.weights_)[:, None]
        )
        return mixed

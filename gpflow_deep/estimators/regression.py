"""
Regression from a table to predictions in original units: scaling, hold-out, model and training.

For users who want a deep GP on their data and no code of their own; the command line is made of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from check_shapes import check_shapes

from gpflow_deep import metrics, training
from gpflow_deep.estimators.scaling import Scaling
from gpflow_deep.presets import Settings, get
from gpflow_deep.training.data import hold_out

__all__ = ["Mixture", "Regression", "fit_regression"]

_MIN_ROWS = 10  # the least of which one can be held out, and some structure be left in the rest
_MAX_VALIDATION_ROWS = 2000  # enough for early stopping; more would cost more than it tells

Mixture = tuple[np.ndarray, np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Regression:
    """
    A fitted model with all that is needed to use it on new data in original units.

    :param model_name: registered name of the model (`gpflow_deep.presets`).
    :param settings: what it was fitted with.
    :param seed: of everything random.
    :param model: on standardised inputs and targets.
    :param scaling: between standardised and original units.
    :param input_names: of the D columns of the inputs.
    :param target_name: of the target.
    :param report: what the training came to, as `fit_regression` says.
    """

    model_name: str
    settings: Settings
    seed: int
    model: Any
    scaling: Scaling
    input_names: tuple[str, ...]
    target_name: str
    report: dict[str, float]

    @check_shapes("X: [N, D]")
    def predict_y_mixture(self, X: np.ndarray) -> Mixture:
        """
        The predictive distribution of the target, a mixture of S Gaussians for each row.

        :param X: inputs in original units.
        :return: means [S, N, 1], variances [S, N, 1] with the noise, logarithms of weights [S].
        """
        mixture = self.model.predict_y_mixture(
            self.scaling.inputs(X), num_samples=self.settings.test_samples
        )
        return self.scaling.mixture(*mixture)


@check_shapes("X: [N, D]", "Y: [N, 1]")
def fit_regression(
    X: np.ndarray,
    Y: np.ndarray,
    model_name: str,
    settings: Settings,
    *,
    seed: int = 0,
    input_names: Sequence[str] | None = None,
    target_name: str = "y",
    progress: bool = True,
) -> Regression:
    """
    Fit a model to data in original units.

    Of the rows, `settings.validation_fraction`, 2000 at most, are held out for early stopping:
    neither the scaling nor the inducing points know of them. `report` of the result has
    `training_rows`, `held_out_rows`, the `steps` taken, the `best_step`, whose parameters are kept,
    the `seconds` of training and, where rows are held out, `held_out_rmse` and
    `held_out_log_density` in original units: optimistic, as the stopping time was chosen by them.

    :param X: inputs, finite.
    :param Y: targets, finite and not all the same.
    :param model_name: registered name of the model (`gpflow_deep.presets`).
    :param settings: model and training.
    :param seed: of everything random, so that a fit can be repeated.
    :param input_names: of the inputs; x0, x1, ... by default.
    :param target_name: of the target.
    :param progress: whether to show a progress bar.
    :raises ValueError: for values that are not finite, too few rows, or a constant target.
    """
    X, Y = np.asarray(X, np.float64), np.asarray(Y, np.float64)
    for name, array in (("X", X), ("Y", Y)):
        if not np.all(np.isfinite(array)):
            raise ValueError(f"{name}: expected finite values, got NaN or infinite ones.")
    if len(X) < _MIN_ROWS:
        raise ValueError(f"X: expected at least {_MIN_ROWS} rows of data, got {len(X)}.")
    if X.shape[1] == 0:
        raise ValueError("X: expected at least one column, got none.")
    if np.ptp(Y) == 0.0:
        raise ValueError(f"Y: expected a target that varies, got {Y[0, 0]:g} in all rows.")

    train, held_out = hold_out(
        len(X), settings.validation_fraction, seed, at_least=0, at_most=_MAX_VALIDATION_ROWS
    )
    scaling = Scaling.fit(X[train], Y[train])
    inputs, targets = scaling.inputs(X), scaling.targets(Y)
    data = inputs[train], targets[train]
    registered = get(model_name)
    settings = registered.settings(settings)
    model = registered.build(*data, settings, seed)
    result = training.fit(
        model,
        data,
        steps=settings.steps,
        batch_size=settings.batch_size,
        seed=seed,
        learning_rate=settings.learning_rate,
        decay_rate=settings.decay_rate,
        decay_steps=settings.decay_steps,
        natural_gradient=settings.natural_gradient or None,
        validation_data=(inputs[held_out], targets[held_out]) if len(held_out) else None,
        validate_every=settings.validate_every,
        patience=settings.patience,
        progress=progress,
    )
    regression = Regression(
        model_name,
        settings,
        seed,
        model,
        scaling,
        tuple(input_names or (f"x{j}" for j in range(X.shape[1]))),
        target_name,
        report := {
            "training_rows": len(train),
            "held_out_rows": len(held_out),
            "steps": result.steps,
            "best_step": result.best_step or result.steps,
            "seconds": result.seconds,
        },
    )
    if len(held_out):
        mixture = regression.predict_y_mixture(X[held_out])
        mean, _ = metrics.mixture_moments(*mixture)
        report["held_out_rmse"] = float(metrics.rmse(Y[held_out], mean))
        report["held_out_log_density"] = -float(
            metrics.negative_log_likelihood(Y[held_out], *mixture)
        )
    return regression

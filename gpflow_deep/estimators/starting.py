"""Initial values: from an earlier fit, or from an exact GP of the labels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.kernels import Stationary
from gpflow.mean_functions import Constant, Zero
from scipy.linalg import solve_triangular

from gpflow_deep.posteriors import MeanField, Orthogonal
from gpflow_deep.presets import Settings
from gpflow_deep.presets.exact import ExactGP
from gpflow_deep.presets.parts import pseudo_targets

from .evidence import fit_exact
from .fitted import FittedModel, variables_of
from .rows import Rows

__all__ = ["start_as_sparse_gp", "start_from_labels", "take_over"]

_ROWS = 10_000  # projected at a time
_LABELLED_ROWS = 400  # tell the hyperparameters
_SCALES = (1.0, 2.0, 4.0, 8.0)  # of functions whose signs are the labels


def take_over(model: Any, start: FittedModel) -> None:
    """
    Give a model the initial values that an earlier fit of the same data has for it.

    :param model: as it was built.
    :param start: of the same family: its parameters of the same shapes are taken over.
    """
    new = variables_of(model)
    for path, old in start.variables().items():
        if path in new and new[path].shape == old.shape:
            new[path].assign(tf.cast(old, new[path].dtype))


def start_from_labels(
    model: Any,
    rows: Rows,
    settings: Settings,
    seed: int,
    seconds: float | None,
    exact: ExactGP | None = None,
) -> bool:
    """
    Let a mean-field model of classes start from an exact GP of the labels, -1 and 1: as its sparse
    approximation, the functions scaled as the bound likes it best.

    :param model: as it was built; of another family it is left as it is.
    :param rows: to train on, standardised.
    :param settings: of the model.
    :param seed: of the draw of rows.
    :param seconds: for the evidence.
    :param exact: the GP; by default some hundred rows tell its hyperparameters by their evidence. The units
        of its labels do not matter.
    :return: whether it does.
    """
    if not _can_start_as_sparse_gp(model, rows):
        return False
    labels = pseudo_targets(rows.Y, model.num_latent_gps, settings)
    mean_function = model.layers[-1].mean_function
    if isinstance(mean_function, Constant) and not isinstance(mean_function, Zero):
        # It has the frequencies.
        labels = labels - np.average(labels, axis=0, weights=rows.weights)
    labelled = rows._replace(Y=labels)
    some = np.random.default_rng(seed).permutation(len(rows.X))[:_LABELLED_ROWS]
    if exact is None:
        gaussian = replace(settings, likelihood="gaussian")
        exact, _, _ = fit_exact(
            "gp",
            labelled.take(some),
            gaussian,
            seed,
            seconds,
            forest=False,
            inputs_may_go=False,
        )
    start_as_sparse_gp(model, exact, labelled)
    variance, batch = model.layers[-1].kernel.variance, (rows.X[some], rows.Y[some])
    variances = [scale**2 * variance.numpy() for scale in _SCALES]
    bounds = []
    for value in variances:
        variance.assign(value)
        bounds.append(float(model.elbo(batch)))
    variance.assign(variances[int(np.argmax(bounds))])
    return True


def _can_start_as_sparse_gp(model: Any, rows: Rows) -> bool:
    q = getattr(model, "inducing_posterior", None)
    # Orthogonal inducing points have not all covariances of that GP's.
    takes_any = isinstance(q, MeanField) and not isinstance(q, Orthogonal)
    return takes_any and all(
        isinstance(layer.kernel, Stationary) and layer.input_dim == rows.X.shape[1]
        for layer in model.layers
    )


def start_as_sparse_gp(model: Any, exact: ExactGP, rows: Rows) -> None:
    """
    The exact GP's hyperparameters, and in the last layer the best q there is for them at its inducing inputs
    (Titsias 2009, Eq. 10), whitened: with the projections A [N, M] of the rows,

    .. math:: S^{-1} = I + A^T A / \\sigma^2, \\quad m = S A^T Y / \\sigma^2.
    """
    for layer in model.layers:
        layer.kernel.lengthscales.assign(exact.kernel.lengthscales)
    last, q = model.layers[-1], model.inducing_posterior
    last.kernel.variance.assign(exact.kernel.variance)
    noise = exact.likelihood.variance.numpy()
    if hasattr(model.likelihood, "variance"):  # of classes there is none
        own = model.likelihood.variance  # of each column
        own.assign(np.broadcast_to(noise, own.shape))
    factor = last.factorise()
    precision, projected = np.eye(last.num_inducing), 0.0
    for start in range(0, len(rows.X), _ROWS):
        X, Y, weights = (array[start : start + _ROWS] for array in rows)
        A = np.asarray(last.project(tf.constant(X[None]), factor).basis[0], np.float64)
        weighted = A.T * (weights / noise)
        precision += weighted @ A
        projected = projected + weighted @ Y
    inverse = solve_triangular(np.linalg.cholesky(precision), np.eye(len(precision)), lower=True)
    covariance = inverse.T @ inverse
    q.q_mu[-1].assign(covariance @ projected)
    q.q_sqrt[-1].assign(np.broadcast_to(np.linalg.cholesky(covariance), q.q_sqrt[-1].shape))

"""Logistic regression as a GP with a linear kernel."""

from __future__ import annotations

import warnings

import numpy as np
from scipy.linalg import solve_triangular
from sklearn import config_context
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.model_selection import StratifiedKFold

from gpflow_deep.models import DeepGP

from .rows import Rows

__all__ = ["fit_logistic", "is_too_wide"]

_FOLDS, _FEWEST = 5, 200
_PENALTIES = np.logspace(-4.0, 3.0, 15)  # inverse ones
# The deviation of their decimal logarithms about that of one: few rows like by chance the least penalty,
# which is sure of everything, or so large a one that nothing is learned.
_EXPECTED = 0.7
# Rows by which alone it is chosen: of fewer, what is expected counts for those that lack.
_BELIEVED = 100
# Rows times inputs times classes that the penalty is chosen on: a million take two seconds. Functions are
# of up to ten times as many rows.
_MOST_NUMBERS, _NUMBERS_A_SECOND, _MORE = 4e6, 3e5, 10
_MOST_COVARIANCES = 3e7  # of inducing outputs: some gigabyte with temporaries
_ITERATIONS = 500
_DEVIATION = 1e-3  # of the whitened inducing outputs, which have to have one
_PROBIT = np.sqrt(np.pi / 8.0)  # the logistic function of f is nearly the probit of so much of it
_LACKING = 5.0  # how far the function of a class that no row has is below the lowest constant


def is_too_wide(num_inputs: int, num_classes: int) -> bool:
    """Whether the covariances of the model, which are of no use here, would fill the memory."""
    return num_classes * (num_inputs + 1) ** 2 > _MOST_COVARIANCES


def fit_logistic(
    model: DeepGP, rows: Rows, num_classes: int, seed: int, seconds: float | None = None
) -> None:
    """
    Let the functions of a linear model be those of a logistic regression, with the penalty that is best in
    cross-validation: the most probable ones. Averaged over their posterior by Laplace's approximation they
    were less likely on most sets, and by far where classes can be told apart, which leaves the size of the
    functions open.

    :param model: of the preset "linear".
    :param rows: to train on, standardised.
    :param num_classes: of which some may have no row here.
    :param seed: of the folds, and of the rows where they are very many.
    :param seconds: for it: less time is for fewer rows.
    """
    limit = _MOST_NUMBERS if seconds is None else _NUMBERS_A_SECOND * seconds
    most = max(int(min(limit, _MOST_NUMBERS) / (rows.X.shape[1] * num_classes)), _FEWEST)
    rows = rows.take(np.random.default_rng(seed).permutation(len(rows.X))[: _MORE * most])
    codes = rows.Y[:, 0].astype(int)
    present = np.unique(codes)
    if len(present) < 2:
        return
    coefficients, constants = _regression(rows, codes, most, seed)
    if num_classes == 2:
        values = _PROBIT * np.vstack([constants, constants + coefficients.T])
    else:
        if len(present) == 2:  # scikit-learn has one function for them
            coefficients, constants = (
                0.5 * np.concatenate([-part, part]) for part in (coefficients, constants)
            )
        values = np.zeros([1 + rows.X.shape[1], num_classes])
        values += constants.min() - _LACKING
        values[:, present] = np.vstack([constants, constants + coefficients.T])
    factor = np.asarray(model.layers[0].factorise(), np.float64)
    q_mu, q_sqrt = model.variational_params[0]
    q_mu.assign(solve_triangular(factor, values, lower=True))
    q_sqrt.assign(np.broadcast_to(_DEVIATION * np.eye(len(values)), q_sqrt.shape))


def _regression(
    rows: Rows, codes: np.ndarray, most: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients [T, D] and constants [T], the penalty chosen on so many rows at most."""
    options = {"max_iter": _ITERATIONS}
    chosen: dict[str, float] = {}
    some = slice(most)  # they are in no order
    present, counts = np.unique(codes, return_counts=True)
    folds = min(_FOLDS, int(counts.min()))
    fewest = min(np.sum(codes[some] == code) for code in present)
    # Where users route metadata, the search would want to know what its scores do with these weights.
    with config_context(enable_metadata_routing=False), warnings.catch_warnings():
        # Of defaults that will be others, and of penalties so small that it would go on.
        warnings.simplefilter("ignore", FutureWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        if 1 < folds <= fewest:
            search = LogisticRegressionCV(
                Cs=_PENALTIES,
                cv=StratifiedKFold(folds, shuffle=True, random_state=seed),
                scoring="neg_log_loss",
                refit=False,
                **options,
            )
            search.fit(rows.X[some], codes[some], rows.weights[some])
            chosen = {"C": _most_probable(search, np.sum(rows.weights[some]))}
        found = LogisticRegression(**chosen, **options).fit(rows.X, codes, rows.weights)
    return found.coef_.astype(np.float64), found.intercept_.astype(np.float64)


def _most_probable(search: LogisticRegressionCV, num_rows: float) -> float:
    """The penalty by what rows left out say and what is expected of it."""
    scores = search.scores_
    of_parts = next(iter(scores.values())) if isinstance(scores, dict) else scores  # until 1.9
    means = np.reshape(of_parts, [-1, len(_PENALTIES)]).mean(axis=0)
    lacking = max(1.0 - num_rows / _BELIEVED, 0.0)
    expected = -0.5 * lacking * np.square(np.log10(_PENALTIES) / _EXPECTED)
    return float(_PENALTIES[np.argmax(num_rows * means + expected)])

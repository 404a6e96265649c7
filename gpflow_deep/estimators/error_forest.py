"""What errors are like depends on the inputs: a forest whose leaves hold means and variances of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import logsumexp
from sklearn.tree import DecisionTreeRegressor

from .rows import Mixture, Predicted
from .trees import Forest, grow_trees, limits_of, unseen_rows

__all__ = ["ErrorForest"]

# Of errors, whose usual size is one.
_WIDTHS = (0.003, 0.006, 0.01, 0.02, 0.04, 0.08, 0.12, 0.18, 0.25, 0.4, 0.6)
_COMPONENTS = 16  # that are kept of the trees'; a divisor of their number
_LEAST = 0.001  # that the prediction keeps: trees may all be sure, and wrong


@dataclass(frozen=True)
class ErrorForest(Forest):
    """
    Standardised errors given inputs: of each of T trees a Gaussian, by the leaf that the inputs fall in.

    Regression trees for the mean (Breiman 2001) are grown to leaves of few rows, whose distribution is kept
    (Meinshausen 2006, "Quantile regression forests"), here by two moments: what trees differ on gives the
    mixture its jumps and skewness. All variances are wider by what is best for rows that a tree was not
    grown on. Predictions that follow the inputs are the means [P] and the deviation of the first. Of what is
    predicted a thousandth stays.

    :param means: of errors in leaves, [T, M, P].
    :param variances: of errors in leaves, [T, M, P].
    """

    means: np.ndarray
    variances: np.ndarray

    @classmethod
    def grow(
        cls,
        rows: Predicted,
        *,
        predicted: bool,
        leaf: int,
        seed: int,
        deadline: float = np.inf,
    ) -> tuple[ErrorForest, np.ndarray]:
        """
        :param rows: whose errors, in units of the predictions' deviations, are of usual size one.
        :param predicted: whether predictions are inputs, too.
        :param leaf: least number of rows of one.
        :param seed: of the draws of rows.
        :param deadline: of its trees.
        :return: the forest, and log densities of rows by the trees that were not grown on them, [N]; NaN
            where there are none.
        :raises NoTimeError: where the trees would not meet it.
        """
        rng = np.random.default_rng(seed)
        weights, errors = rows.weights, rows.residuals / np.sqrt(rows.variances)
        inputs = rows.X
        if predicted:
            inputs = _beside_predictions(rows.X, rows.means_apart, rows.variances)

        def make(seed: int) -> DecisionTreeRegressor:
            return DecisionTreeRegressor(min_samples_leaf=leaf, random_state=seed)

        trees, leaves = grow_trees(make, inputs, errors, weights, rng, deadline)
        shape = (*trees.features.shape, errors.shape[1])
        means, variances = np.zeros(shape), np.zeros(shape)
        for t, own in enumerate(leaves):
            means[t], variances[t] = _moments(own.nodes, errors[own.rows], own.counts, shape[1])
        judged, unseen = unseen_rows(leaves, len(inputs), rng)
        forest = cls(
            trees=trees,
            predicted=predicted,
            means=means,
            variances=variances,
            **limits_of(rows.X, rows.variances),
        )
        components = forest._components(inputs[judged])
        width, densities = _widened(*components, errors[judged], weights[judged], unseen)
        all_densities = np.full(len(inputs), np.nan)
        all_densities[judged] = densities
        return replace(forest, variances=variances + width), all_densities

    def mixture(self, X: np.ndarray, means: np.ndarray, variances: np.ndarray) -> Mixture:
        """
        Of observations, from a Gaussian prediction of them, both [N, P]: means [S, N, P], variances
        [S, N, P], logarithms of weights [S]. Of one output, trees that nearly agree are one component, of
        their mean and variance.
        """
        own, spread = self._of_trees(X, means, variances)
        if means.shape[-1] == 1:
            own, spread = _merged(own, spread)
        own, spread, weights = _beside(own, spread, means, variances)
        return own, spread, np.log(weights)

    def draw(
        self,
        X: np.ndarray,
        means: np.ndarray,
        variances: np.ndarray,
        Y: np.ndarray,
        rng: np.random.RandomState,
    ) -> np.ndarray:
        """Of observations, from draws Y [S, N, P] of a Gaussian prediction of them: by a tree each."""
        own, spread, weights = _beside(*self._of_trees(X, means, variances), means, variances)
        tree = rng.choice(len(own), size=len(Y), p=weights)
        return own[tree] + np.sqrt(spread[tree] / variances) * (Y - means)

    def moments(
        self, X: np.ndarray, means: np.ndarray, covariance: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Mean [N, P] and covariance over the rows [P, N, N] of such draws, from the prediction's."""
        variances = np.diagonal(covariance, axis1=1, axis2=2).T
        own, spread, weights = _beside(*self._of_trees(X, means, variances), means, variances)
        mean = np.einsum("t,tip->ip", weights, own)
        scales, shifts = np.sqrt(spread / variances), own - mean
        products = np.einsum("t,tip,tjp->pij", weights, scales, scales) * covariance
        products += np.einsum("t,tip,tjp->pij", weights, shifts, shifts)
        return mean, products

    @classmethod
    def of_arrays(
        cls, arrays: Mapping[str, np.ndarray], num_inputs: int, num_outputs: int
    ) -> ErrorForest:
        """
        The inverse of `arrays`.

        :raises ValueError: where they are no trees of so many inputs and outputs.
        """
        leaves = (*arrays["features"].shape, num_outputs)
        forest = cls._of_arrays(
            arrays, "errors", num_inputs, num_outputs + 1, means=leaves, variances=leaves
        )
        if not (forest.variances >= 0.0).all():
            raise ValueError("errors: expected variances of at least 0, got negative ones.")
        return forest

    def _of_trees(
        self, X: np.ndarray, means: np.ndarray, variances: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Means and variances of observations, [T, N, P]."""
        inputs = _beside_predictions(X, means, variances) if self.predicted else X
        own, spread = self._components(inputs)
        usual, share = np.minimum(variances, self.most), self.share(X, variances)
        own = means + share * np.sqrt(usual) * own
        return own, variances + share * usual * (spread - 1.0)

    def _components(self, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Means and variances of errors, [T, N, P]."""
        nodes = self.trees.leaves(inputs)
        trees = np.arange(len(nodes))[:, None]
        return self.means[trees, nodes], self.variances[trees, nodes]


def _beside(
    own: np.ndarray, spread: np.ndarray, means: np.ndarray, variances: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Components [S, N, P] and the prediction [N, P] as one more, with their weights [S + 1]."""
    weights = np.append(np.full(len(own), (1.0 - _LEAST) / len(own)), _LEAST)
    return np.append(own, means[None], axis=0), np.append(spread, variances[None], axis=0), weights


def _beside_predictions(X: np.ndarray, means: np.ndarray, variances: np.ndarray) -> np.ndarray:
    """Inputs of a forest that takes predictions, [N, D + P + 1]."""
    return np.hstack([X, means, np.sqrt(variances[:, :1])])


def _moments(
    leaves: np.ndarray, errors: np.ndarray, weights: np.ndarray, size: int
) -> tuple[np.ndarray, np.ndarray]:
    """Means and variances of the errors in each of so many leaves, [M, P]; zero where there are none."""
    counts = np.bincount(leaves, weights, size)[:, None]
    safe = np.where(counts > 0.0, counts, 1.0)

    def average(values: np.ndarray) -> np.ndarray:
        sums = [np.bincount(leaves, weights * column, size) for column in values.T]
        return np.stack(sums, axis=1) / safe

    means = average(errors)
    return means, average(np.square(errors - means[leaves]))


def _widened(
    means: np.ndarray,
    variances: np.ndarray,
    errors: np.ndarray,
    weights: np.ndarray,
    unseen: np.ndarray,
) -> tuple[float, np.ndarray]:
    """What to add to variances [T, N, P] for the best log density by unseen trees [T, N], and that, [N]."""
    counts = unseen.sum(axis=0)
    known = counts > 0
    best: tuple[float, float, np.ndarray] = -np.inf, 1.0, np.full(len(errors), np.nan)
    for width in _WIDTHS:
        wide = variances + width**2
        each = -0.5 * (np.log(2.0 * np.pi * wide) + np.square(errors - means) / wide).sum(axis=-1)
        densities = np.full(len(errors), np.nan)
        densities[known] = logsumexp(each[:, known], axis=0, b=unseen[:, known])
        densities[known] -= np.log(counts[known])
        mean = float(np.average(densities[known], weights=weights[known])) if known.any() else 0.0
        if mean > best[0]:
            best = mean, width**2, densities
    return best[1:]


def _merged(means: np.ndarray, variances: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Fewer components of one output: neighbours, by their means, are one."""
    order = np.argsort(means, axis=0)
    means, variances = (np.take_along_axis(array, order, axis=0) for array in (means, variances))
    shape = (_COMPONENTS, -1, *means.shape[1:])
    means, variances = means.reshape(shape), variances.reshape(shape)
    merged = means.mean(axis=1)
    return merged, (variances + np.square(means - merged[:, None])).mean(axis=1)

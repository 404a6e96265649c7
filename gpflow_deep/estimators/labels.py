"""Probabilities of classes from an exact GP of the labels, by each row predicted from the others."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from scipy.optimize import OptimizeResult, minimize
from scipy.special import ndtr, softmax

from gpflow_deep.likelihoods import probit
from gpflow_deep.numerics.draws import quasi_normals

from .label_forest import Gain, LabelForest, Labelled
from .rows import Predicted, Rows, mean_and_error
from .trees import NoTimeError, deadline_in

__all__ = [
    "Labels",
    "Link",
    "class_probabilities",
    "grow_label_forest",
    "link_of",
    "own_log_probabilities",
]

_DRAWS, _LEAST_DRAWS = 128, 16  # of the functions at each row: of one component, of each of many
_FEWER_DRAWS = 32  # to learn by
_FLOOR = 1e-3  # GPflow's link keeps probabilities off 0 and 1
_MOST_NUMBERS = 2**22  # of draws, rows and classes at a time
_ITERATIONS = 200
_FEWEST_ROWS = 100  # that a forest is grown on
_LEAVES = (1, 10)  # least rows of one
_ERRORS = 2.0  # that a gain has to be beyond: it is the largest of some
_ERRORS_OF_PREDICTIONS = 2.0  # that predictions have to gain as inputs


def class_probabilities(
    means: np.ndarray, variances: np.ndarray, log_weights: np.ndarray, seed: int
) -> np.ndarray:
    """
    Probabilities of C classes [N, C] from a mixture of functions: one, exact for the probit; or C, averaged
    over draws, the same at all rows.

    :param means: [S, N, T].
    :param variances: [S, N, T].
    :param log_weights: [S].
    :param seed: of the draws.
    """
    weights = np.exp(np.asarray(log_weights, np.float64))
    if means.shape[-1] == 1:
        second = np.tensordot(weights, ndtr(means / np.sqrt(1.0 + variances)), 1)
        second = _FLOOR + (1.0 - 2.0 * _FLOOR) * second
        return np.hstack([1.0 - second, second])
    S, _, T = means.shape
    # Successive Sobol points, a power of two of them, are even by themselves: every component has its own.
    number = max(2 ** int(np.log2(max(_DRAWS // S, 1))), _LEAST_DRAWS)
    draws = quasi_normals(S * number, [T], seed)[0].reshape(S, number, T).swapaxes(0, 1)[:, :, None]
    deviations = np.sqrt(variances)
    average = sum(softmax(means + z * deviations, axis=-1) for z in draws) / number
    probabilities: np.ndarray = np.tensordot(weights, average, 1)
    return probabilities


class Link(NamedTuple):
    """
    Predicted labels g have the right order, and another scale than what a probit or softmax takes: functions
    are f = slope g + offset, and the deviations of g are wider by a factor.
    """

    slope: float
    width: float
    offsets: tuple[float, ...]  # T

    def functions(self, means: np.ndarray, variances: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Means and variances of the functions, from those of the labels, both [N, T]."""
        scale = self.slope * self.width
        return self.slope * means + np.array(self.offsets), scale**2 * variances

    @classmethod
    def of(
        cls,
        means: np.ndarray,
        variances: np.ndarray,
        codes: np.ndarray,
        weights: np.ndarray,
        seconds: float | None = None,
    ) -> Link:
        """
        The most probable one of some rows, predicted without their own labels. Slope and width have a
        log-normal prior of deviation one about e and one, offsets a standard normal prior.

        :param means: of the labels [N, T].
        :param variances: of the labels [N, 1].
        :param codes: number of the class, [N].
        :param weights: how many observations each row is, [N].
        :param seconds: not to be exceeded.
        """
        deadline = deadline_in(seconds)
        T = means.shape[1]
        draws = tf.constant(quasi_normals(_FEWER_DRAWS, [T], 0)[0], tf.float64)
        number = -(-_FEWER_DRAWS * means.size // _MOST_NUMBERS)
        rows = (means, variances, codes, weights)
        parts = [
            [tf.constant(array) for array in part]
            for part in zip(*(np.array_split(array, number) for array in rows), strict=True)
        ]

        prior = tf.constant(1.0 / number, tf.float64)  # its share in each part
        loss_and_gradient = _loss_of(T)

        def function(parameters: np.ndarray) -> tuple[float, np.ndarray]:
            found = [
                loss_and_gradient(tf.constant(parameters), draws, prior, *part) for part in parts
            ]
            return sum(float(loss) for loss, _ in found), sum(g.numpy() for _, g in found)

        def stop_in_time(intermediate_result: OptimizeResult) -> None:
            if time.perf_counter() > deadline:
                raise StopIteration

        found = minimize(
            function,
            np.concatenate([[1.0], np.zeros(T + 1)]),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": _ITERATIONS},
            callback=stop_in_time,
        ).x
        return cls(float(np.exp(found[0])), float(np.exp(found[1])), tuple(found[2:].tolist()))


@cache
def _loss_of(T: int) -> Callable[..., tuple[tf.Tensor, tf.Tensor]]:
    """The loss of a link's parameters and its gradient: for so many functions one compilation."""

    @tf.function(autograph=False, reduce_retracing=True)
    def loss_and_gradient(
        parameters: tf.Tensor,
        draws: tf.Tensor,
        prior: tf.Tensor,
        m: tf.Tensor,
        v: tf.Tensor,
        codes: tf.Tensor,
        w: tf.Tensor,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        own = tf.one_hot(codes, max(T, 2), dtype=tf.float64)
        with tf.GradientTape() as tape:
            tape.watch(parameters)
            slope, width, offsets = tf.exp(parameters[0]), tf.exp(parameters[1]), parameters[2:]
            F = slope * m + offsets
            if T == 1:
                signs = own[:, 1:] - own[:, :1]
                inside = probit(signs * F / tf.sqrt(1.0 + tf.square(slope * width) * v))
                probability = (_FLOOR + (1.0 - 2.0 * _FLOOR) * inside)[:, 0]
            else:
                deviations = slope * width * tf.sqrt(v)
                each = tf.nn.softmax(F + draws[:, None, :] * deviations)
                probability = tf.reduce_mean(tf.reduce_sum(own * each, axis=-1), axis=0)
            expected = tf.constant([1.0] + [0.0] * (T + 1), tf.float64)
            fit = tf.reduce_sum(w * tf.math.log(probability))
            loss = 0.5 * prior * tf.reduce_sum(tf.square(parameters - expected)) - fit
        return loss, tape.gradient(loss, parameters)

    return loss_and_gradient


class Labels(NamedTuple):
    """What is made of an exact GP's predictions of labels."""

    link: Link
    forest: LabelForest | None

    def probabilities(
        self, X: np.ndarray, means: np.ndarray, variances: np.ndarray, seed: int
    ) -> np.ndarray:
        """
        Of the classes, [N, C].

        :param X: inputs [N, D].
        :param means: of the labels [N, T].
        :param variances: of the labels [N, T].
        :param seed: of draws of the functions.
        """
        F_mean, F_var = self.link.functions(means, variances)
        probabilities = class_probabilities(F_mean[None], F_var[None], np.zeros(1), seed)
        if self.forest is None:
            return probabilities
        return self.forest.probabilities(X, probabilities, variances[:, :1])

    def arrays(self) -> dict[str, np.ndarray]:
        """All there is of it, by name."""
        link = {"link": np.concatenate([self.link[:2], self.link.offsets])}
        return link if self.forest is None else link | self.forest.arrays()

    @classmethod
    def of_arrays(
        cls, arrays: Mapping[str, np.ndarray], num_inputs: int, num_classes: int
    ) -> Labels:
        """
        The inverse of `arrays`.

        :raises ValueError: where they are not of so many inputs and classes.
        """
        arrays = dict(arrays)
        slope, width, *offsets = arrays.pop("link").tolist()
        expected = 1 if num_classes == 2 else num_classes
        if len(offsets) != expected or not np.isfinite([slope, width, *offsets]).all():
            raise ValueError(f"link: expected {expected} finite offsets, got {offsets}.")
        forest = LabelForest.of_arrays(arrays, num_inputs, num_classes) if arrays else None
        return cls(Link(slope, width, tuple(offsets)), forest)


def link_of(known: Predicted, seconds: float | None = None) -> Link:
    """
    :param known: labels, each predicted from the others.
    :param seconds: not to be exceeded.
    """
    return Link.of(known.means, known.variances, _codes(known), known.weights, seconds)


def own_log_probabilities(known: Predicted, link: Link, rows: Rows, seed: int) -> np.ndarray:
    """
    Log probabilities of the rows' own classes [N], in the order of the rows.

    :param known: labels, each predicted from the others.
    :param link: from their values to probabilities.
    :param rows: the same, in an order of their own.
    :param seed: of draws of the functions.
    """
    codes = _codes(known)
    variances = np.broadcast_to(known.variances, known.means.shape)
    probabilities = Labels(link, None).probabilities(known.X, known.means, variances, seed % 2**16)
    found = np.empty(len(codes))
    # Rows are told by their inputs and classes.
    there = np.lexsort(np.column_stack([codes, known.X]).T)
    here = np.lexsort(np.column_stack([rows.Y, rows.X.astype(np.float64)]).T)
    found[here] = np.log(probabilities[there, codes[there]])
    return found


def grow_label_forest(
    known: Predicted, link: Link, seed: int, seconds: float | None = None
) -> LabelForest | None:
    """
    A forest that starts from the probabilities that there are, where trees predict rows that they were not
    grown on more than two standard errors better than these. The predictions for new rows are others than
    those it was grown beside: as inputs they, too, have to gain two standard errors.

    :param known: labels, each predicted from the others.
    :param link: from their values to probabilities.
    :param seed: of the draws of rows.
    :param seconds: for it: one that would take longer is not tried.
    """
    deadline = deadline_in(seconds)
    known = known.one_by_one()
    if len(known.X) < _FEWEST_ROWS:
        return None
    variances = np.broadcast_to(known.variances, known.means.shape)
    linked = Labels(link, None)
    before, apart = (
        linked.probabilities(known.X, means, variances, seed % 2**16)
        for means in (known.means, known.means_apart)
    )
    rows = Labelled(known.X, before, apart, known.variances, _codes(known), known.weights)
    small, large = _LEAVES

    def grow(predicted: bool, leaf: int) -> tuple[LabelForest, Gain]:
        return LabelForest.grow(rows, predicted=predicted, leaf=leaf, seed=seed, deadline=deadline)

    best: tuple[LabelForest, Gain] | None = None
    with suppress(NoTimeError):
        best = grow(False, small)
        beside = grow(True, small)
        gain, error = mean_and_error(beside[1].each - best[1].each, rows.weights)
        if gain > _ERRORS_OF_PREDICTIONS * error:
            best = beside
        best = max(best, grow(best[0].predicted, large), key=_gain)
    if best is None:
        return None
    forest, judged = best
    return forest if judged.gain > _ERRORS * judged.error else None


def _codes(known: Predicted) -> np.ndarray:
    """Numbers of the classes, [N]."""
    targets = known.means + known.residuals
    if targets.shape[1] == 1:
        return (targets[:, 0] > 0.0).astype(int)
    codes: np.ndarray = np.argmax(targets, axis=1)
    return codes


def _gain(trial: tuple[LabelForest, Gain]) -> float:
    return trial[1].gain

"""Gaussian posteriors, losses of them, and one natural gradient step on them in plain NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

import gpflow_deep as gd
from tests.models.structured_problem import block_pattern, make_posterior, make_problem

__all__ = [
    "covariance",
    "kl",
    "make_q",
    "nonlinear_loss",
    "quadratic_loss",
    "random_precision",
    "reference_step",
    "values_and_gradients",
]

Loss = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
"""Of mean [T M] and factor [T M, T M]."""


def make_q(
    structure: str, widths: Sequence[int], seed: int = 0, num_inducing: Sequence[int] | None = None
) -> gd.posteriors.InducingPosterior:
    """A random posterior; a "custom" pattern is closed first."""
    pattern = gd.posteriors.transitive_closure(block_pattern(structure, widths, seed))
    problem = make_problem(widths, pattern, seed=seed, num_inducing=num_inducing)
    q = make_posterior(structure, pattern)(problem.gp_layers())
    q.assign_dense(problem.mean, problem.factor)
    return q


def random_precision(size: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A precision [size, size] and a vector [size]: of the exact posterior of some observations."""
    rng = np.random.default_rng(seed)
    root = rng.standard_normal([size, size]) / np.sqrt(size)
    return np.eye(size) + 5.0 * root @ root.T, 3.0 * rng.standard_normal(size)


def quadratic_loss(q: gd.posteriors.InducingPosterior, seed: int = 0) -> Loss:
    """KL[q || N(P^-1 b, P^-1)] without its constant: the negative bound of a conjugate problem."""
    precision, linear = random_precision(len(q.dense()[0]), seed)

    def loss(mean: tf.Tensor, scale: tf.Tensor) -> tf.Tensor:
        value = 0.5 * tf.reduce_sum((precision @ scale) * scale) - tf.reduce_sum(linear * mean)
        value += 0.5 * tf.tensordot(mean, tf.linalg.matvec(precision, mean), 1)
        return value - 0.5 * tf.reduce_sum(tf.math.log(tf.linalg.diag_part(scale) ** 2))

    return loss


def nonlinear_loss(q: gd.posteriors.InducingPosterior, seed: int = 0) -> Loss:
    """Some function of mean and covariance that is not quadratic in v."""
    quadratic = quadratic_loss(q, seed)

    def loss(mean: tf.Tensor, scale: tf.Tensor) -> tf.Tensor:
        covariance = tf.matmul(scale, scale, transpose_b=True)
        neighbours = tf.linalg.diag_part(covariance, k=-1) * mean[1:]
        return (
            quadratic(mean, scale)
            + tf.reduce_sum(tf.sin(mean) + tf.tanh(mean[::-1] ** 2))
            + (tf.reduce_sum(tf.tanh(neighbours)))
        )

    return loss


def values_and_gradients(
    q: gd.posteriors.InducingPosterior, loss: Loss
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Mean and factor of q, and the gradients of a loss with respect to them, cut to the pattern."""
    mean, scale = q.dense()
    with tf.GradientTape() as tape:
        tape.watch([mean, scale])
        value = loss(mean, scale)
    G_m, G_L = tape.gradient(value, [mean, scale])
    return mean.numpy(), scale.numpy(), G_m.numpy(), G_L.numpy() * q._dense_mask()


def reference_step(
    mean: np.ndarray,
    scale: np.ndarray,
    G_m: np.ndarray,
    G_L: np.ndarray,
    mask: np.ndarray,
    gamma: float,
    mean_gamma: float,
) -> tuple[np.ndarray, np.ndarray]:
    """The step column by column, on the dense factor."""
    g = np.where(mask, scale.T @ G_L, 0.0)
    W = np.eye(len(g)) + gamma * (g + g.T - np.diag(np.diag(g)))
    h = np.zeros_like(W)
    for j in range(len(g)):
        rows = np.flatnonzero(mask[:, j])
        column = np.linalg.solve(W[np.ix_(rows, rows)], np.eye(len(rows))[:, 0])
        h[rows, j] = column / np.sqrt(column[0])
    scale = scale @ h
    return mean - mean_gamma * scale @ (scale.T @ G_m), scale


def covariance(q: gd.posteriors.InducingPosterior) -> np.ndarray:
    _, scale = q.dense()
    return np.asarray(tf.matmul(scale, scale, transpose_b=True))


def kl(
    mean: np.ndarray, scale: np.ndarray, other_mean: np.ndarray, other_scale: np.ndarray
) -> float:
    """KL[N(mean, scale scale^T) || N(other_mean, ...)]."""
    h = np.linalg.solve(other_scale, scale)
    d = np.linalg.solve(other_scale, mean - other_mean)
    return 0.5 * float(np.sum(h**2) + np.sum(d**2) - len(d)) - np.linalg.slogdet(h)[1]

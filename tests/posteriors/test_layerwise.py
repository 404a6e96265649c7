"""
Posteriors of one layer, given its inducing inputs, against their dense definitions.

Everything that a conditional offers is compared with the Gaussian N(mean, covariance) that it stands for.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal

from gpflow_deep.posteriors import IndependentGaussian, LayerPosterior, Prior, PseudoObservations

KINDS = ("full", "shared", "separate", "mean", "gaussian", "whitened", "prior")


class Problem:
    """A posterior of random parameters, and the dense Gaussian of each GP and draw of the inducing inputs."""

    def __init__(self, kind: str, S: int, T: int, M: int, own_kernels: bool, seed: int) -> None:
        rng = np.random.default_rng(seed)
        root = rng.standard_normal((S, T if own_kernels else 1, M, M))
        self.K = root @ np.swapaxes(root, -1, -2) / M + 0.1 * np.eye(M)
        self.factor = np.linalg.cholesky(self.K)
        self.prior_mean = rng.standard_normal((S, T, M))
        self.q = self._posterior(kind, T, M, rng)
        self.shape = (S, T, M)
        self.conditional: Any = self.q.condition(
            *(tf.constant(x) for x in (self.K, self.factor, self.prior_mean))
        )
        self.mean, self.covariance = np.empty((S, T, M)), np.empty((S, T, M, M))
        for s in range(S):
            for t in range(T):
                self.mean[s, t], self.covariance[s, t] = self._dense(s, t)

    @staticmethod
    def _posterior(kind: str, T: int, M: int, rng: np.random.Generator) -> LayerPosterior:
        if kind == "prior":
            return Prior(T, M)
        if kind in ("gaussian", "whitened"):
            q = IndependentGaussian(T, M, whiten=kind == "whitened")
            q.q_mu.assign(rng.standard_normal((M, T)))
            q.q_sqrt.assign(np.tril(rng.standard_normal((T, M, M))) + 2.0 * np.eye(M))
            return q
        precision = "full" if kind == "mean" else kind
        pseudo = PseudoObservations(T, M, precision=precision, observe_mean=kind == "mean")
        pseudo.assign_pseudo_outputs(rng.standard_normal((M, T)))
        root = rng.standard_normal((M, M))
        values = {
            "full": root @ root.T + 0.1 * np.eye(M),
            "shared": rng.gamma(1.0, size=M) + 0.01,
            "separate": rng.gamma(1.0, size=(T, M)) + 0.01,
        }
        pseudo.assign_precision(values[precision])
        return pseudo

    def prior(self, s: int, t: int) -> np.ndarray:
        return self.K[s, min(t, self.K.shape[1] - 1)]

    def _dense(self, s: int, t: int) -> tuple[np.ndarray, np.ndarray]:
        K = self.prior(s, t)
        if isinstance(self.q, PseudoObservations):
            root = self.q.precision_factor().numpy()
            root = root[min(t, len(root) - 1)]
            precision = root @ root.T
            covariance = np.linalg.inv(np.linalg.inv(K) + precision)
            outputs = self.q.pseudo_outputs.numpy()[:, t]
            if self.q.observe_mean:
                outputs = outputs - self.prior_mean[s, t]
            return covariance @ precision @ outputs, covariance
        if isinstance(self.q, IndependentGaussian):
            mean, scale = self.q.q_mu.numpy()[:, t], self.q.q_sqrt.numpy()[t]
            if self.q.whiten:
                mean, scale = np.linalg.cholesky(K) @ mean, np.linalg.cholesky(K) @ scale
            return mean, scale @ scale.T
        return np.zeros(len(K)), K

    def unwhiten(self, v: tf.Tensor) -> np.ndarray:
        return np.einsum(
            "stmn,stn->stm", np.broadcast_to(self.factor, (*self.shape, self.shape[2])), v
        )


problems = st.builds(
    Problem,
    st.sampled_from(KINDS),
    S=st.integers(1, 3),
    T=st.integers(1, 3),
    M=st.integers(1, 5),
    own_kernels=st.booleans(),
    seed=st.integers(0, 10**6),
)


@settings(max_examples=25, deadline=None)
@given(problems)
def test_draws_have_the_mean_and_the_covariance(problem: Problem) -> None:
    """A draw is linear in its noise: that gives both of its moments exactly."""
    S, T, M = problem.shape
    size = problem.q.num_noise * M

    def draw(noise: np.ndarray) -> np.ndarray:
        parts = np.split(np.broadcast_to(noise, (S, T, size)), problem.q.num_noise, axis=-1)
        v = problem.conditional.sample(tuple(tf.constant(part) for part in parts))
        return problem.unwhiten(np.broadcast_to(v, problem.shape))

    mean = draw(np.zeros(size))
    columns = np.stack([draw(row) - mean for row in np.eye(size)], axis=-1)  # [S, T, M, size]
    np.testing.assert_allclose(mean, problem.mean, rtol=1e-7, atol=1e-8)
    covariance = columns @ np.swapaxes(columns, -1, -2)
    np.testing.assert_allclose(covariance, problem.covariance, rtol=1e-7, atol=1e-8)


@settings(max_examples=25, deadline=None)
@given(problems)
def test_divergence_from_the_prior(problem: Problem) -> None:
    S, T, M = problem.shape
    expected = np.zeros(S)
    for s in range(S):
        for t in range(T):
            K, m, C = problem.prior(s, t), problem.mean[s, t], problem.covariance[s, t]
            inverse = np.linalg.inv(K)
            determinants = np.linalg.slogdet(K)[1] - np.linalg.slogdet(C)[1]
            expected[s] += 0.5 * (np.trace(inverse @ C) + m @ inverse @ m - M + determinants)
    kl = problem.conditional.prior_kl()
    np.testing.assert_allclose(np.broadcast_to(kl, S), expected, rtol=1e-7, atol=1e-8)


@settings(max_examples=25, deadline=None)
@given(problems, st.integers(0, 100))
def test_log_ratio_of_densities(problem: Problem, seed: int) -> None:
    S, T, M = problem.shape
    v = np.random.default_rng(seed).standard_normal((S, T, M))
    u = problem.unwhiten(v)
    expected = np.zeros(S)
    for s in range(S):
        for t in range(T):
            prior = multivariate_normal(np.zeros(M), problem.prior(s, t))
            posterior = multivariate_normal(problem.mean[s, t], problem.covariance[s, t])
            expected[s] += prior.logpdf(u[s, t]) - posterior.logpdf(u[s, t])
    np.testing.assert_allclose(
        problem.conditional.log_ratio(tf.constant(v)), expected, rtol=1e-6, atol=1e-7
    )
    # The noise of a draw saves solving for it.
    noise = tuple(
        tf.constant(np.random.default_rng([seed, i]).standard_normal((S, T, M)))
        for i in range(problem.q.num_noise)
    )
    drawn = problem.conditional.sample(noise)
    np.testing.assert_allclose(
        problem.conditional.log_ratio(drawn, noise),
        problem.conditional.log_ratio(drawn),
        rtol=1e-6,
        atol=1e-7,
    )


@settings(max_examples=25, deadline=None)
@given(problems, st.integers(0, 100))
def test_other_values_with_the_inducing_outputs_integrated_out(problem: Problem, seed: int) -> None:
    S, T, _ = problem.shape
    K_rank = problem.K.shape[1]
    rng = np.random.default_rng(seed)
    weights = rng.standard_normal(
        (S, K_rank, problem.shape[2], 4)
    )  # K_MN = K_MM W: values W^T u + rest
    Kuf = problem.K @ weights
    own = np.swapaxes(weights, -1, -2) @ Kuf + np.eye(4)  # the prior's covariance of the values
    explained = problem.conditional.explain(tf.constant(Kuf))
    prior = tf.constant(np.diagonal(own, axis1=-2, axis2=-1).copy())
    covariance = np.broadcast_to(explained.covariance(tf.constant(own)), (S, T, 4, 4))
    variance = np.broadcast_to(explained.variance(prior), (S, 4, T))
    for s in range(S):
        for t in range(T):
            W = weights[s, min(t, K_rank - 1)]
            expected = np.eye(4) + W.T @ problem.covariance[s, t] @ W
            np.testing.assert_allclose(
                explained.mean[s, :, t], W.T @ problem.mean[s, t], rtol=1e-6, atol=1e-7
            )
            np.testing.assert_allclose(covariance[s, t], expected, rtol=1e-6, atol=1e-6)
            np.testing.assert_allclose(variance[s, :, t], np.diag(expected), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("precision", "value", "message"),
    [
        ("full", np.ones(4), r"precision: expected shape \[4, 4\], got \[4\]"),
        ("full", -np.eye(4), "precision: expected a positive definite matrix.*-1"),
        ("shared", np.ones((3, 4)), r"precision: expected shape \[4\], got \[3, 4\]"),
        ("separate", np.zeros((3, 4)), "precision: expected positive values, got 0"),
    ],
)
def test_precisions_that_do_not_fit(precision: str, value: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PseudoObservations(3, 4, precision=precision).assign_precision(value)


def test_other_wrong_arguments() -> None:
    with pytest.raises(ValueError, match="precision: expected one of 'full', 'shared', 'separate'"):
        PseudoObservations(3, 4, precision="diag")
    with pytest.raises(ValueError, match="num_inducing: expected a positive integer, got 0"):
        Prior(3, 0)
    q = PseudoObservations(3, 4)
    with pytest.raises(ValueError, match=r"pseudo_outputs: expected shape \[4, 3\], got \[3, 4\]"):
        q.assign_pseudo_outputs(np.ones((3, 4)))
    with pytest.raises(ValueError, match="pseudo_outputs: expected finite values"):
        q.assign_pseudo_outputs(np.full((4, 3), np.nan))

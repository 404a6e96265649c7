"""
A deep GP with one joint Gaussian over its inducing outputs, in plain NumPy, slow and readable.

Everything here is written from the equations of Lindinger et al., *Beyond the Mean-Field:
Structured Deep Gaussian Processes* (NeurIPS 2020), with loops over samples and points, dense
matrices of size [T*M, T*M] and no structure used. It is the yardstick for the package and shares no
code with it.

Order of the inducing outputs: layer by layer, within a layer GP by GP, within a GP the M points.
T*M below is the number of all of them, even where layers have different M. Nothing is whitened:
`unwhiten` comes first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

__all__ = [
    "Chain",
    "Layer",
    "chain_log_density",
    "conditional_chain_log_density",
    "gaussian_kl",
    "gaussian_variational_expectations",
    "kl_divergence",
    "elbo",
    "log_predictive_density",
    "monte_carlo_chain_log_density",
    "prior_covariance",
    "simulate",
    "star_pattern",
    "theorem_one",
    "unwhiten",
]


@dataclass(frozen=True)
class Layer:
    """
    T GPs with squared-exponential kernels that share inducing inputs and a white-noise variance.

    :param Z: inducing inputs, [M, D].
    :param variance: variance of the kernel, one for all GPs or [T].
    :param lengthscales: one for each input dimension, [D], or for each GP too, [T, D].
    :param white: variance of the white kernel; on the diagonals only, never between X and Z.
    :param W: weights of the mean function x W + b, [D, T].
    :param b: offset of the mean function, [T].
    """

    Z: np.ndarray
    variance: float | np.ndarray
    lengthscales: np.ndarray
    white: float
    W: np.ndarray
    b: np.ndarray

    @property
    def num_gps(self) -> int:
        return self.W.shape[1]

    def gp(self, t: int) -> Layer:
        """GP t on its own."""
        T, D = self.num_gps, self.Z.shape[1]
        return Layer(
            self.Z,
            float(np.broadcast_to(self.variance, [T])[t]),
            np.broadcast_to(self.lengthscales, [T, D])[t],
            self.white,
            self.W[:, t : t + 1],
            self.b[t : t + 1],
        )

    def k(self, A: np.ndarray, B: np.ndarray) -> np.ndarray:
        """Covariance [..., N1, N2] of A [..., N1, D] and B [..., N2, D] where T = 1."""
        difference = (A[..., :, None, :] - B[..., None, :, :]) / self.lengthscales
        return self.variance * np.exp(-0.5 * np.sum(difference**2, -1))

    def K_MM(self, jitter: float) -> np.ndarray:
        return self.k(self.Z, self.Z) + (self.white + jitter) * np.eye(len(self.Z))

    def mean_function(self, X: np.ndarray) -> np.ndarray:
        return X @ self.W + self.b


class Chain(NamedTuple):
    """For each layer [S, N, T_l] twice, [S, N, T_l, T_l]; jointly [S, N, T] and [S, N, T, T]."""

    sample: list[np.ndarray]
    mean: list[np.ndarray]
    covariance: list[np.ndarray]
    marginal_mean: np.ndarray
    marginal_covariance: np.ndarray


def _blocks(layers: list[Layer]) -> list[slice]:
    """Rows of each layer among the T GPs."""
    ends = np.cumsum([layer.num_gps for layer in layers])
    return [slice(end - layer.num_gps, end) for end, layer in zip(ends, layers, strict=True)]


def _points(layers: list[Layer]) -> list[slice]:
    """Rows of each GP's inducing outputs among all of them, GP by GP."""
    sizes = [len(layer.Z) for layer in layers for _ in range(layer.num_gps)]
    ends = np.cumsum(sizes)
    return [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]


def prior_covariance(layers: list[Layer], jitter: float) -> np.ndarray:
    """Block-diagonal covariance of p(u), [T*M, T*M]."""
    points = _points(layers)
    K = np.zeros((points[-1].stop, points[-1].stop))
    for layer, rows in zip(layers, _blocks(layers), strict=True):
        for t in range(layer.num_gps):
            own = points[rows.start + t]
            K[own, own] = layer.gp(t).K_MM(jitter)
    return K


def unwhiten(
    layers: list[Layer], mean: np.ndarray, scale: np.ndarray, jitter: float
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and factor of u = blockdiag(chol K_MM) v for v ~ N(mean, scale scale^T)."""
    L = np.linalg.cholesky(prior_covariance(layers, jitter))
    return L @ mean, L @ scale


def gaussian_kl(mean: np.ndarray, covariance: np.ndarray, prior: np.ndarray) -> float:
    """KL[N(mean, covariance) || N(0, prior)]."""
    precision = np.linalg.inv(prior)
    return 0.5 * float(
        np.trace(precision @ covariance)
        + mean @ precision @ mean
        - len(mean)
        + np.linalg.slogdet(prior)[1]
        - np.linalg.slogdet(covariance)[1]
    )


def kl_divergence(layers: list[Layer], mean: np.ndarray, scale: np.ndarray, jitter: float) -> float:
    """KL[q(u) || p(u)] with q(u) = N(mean, scale scale^T)."""
    return gaussian_kl(mean, scale @ scale.T, prior_covariance(layers, jitter))


def _marginals(
    layers: list[Layer], inputs: list[np.ndarray], mean: np.ndarray, S: np.ndarray, jitter: float
) -> tuple[np.ndarray, np.ndarray]:
    """
    mu~ [T'] and S~ [T', T'] of the first layers' values, given the input of each (Theorem 1).

    There are as many layers as inputs: S~ of the first l layers needs f^0, ..., f^{l-1} only.
    """
    used = layers[: len(inputs)]
    points = _points(used)
    T, size = len(points), points[-1].stop
    mean_f, prior_variance, projection = np.zeros(T), np.zeros(T), np.zeros((T, size))
    for layer, x, rows in zip(used, inputs, _blocks(used), strict=True):
        mean_f[rows] = layer.mean_function(x)
        for t in range(layer.num_gps):
            i, gp = rows.start + t, layer.gp(t)
            prior_variance[i] = gp.variance + gp.white
            k = gp.k(gp.Z, x[None, :])[:, 0]
            projection[i, points[i]] = np.linalg.solve(gp.K_MM(jitter), k)
    K = prior_covariance(used, jitter)
    S = S[:size, :size]
    mu_tilde = mean_f + projection @ mean[:size]
    S_tilde = np.diag(prior_variance) - projection @ (K - S) @ projection.T
    return mu_tilde, S_tilde


def theorem_one(
    layers: list[Layer],
    X: np.ndarray,
    mean: np.ndarray,
    scale: np.ndarray,
    noise: list[np.ndarray],
    jitter: float,
    covariance_jitter: float = 0.0,
) -> Chain:
    """
    Samples and conditional moments of the layers by Eqs. 10 and 11, one sample and point at a time.

    :param X: inputs, [N, D].
    :param mean: mean of q(u), [T*M].
    :param scale: factor of the covariance of q(u), [T*M, T*M].
    :param noise: standard normal draws, one array [S, N, T_l] a layer.
    :param jitter: added to the diagonal of each K_MM.
    :param covariance_jitter: J of f^l = mu^ + chol(Sigma^ + J I) z and of (S~^{<l,<l} + J I)^{-1}.
    """
    num_samples, N = noise[0].shape[:2]
    rows = _blocks(layers)
    T = rows[-1].stop
    S = scale @ scale.T
    sample = [np.zeros((num_samples, N, layer.num_gps)) for layer in layers]
    conditional_mean = [np.zeros_like(f) for f in sample]
    covariance = [np.zeros((num_samples, N, f.shape[-1], f.shape[-1])) for f in sample]
    marginal_mean = np.zeros((num_samples, N, T))
    marginal_covariance = np.zeros((num_samples, N, T, T))
    for s in range(num_samples):
        for n in range(N):
            inputs, past = [X[n]], np.zeros(0)
            for i, own in enumerate(rows):
                mu, S_tilde = _marginals(layers, inputs, mean, S, jitter)
                before = slice(0, own.start)
                cross = S_tilde[own, before]
                inner = S_tilde[before, before] + covariance_jitter * np.eye(own.start)
                gain = np.linalg.solve(inner, cross.T).T
                m = mu[own] + gain @ (past - mu[before])
                C = S_tilde[own, own] - gain @ cross.T
                J = covariance_jitter * np.eye(len(m))
                f = m + np.linalg.cholesky(C + J) @ noise[i][s, n]
                sample[i][s, n], conditional_mean[i][s, n], covariance[i][s, n] = f, m, C
                inputs.append(f)
                past = np.concatenate([past, f])
            marginal_mean[s, n], marginal_covariance[s, n] = mu, S_tilde
    return Chain(sample, conditional_mean, covariance, marginal_mean, marginal_covariance)


def gaussian_variational_expectations(
    Y: np.ndarray, mean: np.ndarray, variance: np.ndarray, noise_variance: float
) -> np.ndarray:
    """E[log N(Y | f, noise_variance)] under f ~ N(mean, variance), elementwise."""
    return -0.5 * np.log(2 * np.pi * noise_variance) - ((Y - mean) ** 2 + variance) / (
        2 * noise_variance
    )


def _variance(covariance: np.ndarray) -> np.ndarray:
    return np.diagonal(covariance, axis1=-2, axis2=-1)


def elbo(chain: Chain, Y: np.ndarray, noise_variance: float, kl: float, num_data: float) -> float:
    """Evidence lower bound of a Gaussian likelihood on the minibatch Y [N, P]."""
    expectations = gaussian_variational_expectations(
        Y, chain.mean[-1], _variance(chain.covariance[-1]), noise_variance
    )
    return float(num_data / len(Y) * expectations.sum(-1).mean(0).sum() - kl)


def log_predictive_density(chain: Chain, Y: np.ndarray, noise_variance: float) -> np.ndarray:
    """Log of the mean over the samples of prod_p N(Y_np | mean, variance + noise_variance), [N]."""
    variance = _variance(chain.covariance[-1]) + noise_variance
    logs = -0.5 * (np.log(2 * np.pi * variance) + (Y - chain.mean[-1]) ** 2 / variance)
    return np.log(np.exp(logs.sum(-1)).mean(0))


def _log_normal(x: np.ndarray, mean: np.ndarray, covariance: np.ndarray) -> float:
    difference = x - mean
    quadratic = difference @ np.linalg.solve(covariance, difference)
    return -0.5 * float(quadratic + np.linalg.slogdet(covariance)[1] + len(x) * np.log(2 * np.pi))


def chain_log_density(
    layers: list[Layer],
    x: np.ndarray,
    chain: list[np.ndarray],
    mean: np.ndarray,
    scale: np.ndarray,
    jitter: float,
) -> float:
    """
    Log density of f^1, ..., f^L at the input x [D] with u integrated out: log N(f; mu~, S~).

    Given the chain, each f^l is linear in u plus independent noise, so the integral is Gaussian.
    """
    mu, S = _marginals(layers, [x, *chain[:-1]], mean, scale @ scale.T, jitter)
    return _log_normal(np.concatenate(chain), mu, S)


def conditional_chain_log_density(
    chain: list[np.ndarray], means: list[np.ndarray], covariances: list[np.ndarray]
) -> float:
    """Sum over the layers of log N(f^l | mu^, Sigma^): a chain's density by its conditionals."""
    return sum(_log_normal(f, m, C) for f, m, C in zip(chain, means, covariances, strict=True))


def _draw_inducing_outputs(
    layers: list[Layer],
    mean: np.ndarray,
    scale: np.ndarray,
    num_draws: int,
    rng: np.random.Generator,
) -> list[np.ndarray]:
    """Draws from q(u), one array [num_draws, T_l, M] a layer."""
    u = mean + rng.standard_normal((num_draws, len(mean))) @ scale.T
    points = _points(layers)
    return [
        np.stack([u[:, points[t]] for t in range(rows.start, rows.stop)], 1)
        for rows in _blocks(layers)
    ]


def monte_carlo_chain_log_density(
    layers: list[Layer],
    x: np.ndarray,
    chain: list[np.ndarray],
    mean: np.ndarray,
    scale: np.ndarray,
    jitter: float,
    num_draws: int,
    seed: int,
) -> tuple[float, float]:
    """
    The same density with u drawn: log of the mean over u of prod_l p(f^l | u, f^{l-1}).

    :return: the estimate and its standard error.
    """
    u = _draw_inducing_outputs(layers, mean, scale, num_draws, np.random.default_rng(seed))
    log_p = np.zeros(num_draws)
    for layer, u_l, f_in, f in zip(layers, u, [x, *chain[:-1]], chain, strict=True):
        for t in range(layer.num_gps):
            gp = layer.gp(t)
            k = gp.k(gp.Z, f_in[None, :])[:, 0]
            K_tilde = np.linalg.solve(gp.K_MM(jitter), k)
            variance = gp.variance + gp.white - k @ K_tilde
            residual = f[t] - gp.mean_function(f_in) - u_l[:, t] @ K_tilde
            log_p -= 0.5 * (np.log(2 * np.pi * variance) + residual**2 / variance)
    weights = np.exp(log_p - log_p.max())
    average = weights.mean()
    error = weights.std() / np.sqrt(num_draws) / average
    return float(np.log(average) + log_p.max()), float(error)


def simulate(
    layers: list[Layer],
    X: np.ndarray,
    mean: np.ndarray,
    scale: np.ndarray,
    jitter: float,
    num_draws: int,
    seed: int,
) -> list[np.ndarray]:
    """
    Draw u once for each sample, then the layers' values at all points jointly given u.

    Nothing of Theorem 1 is used: this is the generative definition of the approximate posterior.
    The jitter keeps the factorisation over the points going; it is far below the Monte Carlo error.

    :return: one array [num_draws, N, T_l] a layer.
    """
    rng = np.random.default_rng(seed)
    u = _draw_inducing_outputs(layers, mean, scale, num_draws, rng)
    N = len(X)
    f, values = np.broadcast_to(X, (num_draws, *X.shape)), []
    for layer, u_l in zip(layers, u, strict=True):
        draws = []
        for t in range(layer.num_gps):
            gp = layer.gp(t)
            K_NM = gp.k(f, np.broadcast_to(gp.Z, (num_draws, *gp.Z.shape)))
            K_tilde = np.linalg.solve(gp.K_MM(jitter), K_NM.swapaxes(1, 2)).swapaxes(1, 2)
            C = gp.k(f, f) - K_tilde @ K_NM.swapaxes(1, 2) + (gp.white + jitter) * np.eye(N)
            z = rng.standard_normal((num_draws, N, 1))
            mean_t = gp.mean_function(f) + K_tilde @ u_l[:, t, :, None]
            draws.append(mean_t + np.linalg.cholesky(C) @ z)
        f = np.concatenate(draws, -1)
        values.append(f)
    return values


def star_pattern(widths: list[int]) -> np.ndarray:
    """Stripes and arrow by its definition, [T, T]: stripes between hidden GPs, full output rows."""
    index = [(layer, t) for layer, width in enumerate(widths) for t in range(width)]
    pattern = np.zeros((len(index), len(index)), dtype=bool)
    for i, (layer, t) in enumerate(index):
        for j, (_, other) in enumerate(index[: i + 1]):
            is_output = layer == len(widths) - 1
            pattern[i, j] = is_output or t == other
    return pattern

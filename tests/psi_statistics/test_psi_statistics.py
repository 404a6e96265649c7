"""Closed-form expectations under Gaussians against dense quadrature, GPflow's and each other."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.kernels import (
    Constant,
    Cosine,
    Linear,
    Matern32,
    SquaredExponential,
    White,
)

from gpflow_deep.kernels import SpectralMixture
from gpflow_deep.psi_statistics import Gaussian, NoClosedForm, psi0, psi1, psi1_slope, psi2, terms
from gpflow_deep.psi_statistics.exponentials import (
    exponential_sums,
    features,
    pair_coefficients,
    pairs,
)

D = 2


def mixture() -> SpectralMixture:
    return SpectralMixture([0.7, 0.4], [[0.3, -0.1], [0.05, 0.2]], [[0.1, 0.15], [0.2, 0.05]])


KERNELS = {
    "squared exponential": lambda: SquaredExponential(1.3, [0.8, 1.2]),
    "on one input": lambda: SquaredExponential(0.6, 0.9, active_dims=[1]),
    "product": lambda: (
        SquaredExponential(0.6, 0.9, active_dims=[1])
        * SquaredExponential(1.2, 0.7, active_dims=[0])
    ),
    "linear": lambda: Linear([0.5, 0.8]),
    "linear product": lambda: SquaredExponential(0.9, [1.0, 0.8]) * Linear([0.5, 0.8]),
    "sum": lambda: SquaredExponential(0.5, 1.5) + Linear(0.3) + Constant(0.2) + White(0.1),
    "cosine": lambda: Cosine(1.1, [2.0, 3.0]),
    "damped cosine": lambda: SquaredExponential(1.0, 1.5) * Cosine(1.0, 2.5, active_dims=[0]),
    "spectral mixture": mixture,
}
each_kernel = pytest.mark.parametrize("name", KERNELS)
RNG = np.random.default_rng(0)
Z, OTHER_Z = RNG.normal(size=(4, D)), RNG.normal(size=(3, D))
MEAN = RNG.normal(size=(3, D))
ROOT = np.array([[0.5, 0.0], [0.3, 0.4]])
FULL = np.stack([s * ROOT @ ROOT.T for s in (0.2, 1.0, 2.0)])
DIAGONAL = np.array([[0.1, 0.4], [0.6, 0.2], [1.0, 0.5]])


def gaussian(full: bool) -> Gaussian:
    return Gaussian(tf.constant(MEAN), tf.constant(FULL if full else DIAGONAL))


def nodes(full: bool) -> tuple[np.ndarray, np.ndarray]:
    """Inputs [Q, N, D] and weights [Q] of a Gauss-Hermite grid."""
    x, w = np.polynomial.hermite_e.hermegauss(60)
    grid = np.stack([a.ravel() for a in np.meshgrid(x, x)], axis=1)
    roots = np.linalg.cholesky(FULL if full else DIAGONAL[:, :, None] * np.eye(D))
    return MEAN + np.einsum("nde,qe->qnd", roots, grid), np.outer(w, w).ravel() / (2 * np.pi)


def of_gram(kernel: gpflow.kernels.Kernel, H: np.ndarray, Z: np.ndarray) -> np.ndarray:
    return kernel(H.reshape(-1, D), Z).numpy().reshape(*H.shape[:2], len(Z))


def test_an_unknown_number_of_points() -> None:
    kernel, h = KERNELS["damped cosine"](), gaussian(full=True)
    specs = [tf.TensorSpec([None, *x.shape[1:]], x.dtype) for x in h]

    @tf.function(input_signature=specs, autograph=False)
    def compiled(*h: tf.Tensor) -> tf.Tensor:
        return psi2(kernel, Z, kernel, OTHER_Z, Gaussian(*h))

    np.testing.assert_allclose(compiled(*h), psi2(kernel, Z, kernel, OTHER_Z, h))


@pytest.mark.parametrize("full", [False, True])
@each_kernel
def test_against_quadrature(name: str, full: bool) -> None:
    kernel = KERNELS[name]()
    other = SquaredExponential(0.7, 1.1) if name == "linear product" else mixture() + Linear(0.5)
    H, w = nodes(full)
    K, L = of_gram(kernel, H, Z), of_gram(other, H, OTHER_Z)
    h = gaussian(full)
    tZ, tO = tf.constant(Z), tf.constant(OTHER_Z)
    diagonal = kernel(H.reshape(-1, D), full_cov=False).numpy().reshape(H.shape[:2])
    np.testing.assert_allclose(psi0(kernel, h), w @ diagonal, rtol=1e-9)
    np.testing.assert_allclose(
        psi1(kernel, tZ, h), np.einsum("q,qnm->nm", w, K), rtol=1e-8, atol=1e-9
    )
    expected = np.einsum("q,qnd,qnm->ndm", w, H - MEAN, K)
    actual = h.times(psi1_slope(kernel, tZ, h))
    np.testing.assert_allclose(actual, expected, rtol=1e-7, atol=1e-9)
    for a, A, b, B in ((kernel, Z, kernel, Z), (kernel, Z, other, OTHER_Z)):
        expected = np.einsum("q,qnm,qnr->nmr", w, of_gram(a, H, A), of_gram(b, H, B))
        actual = psi2(a, tf.constant(A), b, tf.constant(B), h)
        np.testing.assert_allclose(actual, expected, rtol=1e-7, atol=1e-9)
    cross = np.einsum("q,qnm,qnr->nmr", w, K, L)
    np.testing.assert_allclose(
        psi2(other, tO, kernel, tZ, h), np.swapaxes(cross, 1, 2), rtol=1e-7, atol=1e-9
    )


@pytest.mark.parametrize("name", ["squared exponential", "on one input", "linear"])
def test_against_gpflow(name: str) -> None:
    kernel = KERNELS[name]()
    points = gpflow.inducing_variables.InducingPoints(Z)
    for full, distribution in (
        (False, gpflow.probability_distributions.DiagonalGaussian),
        (True, gpflow.probability_distributions.Gaussian),
    ):
        if full and name == "on one input":
            continue  # GPflow's active_dims need diagonal Gaussians
        h = gaussian(full)
        p = distribution(h.mean, h.covariance)
        expectation = gpflow.expectations.expectation
        tZ = tf.constant(Z)
        np.testing.assert_allclose(psi0(kernel, h), expectation(p, kernel), rtol=1e-12)
        np.testing.assert_allclose(
            psi1(kernel, tZ, h), expectation(p, (kernel, points)), rtol=1e-11
        )
        theirs = expectation(p, (kernel, points), (kernel, points))
        np.testing.assert_allclose(psi2(kernel, tZ, kernel, tZ, h), theirs, rtol=1e-10, atol=1e-13)


def test_kernels_without_closed_form() -> None:
    for kernel in (Matern32(), Linear() * Linear(), White() * Linear()):
        with pytest.raises(NoClosedForm, match="closed form"):
            terms(kernel, D)


def test_pairs_of_a_triangle_sum_to_the_whole() -> None:
    """tr(C psi2) by the pairs i >= j, and its gradients, equal those by the whole psi2."""
    kernel = SquaredExponential(1.3, [0.8, 1.2])
    C = RNG.normal(size=(2, 4, 4))
    C = tf.constant(C + np.swapaxes(C, 1, 2))
    upstream = tf.constant(RNG.normal(size=(3, 2)))
    for full in (False, True):
        h = gaussian(full)
        z = tf.constant(Z)
        sources = [z, C, h.mean, h.covariance, *kernel.trainable_variables]
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(sources)
            (wave,) = terms(kernel, D)
            functions = pairs(wave.log_amplitude[None], z[None], wave.precision[None])
            weights = tf.transpose(pair_coefficients(C))[None]
            by_pairs = exponential_sums(*features(functions, h), weights)[0]
            whole = tf.einsum("nij,tij->nt", psi2(kernel, z, kernel, z, h), C)
        np.testing.assert_allclose(by_pairs, whole, rtol=1e-12)
        slopes = tape.gradient(by_pairs, sources, upstream)
        for one, other in zip(slopes, tape.gradient(whole, sources, upstream), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


def test_spectral_mixture_is_a_kernel() -> None:
    kernel = mixture()
    X = RNG.normal(size=(20, D))
    K = kernel(X).numpy()
    assert np.linalg.eigvalsh(K).min() > -1e-12
    np.testing.assert_allclose(np.diag(K), kernel(X, full_cov=False))
    np.testing.assert_allclose(kernel(X, Z), kernel(Z, X).numpy().T)
    without_waves = SpectralMixture([2.0], np.zeros([1, D]), [[0.1, 0.2]])
    same = SquaredExponential(2.0, 1.0 / (2.0 * np.pi * np.array([0.1, 0.2])))
    np.testing.assert_allclose(without_waves(X, Z), same(X, Z))
    with pytest.raises(ValueError, match=r"frequencies.*\[Q, D\].*\(2,\)"):
        SpectralMixture([1.0], [0.1, 0.2], [[0.1, 0.2]])

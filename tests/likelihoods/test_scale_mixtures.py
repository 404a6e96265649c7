"""A Student-t as a mixture of Gaussians, against its density and quantiles."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.likelihoods import Gaussian, StudentT
from scipy import stats

import gpflow_deep as gd
from gpflow_deep import metrics
from gpflow_deep.likelihoods import MissingOutputs
from gpflow_deep.likelihoods.scale_mixtures import noise_scales
from gpflow_deep.posteriors.mixture import Mixture, with_noise_scales


def _observed(functions: Mixture, scale: float, df: float) -> tuple[np.ndarray, ...]:
    noise = np.square(scale) * df / (df - 2.0)
    observed = functions._replace(variances=functions.variances + noise)
    scales = noise_scales(StudentT(scale, df))
    assert scales is not None
    return tuple(part.numpy() for part in with_noise_scales(functions, observed, *scales))


@pytest.mark.parametrize("df", [2.5, 3.0, 8.0])
def test_student_t_as_a_mixture(df: float) -> None:
    """Against its density and quantiles, and with a function of two components beside it."""
    nothing = tf.zeros([1, 1, 1], tf.float64)
    of_noise = Mixture(nothing, nothing, nothing[:, 0, 0])
    means, variances, log_weights = _observed(of_noise, 0.5, df)
    y = np.linspace(-4.0, 4.0, 41)[:, None]
    wide = [np.broadcast_to(array, (len(array), 41, 1)) for array in (means, variances)]
    np.testing.assert_allclose(
        metrics.log_density(y, *wide, log_weights),
        stats.t.logpdf(y[:, 0], df, scale=0.5),
        atol=0.06,
    )
    levels = np.array([0.01, 0.25, 0.5, 0.9])
    np.testing.assert_allclose(
        metrics.quantile(levels, means, variances, log_weights)[:, 0, 0],
        stats.t.ppf(levels, df, scale=0.5),
        rtol=0.02,
        atol=1e-12,
    )
    two = Mixture(
        tf.constant([-1.0, 2.0], tf.float64)[:, None, None],
        tf.constant([0.1, 0.4], tf.float64)[:, None, None],
        tf.math.log(tf.constant([0.2, 0.8], tf.float64)),
    )
    mean, variance = metrics.mixture_moments(*_observed(two, 0.5, df))
    np.testing.assert_allclose(mean, 1.4)
    noise = 0.25 * df / (df - 2.0)
    np.testing.assert_allclose(variance, 0.2 * 0.1 + 0.8 * 0.4 + 0.2 * 0.8 * 9.0 + noise)


@pytest.mark.parametrize("kind", [tf.Variable, gpflow.Parameter])
def test_degrees_of_freedom_may_be_trained(kind: type) -> None:
    for df in (2.5, 8.0):
        factors, shares = noise_scales(StudentT(0.5, kind(df, dtype=tf.float64)))
        expected, expected_shares = noise_scales(StudentT(0.5, df))
        np.testing.assert_allclose(factors, expected, rtol=1e-6)
        np.testing.assert_array_equal(shares, expected_shares)
    infinite, _ = noise_scales(StudentT(0.5, kind(1.5, dtype=tf.float64)))
    np.testing.assert_array_equal(infinite, np.ones(8))


def test_densities_of_users_are_no_mixtures() -> None:
    class Own(StudentT):
        def _scalar_log_prob(self, X: tf.Tensor, F: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
            return -tf.abs(Y - F)

    assert noise_scales(Own()) is None


@pytest.mark.parametrize("likelihood", [Gaussian(), StudentT(df=1.5), gpflow.likelihoods.Poisson()])
def test_others_have_one_scale(likelihood: gpflow.likelihoods.Likelihood) -> None:
    assert noise_scales(likelihood) is None


def test_missing_outputs_have_the_scales_of_those_that_are_there() -> None:
    for own, expected in zip(noise_scales(MissingOutputs(StudentT())), noise_scales(StudentT())):
        np.testing.assert_array_equal(own, expected)


def test_a_deep_model_predicts_the_tails() -> None:
    """The mixture's density is the model's, with noise that depends on the inputs; moments stay."""
    X = np.linspace(-1.0, 1.0, 12)[:, None]
    layers = gd.layers.build_layers(X, [1], 1, num_inducing=6)
    likelihood = StudentT(gpflow.functions.Linear(A=[[0.02]], b=[0.1]))
    model = gd.models.DeepGP(layers, likelihood, num_prediction_samples=5)
    mixture = model.predict_y_mixture(X)
    assert mixture.means.shape == mixture.variances.shape == (40, 12, 1)
    for own, expected in zip(metrics.mixture_moments(*mixture), model.predict_y(X)):
        np.testing.assert_allclose(own, expected, rtol=1e-10)
    Y = np.full([12, 1], 3.0)
    np.testing.assert_allclose(
        metrics.log_density(Y, *map(np.asarray, mixture)),
        model.predict_log_density((X, Y)),
        atol=0.02,
    )

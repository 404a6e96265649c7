"""Bayesian neural networks against the reference values, and the laws of their prior precisions."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose

from gpflow_deep.distributions import Bartlett, InverseWishart
from gpflow_deep.layers import BayesianDense
from gpflow_deep.layers.bayesian import ScalePrior
from gpflow_deep.posteriors import FactorisedWeights, WeightSpec

from .bnn_cases import (
    BNNCase,
    channels_last,
    conv_layer,
    gamma_normals,
    names_of,
    network,
    network_noise,
)

RTOL = 1e-8


# ---------------------------------------------------------------- dense networks


@pytest.mark.parametrize("name", names_of("bnn"))
def test_draws_of_networks(name: str) -> None:
    case = BNNCase(name)
    model, noise = network(case), network_noise(case)
    chain = model._propagate_inducing([tf.constant(z) for z in noise])
    outputs = model.propagate(case["X"], noise)
    for i, (conditional, weights, output) in enumerate(
        zip(chain.conditionals, chain.draws, outputs, strict=True), start=1
    ):
        assert_allclose(weights, case[f"out/L{i}/W"], RTOL)
        mean, covariance = conditional.joint_moments(
            tf.eye(weights.shape[-1], dtype=tf.float64)[None]
        )
        expected = case[f"out/L{i}/post_mean"]
        assert_allclose(
            np.broadcast_to(tf.transpose(mean, [0, 2, 1]), expected.shape), expected, RTOL
        )
        expected = case[f"out/L{i}/post_cov"]
        assert_allclose(np.broadcast_to(covariance, expected.shape), expected, RTOL, 1e-12)
        assert_allclose(output.sample, case[f"out/L{i}/F"], RTOL, 1e-10)


@pytest.mark.parametrize("name", names_of("bnn"))
def test_divergences_of_networks(name: str) -> None:
    case = BNNCase(name)
    model, noise = network(case), network_noise(case)
    chain = model._propagate_inducing([tf.constant(z) for z in noise])
    parts = zip(chain.conditionals, chain.draws, chain.log_ratios, strict=True)
    for i, (conditional, weights, hyper) in enumerate(parts, start=1):
        assert_allclose(conditional.log_ratio(weights), case[f"out/L{i}/logPQ"], RTOL)
        assert_allclose(*_like(conditional.prior_kl(), case[f"out/L{i}/kl"]), RTOL)
        assert_allclose(*_like(hyper, case[f"out/L{i}/hyper_logPQ"]), RTOL)
    bound = model.elbo((case["X"], case["Y"]), noise)
    assert_allclose(bound, np.mean(case["out/elbo"]), RTOL)


@pytest.mark.parametrize(
    "name", ["bnn_neal_shared", "bnn_scale_paper_channel", "lbnn_neal_channel"]
)
def test_gradients_of_networks(name: str) -> None:
    """By finite differences along random directions, the draws fixed."""
    case = BNNCase(name)
    model, noise, data = network(case), network_noise(case), (case["X"], case["Y"])
    rng = np.random.default_rng(0)
    variables = model.trainable_variables
    objective = tf.function(lambda: model.elbo(data, noise), autograph=False)
    with tf.GradientTape() as tape:
        value = objective()
    slopes = tape.gradient(value, variables)
    for variable, slope in zip(variables, slopes, strict=True):
        direction = rng.standard_normal(variable.shape)
        ends = []
        for step in (1e-5, -2e-5, 1e-5):
            variable.assign_add(step * direction)
            ends.append(float(objective()))
        difference = (ends[0] - ends[1]) / 2e-5
        assert_allclose(np.sum(slope * direction), difference, 1e-5, 1e-5, err_msg=variable.name)


# ---------------------------------------------------------------- factorised layers


@pytest.mark.parametrize("name", names_of("factorised"))
def test_factorised_layers(name: str) -> None:
    case = BNNCase(name)
    T, D = case["mean_scaled"].shape
    layer = BayesianDense(T, case["prior"], bias=False)
    layer.connect((D,))
    q = FactorisedWeights(WeightSpec(T, D))
    q.scaled_mean.assign(case["mean_scaled"])
    q.log_variance.assign(case["log_var_rel"])
    conditional = q.condition(None, layer.prior.draw([], layer.fan_in).precision)
    weights = conditional.sample((case["eps"],))
    assert_allclose(weights, case["out/W"], RTOL)
    assert_allclose(conditional.log_ratio(weights), case["out/logPQ"], RTOL)
    assert_allclose(conditional.prior_kl(), [case["out/kl"]], RTOL)
    mean, variance = conditional.moments(layer.features(case["X"][None]))
    assert_allclose(mean[0], case["out/lr_mean"], RTOL)
    assert_allclose(variance[0], case["out/lr_var"], RTOL)
    drawn = mean + tf.sqrt(variance) * case["eps_pre"]
    assert_allclose(drawn, case["out/lr_preact"], RTOL)


# ---------------------------------------------------------------- convolutions


@pytest.mark.parametrize("name", names_of("conv"))
def test_convolutions(name: str) -> None:
    case = BNNCase(name)
    layer, q, noise = conv_layer(case)
    images = tf.constant(channels_last(case["U_in"]))[None]
    scaled = layer.design(images).scale(tf.sqrt(case["lam"])[None])
    assert_allclose(scaled.gram()[0, 0], case["out/XLX"], RTOL, 1e-10)
    roots = np.repeat(np.sqrt(case["lam"]), layer.num_positions)
    V = channels_last(case["V"]).reshape([-1, layer.num_outputs]).T
    assert_allclose(scaled.project(roots * V[None])[0].numpy().T, case["out/XLV"], RTOL, 1e-10)

    hyper = layer.prior.draw([tf.constant(z) for z in noise], layer.fan_in)
    conditional = q.condition(layer.design(images), hyper.precision)
    weights = conditional.sample((tf.constant(case["Z"]),))
    assert_allclose(weights, case["out/W"], RTOL, 1e-10)
    eye = tf.eye(layer.fan_in, dtype=tf.float64)[None]
    mean, covariance = conditional.joint_moments(eye)
    assert_allclose(*_like(tf.transpose(mean, [0, 2, 1]), case["out/post_mean"]), RTOL, 1e-10)
    assert_allclose(*_like(covariance[:, 0], case["out/post_cov"]), RTOL, 1e-12)
    assert_allclose(conditional.log_ratio(weights), case["out/logPQ"], RTOL)
    assert_allclose(*_like(conditional.prior_kl(), case["out/kl"]), RTOL)
    assert_allclose(*_like(hyper.log_ratio, case["out/hyper_logPQ"]), RTOL)
    for inputs, outputs in (("U_in", "out/U"), ("F_in", "out/F")):
        values = layer.apply(tf.constant(channels_last(case[inputs]))[None], weights)
        assert_allclose(values, channels_last(case[outputs]), RTOL, 1e-10)


# ---------------------------------------------------------------- laws of precisions


@pytest.mark.parametrize("name", names_of("wishart"))
def test_wishart(name: str) -> None:
    case = BNNCase(name)
    size = case["T"].shape[-1]
    log_factor = Bartlett(case["nu"], size).log_prob(np.swapaxes(case["T"], 1, 2))
    assert_allclose(log_factor, case["out/logp_T"], RTOL)
    assert_allclose(log_factor - case["out/log_jac"], case["out/logp_Sigma"], RTOL)
    scale = np.broadcast_to(np.linalg.cholesky(case["iw_Psi"]), case["T"].shape)
    log_density = InverseWishart(case["nu"], scale).log_prob(case["iw_X"])
    assert_allclose(log_density, case["out/logp_iw"], RTOL)


@pytest.mark.parametrize("name", names_of("gamma_scale"))
def test_scales(name: str) -> None:
    case = BNNCase(name)
    for s, a, b, expected in zip(
        case["s"], case["alpha"], case["beta"], case["out/logPQ"], strict=True
    ):
        prior = ScalePrior()
        prior.concentration.assign(a)
        prior.rate.assign(b)
        normals = gamma_normals(np.array(s), 2.0 + a, 2.0 + b)
        draw = prior.draw([tf.reshape(tf.constant(normals), [1, 1, 1])], 7)
        assert_allclose(draw.precision.precision, [7 * s], RTOL)
        assert_allclose(draw.log_ratio, [expected], RTOL)


def _like(actual: tf.Tensor, expected: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where one value stands for all draws."""
    return np.broadcast_to(actual, expected.shape), expected


def test_every_case_is_tested() -> None:
    kinds = ["dgp", "bnn", "factorised", "conv", "wishart", "gamma_scale"]
    assert sum(len(names_of(kind)) for kind in kinds) == 23

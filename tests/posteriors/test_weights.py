"""Posteriors of weights: two forms of one thing, and brute force."""

from __future__ import annotations

from functools import partial
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_deep.layers import BayesianDense
from gpflow_deep.layers.bayesian.designs import ExplicitDesign
from gpflow_deep.layers.bayesian.precisions import Isotropic
from gpflow_deep.posteriors import (
    FactorisedWeights,
    GlobalInducingWeights,
    LocalInducingWeights,
    PriorWeights,
    WeightSpec,
)
from gpflow_deep.posteriors.pseudo_observations import FunctionSpace
from gpflow_deep.posteriors.weight_space import WeightSpace
from tests.models.contract import assert_close, randomise

T, D, M = 3, 4, 6
_RNG = np.random.default_rng(0)
U = tf.constant(_RNG.standard_normal([2, M, D]))
PRECISION = Isotropic(tf.constant([2.0, 5.0], tf.float64))
FEATURES = tf.constant(_RNG.standard_normal([2, 5, D]))

POSTERIORS: dict[str, Any] = {
    "global": GlobalInducingWeights,
    "separate": partial(GlobalInducingWeights, precision="separate"),
    "full": partial(GlobalInducingWeights, precision="full"),
    "function space": GlobalInducingWeights,
    "local": LocalInducingWeights,
    "factorised": FactorisedWeights,
    "prior": PriorWeights,
}


def _conditional(name: str) -> tuple[Any, Any]:
    """Of one set of inducing inputs and one precision."""
    inputs = U[:1, :3] if name == "function space" else U[:1]
    q = POSTERIORS[name](WeightSpec(T, D, inputs.shape[1]))
    randomise(q, scale=0.3)
    return q, q.condition(ExplicitDesign(inputs[:, None]), Isotropic(PRECISION.precision[:1]))


# ---------------------------------------------------------------- the two forms


@pytest.mark.parametrize("precision", ["shared", "separate", "full"])
def test_weight_space_is_function_space(precision: str) -> None:
    """The same pseudo-observations of fewer inputs than observations, and of these among zeros."""
    q = GlobalInducingWeights(WeightSpec(T, D, M), precision=precision)
    randomise(q, scale=0.3)
    design = ExplicitDesign(U[:, None])
    by_weights = q.observations.condition_weights(design, PRECISION)
    features = PRECISION.whiten(U)[:, None]
    K = tf.matmul(features, features, transpose_b=True)
    by_functions = q.observations.condition(K, features, tf.zeros([1, 1, 1], K.dtype))
    assert isinstance(by_weights, WeightSpace) and isinstance(by_functions, FunctionSpace)
    weights = tf.constant(_RNG.standard_normal([2, T, D]))
    assert_close(by_weights.log_ratio(weights), by_functions.log_ratio(weights))
    assert_close(by_weights.prior_kl(), by_functions.prior_kl())
    assert_close(by_weights.moments(FEATURES), by_functions.moments(FEATURES))
    joint = by_weights.joint_moments(FEATURES), by_functions.joint_moments(FEATURES)
    assert_close(*joint)


@pytest.mark.parametrize("precision", ["shared", "separate", "full"])
def test_one_design_is_that_of_every_draw(precision: str) -> None:
    q = GlobalInducingWeights(WeightSpec(T, D, M), precision=precision)
    randomise(q, scale=0.3)
    one = q.observations.condition_weights(ExplicitDesign(U[:1, None]), PRECISION)
    copies = ExplicitDesign(tf.repeat(U[:1, None], 2, axis=0))
    assert_close(one, q.observations.condition_weights(copies, PRECISION))


def test_the_smaller_form_is_taken() -> None:
    for count, kind in ((M, WeightSpace), (3, FunctionSpace)):
        q = GlobalInducingWeights(WeightSpec(T, D, count))
        white = q.condition(ExplicitDesign(U[:, None, :count]), PRECISION).white
        assert isinstance(white, kind)
        assert len(q.noise_shapes(2)) == (1 if kind is WeightSpace else 2)


def test_images_share_the_precision_of_their_positions() -> None:
    spec = WeightSpec(T, D, num_inducing=2, num_positions=3)
    q = GlobalInducingWeights(spec)
    other = GlobalInducingWeights(WeightSpec(T, D, M))
    randomise(q)
    other.observations.assign_pseudo_outputs(q.observations.pseudo_outputs)
    other.observations.assign_precision(np.repeat(q.observations.precision_diagonal[0], 3))

    class Images(ExplicitDesign):
        """Three rows an image."""

        def scale(self, roots: tf.Tensor) -> ExplicitDesign:
            return ExplicitDesign(self.matrix * tf.repeat(roots, 3, axis=1)[..., None])

    one = q.observations.condition_weights(Images(U[:, None]), PRECISION)
    assert_close(one, other.observations.condition_weights(ExplicitDesign(U[:, None]), PRECISION))
    with pytest.raises(ValueError, match="precision: expected 'shared' or 'separate' for images"):
        GlobalInducingWeights(spec, precision="full")


# ---------------------------------------------------------------- draws


@pytest.mark.parametrize("name", POSTERIORS)
def test_draws_moments_and_divergences_agree(name: str) -> None:
    q, conditional = _conditional(name)
    shapes = q.noise_shapes(8000)
    noise = tuple(
        tf.random.stateless_normal(shape, [i, 3], dtype=tf.float64)
        for i, shape in enumerate(shapes)
    )
    weights = conditional.sample(noise)
    outputs = tf.matmul(FEATURES[:1], weights, transpose_b=True).numpy()  # [S, N, T]
    mean, variance = (x[0] for x in conditional.moments(FEATURES[:1]))
    error = outputs.std(axis=0) / np.sqrt(8000)
    assert (np.abs(outputs.mean(axis=0) - mean) < 4.5 * error).all()
    np.testing.assert_allclose(outputs.var(axis=0), variance, rtol=0.1)
    joint_mean, covariance = conditional.joint_moments(FEATURES[:1])
    assert_close(joint_mean[0], mean)
    diagonal = tf.linalg.matrix_transpose(tf.linalg.diag_part(covariance[0]))
    assert_close(np.broadcast_to(diagonal, variance.shape), variance)
    centred = (outputs - outputs.mean(axis=0)) / np.sqrt(variance)
    correlations = covariance[0] / np.einsum("nt,mt->tnm", *[np.sqrt(variance)] * 2)
    empirical = np.einsum("snt,smt->tnm", centred, centred) / 8000
    np.testing.assert_allclose(empirical, correlations, atol=0.07)
    ratios = np.broadcast_to(conditional.log_ratio(weights), [8000])
    np.testing.assert_allclose(
        np.broadcast_to(conditional.log_ratio(weights, noise), [8000]), ratios, atol=1e-7
    )
    error = ratios.std() / np.sqrt(8000) + 1e-12
    assert abs(ratios.mean() + conditional.prior_kl()[0]) < 4.5 * error


def test_single_precision() -> None:
    gpflow.config.set_default_float(np.float32)
    q = GlobalInducingWeights(WeightSpec(T, D, M))
    layer = BayesianDense(T, "scale")
    layer.connect((D - 1,))
    noise = [tf.zeros([2, 1, 1])]
    precision = layer.prior.draw(noise, layer.fan_in).precision
    conditional = q.condition(layer.design(tf.cast(U[:, :, 1:], tf.float32)), precision)
    for value in tf.nest.flatten([conditional.moments(layer.features(tf.zeros([2, 1, D - 1])))]):
        assert value.dtype == tf.float32


def test_draws_of_the_prior_keep_all_digits() -> None:
    noise = tf.constant(_RNG.standard_normal([2, T, D]))
    conditional = PriorWeights(WeightSpec(T, D)).condition(None, PRECISION)
    np.testing.assert_array_equal(conditional.sample((noise,)), PRECISION.unwhiten(noise))


def test_without_inducing_inputs() -> None:
    with pytest.raises(
        ValueError, match="inducing_inputs: expected some for GlobalInducingWeights"
    ):
        GlobalInducingWeights(WeightSpec(T, D))
    with pytest.raises(ValueError, match="expected another one than LocalInducingWeights"):
        LocalInducingWeights(WeightSpec(T, D, 2, 9))

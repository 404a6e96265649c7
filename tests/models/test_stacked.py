"""Families mixed layer by layer agree with the pure ones where theory says so."""

from __future__ import annotations

from functools import partial
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_deep as gd
from tests.models.contract import XNEW, YNEW, X, Y, assert_close, randomise

LIKELIHOOD = gpflow.likelihoods.Gaussian(0.1)
GAUSSIAN = partial(gd.posteriors.IndependentGaussian, whiten=True, initial_scale=0.3)


def _layers(seed: int = 0) -> list[gd.layers.GPLayer]:
    return gd.layers.build_layers(X, (2,), 1, 5, seed=seed)


def _copied(model: Any, other: Any) -> Any:
    gpflow.utilities.multiple_assign(model, gpflow.utilities.read_values(other))
    return model


def _amortized(layer: gd.layers.GPLayer, rule: str = "AR2") -> gd.models.AmortizedDeepGP:
    own = gd.layers.AmortizedGPLayer(layer.kernel, 3, layer.input_dim, layer.num_latent_gps)
    return gd.models.AmortizedDeepGP([own], LIKELIHOOD, amortization=rule)


PARTS = {
    "mean-field": lambda layer: gd.models.DeepGP([layer], LIKELIHOOD, gd.posteriors.MeanField),
    "global inducing": lambda layer: gd.models.GlobalInducingDeepGP([layer], LIKELIHOOD),
    "amortised": _amortized,
}


def _stack(below: str, above: str, **settings: Any) -> gd.models.StackedDeepGP:
    first, second = _layers()
    settings = {"num_data": len(X), "num_samples": 3, "num_prediction_samples": 8, **settings}
    model = gd.models.StackedDeepGP([PARTS[below](first), PARTS[above](second)], **settings)
    randomise(model)
    return model


def test_mean_field_parts_are_the_mean_field_model() -> None:
    stack = _stack("mean-field", "mean-field")
    layers = [layer for part in stack.parts for layer in part.layers]
    with pytest.warns(UserWarning, match="is built on layers of"):
        whole = gd.models.DeepGP(
            layers, LIKELIHOOD, gd.posteriors.MeanField, num_data=len(X), num_prediction_samples=8
        )
    for index, part in enumerate(stack.parts):
        whole.inducing_posterior.q_mu[index].assign(part.inducing_posterior.q_mu[0])
        whole.inducing_posterior.q_sqrt[index].assign(part.inducing_posterior.q_sqrt[0])
    noise = stack.draw_noise(len(X), seed=[0, 1])
    assert_close(stack.elbo((X, Y), noise), whole.elbo((X, Y), noise))
    assert_close(stack.predict_y(XNEW), whole.predict_y(XNEW))
    assert_close(
        stack.predict_f(XNEW)[1], tf.linalg.diag_part(stack.predict_f(XNEW, True)[1][0])[:, None]
    )


def _sum_of_four(seeds: tuple[int, int], **settings: Any) -> gd.models.StackedDeepGP:
    """Four layers that add a constant each, all but independent ones of unit variance."""
    parts = []
    for seed in seeds:
        layers = [
            gd.layers.GPLayer(
                gpflow.kernels.RBF(lengthscales=20.0), None, 1, gpflow.functions.Identity(1)
            )
            for _ in range(2)
        ]
        Z = np.linspace(-1.0, 1.0, 3)[:, None]
        parts.append(
            gd.models.GlobalInducingDeepGP(
                layers, LIKELIHOOD, Z, posterior=gd.posteriors.Prior, seed=seed
            )
        )
    return gd.models.StackedDeepGP(parts, **settings)


@pytest.mark.parametrize("seeds", [(0, 0), (0, 1)])
def test_parts_draw_inducing_outputs_of_their_own(seeds: tuple[int, int]) -> None:
    stack = _sum_of_four(seeds, num_prediction_samples=3000)
    X = np.linspace(-1.0, 1.0, 3)[:, None]
    # A chain of parts that drew the same has a variance of 6.
    for variance in (
        stack.predict_f(X)[1],
        stack.posterior().predict_f(X)[1],
        tf.linalg.diag_part(stack.predict_f(X, full_cov=True)[1][0])[:, None],
    ):
        np.testing.assert_allclose(variance, 4.0, atol=0.4)


def test_the_seed_of_the_whole_is_that_of_its_draws() -> None:
    X = np.linspace(-1.0, 1.0, 3)[:, None]

    def mean(**settings: Any) -> np.ndarray:
        return _sum_of_four((0, 0), num_prediction_samples=8, **settings).predict_f(X)[0].numpy()

    assert_close(mean(seed=1), mean(seed=1))
    assert np.abs(mean(seed=1) - mean(seed=2)).max() > 0.01


def test_inducing_outputs_drawn_or_integrated_out_are_one_posterior() -> None:
    """A layer of independent Gaussians under a global inducing one is the mean-field layer, on average."""
    first, second = _layers()
    build = partial(gd.models.GlobalInducingDeepGP, inducing="local", num_data=len(X))
    pure = build(
        [first, second], LIKELIHOOD, posterior=[GAUSSIAN, gd.posteriors.PseudoObservations]
    )
    randomise(pure)
    below = gd.models.DeepGP([first], LIKELIHOOD, gd.posteriors.MeanField)
    below.q_mu.assign(pure.inducing_posteriors[0].q_mu)
    below.q_sqrt.assign(pure.inducing_posteriors[0].q_sqrt)
    above = build([second], LIKELIHOOD, posterior=gd.posteriors.PseudoObservations)
    above.inducing_posteriors[0] = pure.inducing_posteriors[1]
    stack = gd.models.StackedDeepGP([below, above], num_data=len(X))
    S = 1000
    values = [
        model.elbo((X, Y), model.draw_noise(len(X), S, seed=[0, 1])) for model in (stack, pure)
    ]
    assert_close(values[0], values[1], rtol=5e-3)
    means = [model.predict_f_mixture(XNEW, S).means.numpy() for model in (stack, pure)]
    assert_close(means[0].mean(0), means[1].mean(0), rtol=0, atol=0.1 * means[1].std(0).max())


@pytest.mark.parametrize("below", PARTS)
@pytest.mark.parametrize("above", PARTS)
def test_any_family_stands_on_any_other(below: str, above: str) -> None:
    model = _stack(below, above)
    assert len(model.layers) == 2
    noise = model.draw_noise(len(X), seed=[0, 1])
    with tf.GradientTape() as tape:
        loss = -model.elbo((X, Y), noise)
    slopes = tape.gradient(loss, model.trainable_variables)
    for variable, slope in zip(model.trainable_variables, slopes, strict=True):
        assert np.all(np.isfinite(tf.convert_to_tensor(slope))) and np.any(slope), variable.name
    posterior = model.posterior()
    assert_close(posterior.predict_y(XNEW), model.predict_y(XNEW))
    assert model.predict_log_density((XNEW, YNEW)).shape == (6,)
    assert model.predict_f_samples(XNEW, 4, full_cov=False).shape == (4, 6, 1)
    if "amortised" not in (below, above):
        assert model.predict_f(XNEW, full_cov=True)[1].shape == (1, 6, 6)
        assert model.predict_f_samples(XNEW, 4).shape == (4, 6, 1)
    result = gd.training.fit(model, (X, Y), steps=2, batch_size=10, progress=False)
    assert result.steps == 2


def test_the_number_of_draws_is_the_whole_s() -> None:
    """Whatever a part predicts with by itself."""
    kernels = [gpflow.kernels.Matern32() for _ in range(3)]
    Z = np.random.default_rng(0).normal(size=(3, 5, 2))
    layers = [gd.layers.GPLayer(kernel, z, 2) for kernel, z in zip(kernels, Z, strict=True)]
    above = gd.models.GlobalInducingDeepGP(layers[1:], LIKELIHOOD, num_prediction_samples=4)
    parts = [PARTS["mean-field"](layers[0]), above]
    model = gd.models.StackedDeepGP(parts, num_prediction_samples=3)
    posterior, variance = model.posterior(), model.predict_f(XNEW)[1]
    for predictor in (model, posterior):
        covariance = predictor.predict_f(XNEW, full_cov=True)[1]
        assert_close(tf.linalg.diag_part(covariance), tf.transpose(variance))


@pytest.mark.parametrize("part", PARTS)
def test_a_stack_of_one_part_of_one_layer_is_that_part(part: str) -> None:
    layer, _ = _layers()
    alone = PARTS[part](layer)
    stack = gd.models.StackedDeepGP([alone])
    randomise(alone)
    for noise in (None, []):
        assert_close(stack.predict_y(XNEW, noise=noise), alone.predict_y(XNEW))
    assert stack.predict_f_mixture(XNEW, 7).means.shape == (1, 6, 2)
    if part != "amortised":
        assert_close(stack.predict_f(XNEW, full_cov=True), alone.predict_f(XNEW, full_cov=True))


def test_the_divergence_and_the_pairs_are_those_of_the_parts() -> None:
    stack = _stack("mean-field", "mean-field")
    expected = sum(float(part.prior_kl()) for part in stack.parts)
    assert expected > 0.1
    assert_close(stack.prior_kl(), expected)
    noise = stack.draw_noise(len(X), seed=[0, 1])
    untempered = stack.maximum_log_likelihood_objective((X, Y), noise, tempering=0.0)
    assert_close(untempered - stack.elbo((X, Y), noise), expected)
    pairs = [pair for part in stack.parts for pair in part.inducing_posterior.variational_params]
    assert len(pairs) == 2
    for own, pair in zip(stack.variational_params, pairs, strict=True):
        assert own[0] is pair[0] and own[1] is pair[1]
    loss = stack.training_loss_closure((X, Y), compile=False, seed=0)
    before = float(loss())
    for pair in stack.variational_params:  # GPflow's takes pairs of one shape at a time
        gpflow.optimizers.NaturalGradient(0.01).minimize(loss, [pair])
    assert float(loss()) < before


def test_parts_without_a_divergence_or_pairs_say_so() -> None:
    stack = _stack("mean-field", "global inducing")
    assert stack.prior_kl().shape == ()
    with pytest.raises(NotImplementedError, match="which pseudo-observations have not"):
        _ = stack.variational_params
    stack = _stack("amortised", "mean-field")
    with pytest.raises(NotImplementedError, match="AmortizedDeepGP has other parameters"):
        _ = stack.variational_params
    with pytest.raises(NotImplementedError, match="prior_kl: .* does not depend on inputs"):
        stack.prior_kl()


def test_bad_parts() -> None:
    first, second = _layers()
    below = PARTS["mean-field"](first)
    with pytest.raises(TypeError, match="parts: expected models that travel by draws"):
        gd.models.StackedDeepGP([])
    with pytest.raises(ValueError, match="parts: .* got one of them twice"):
        gd.models.StackedDeepGP([below, below])
    other = gd.models.DeepGP([second], gpflow.likelihoods.Gaussian())
    with pytest.raises(ValueError, match="parts: .* one and the same likelihood"):
        gd.models.StackedDeepGP([below, other])
    with pytest.raises(ValueError, match="parts: .* by draws .* got sites"):
        gd.models.StackedDeepGP([_amortized(first, "AR2P"), PARTS["mean-field"](second)])
    sampled = gd.models.GlobalInducingDeepGP([second], LIKELIHOOD, estimator="monte_carlo")
    with pytest.raises(ValueError, match="parts: .* integrate their last layer out"):
        gd.models.StackedDeepGP([below, sampled])
    latent = gd.models.LatentVariableDeepGP(_layers()[1:], LIKELIHOOD, 1)
    with pytest.raises(ValueError, match=r"parts: .* latent variables \(LatentVariableDeepGP\)"):
        gd.models.StackedDeepGP([below, latent])
    for build in (
        partial(gd.models.GlobalInducingDeepGP, kl_weight=0.5),
        partial(gd.models.GlobalInducingDeepGP, kl_weight=lambda: 0.5),
        partial(gd.models.DeepGP, predictive_objective=True),
    ):
        weighted = build(_layers()[1:], LIKELIHOOD)
        with pytest.raises(ValueError, match="parts: .* without kl_weight and predictive_obj"):
            gd.models.StackedDeepGP([below, weighted])
    later = gd.models.GlobalInducingDeepGP(_layers()[1:], LIKELIHOOD)
    whole = gd.models.StackedDeepGP([below, later])
    later.kl_weight = 0.5
    with pytest.raises(ValueError, match="parts: .* without kl_weight and predictive_obj"):
        whole.elbo((X, Y))

"""Predictions of every family's models and posteriors: shapes, batches, parts, caches, export."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.posteriors import PrecomputeCacheType

import gpflow_deep as gd
from gpflow_deep.models import DeepGPModel, GlobalInducingBNN, GlobalInducingDeepGP
from gpflow_deep.posteriors import mixture_predictor
from tests.models.contract import (
    COMPILED_FAMILIES,
    XNEW,
    YNEW,
    X,
    assert_close,
    data,
    differ,
    is_joint,
    make_model,
    predictions,
    randomise,
    variational,
)


def test_predictions_are_deterministic(model: DeepGPModel) -> None:
    for predict in predictions(model).values():
        assert_close(predict(model, XNEW), predict(model, XNEW), rtol=0, atol=0)


def test_functions_are_drawn_a_part_at_a_time(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as there is memory for, each of them another function."""
    model = make_model(family, output_dim=2)
    if not is_joint(model):
        return
    monkeypatch.setattr(
        mixture_predictor, "_NUMBERS", 2 * mixture_predictor._COPIES * len(XNEW) ** 2
    )
    draw = partial(model.predict_f_samples, XNEW, 5)
    ways = [draw]
    if family in ("stripes-and-arrow", "global-inducing"):  # draws of points, and of all else too
        ways.append(tf.function(draw, autograph=False))
    for way in ways:
        draws = way()
        assert draws.shape == (5, len(XNEW), 2)
        assert len(np.unique(draws[:, 0, 0])) == 5
    monkeypatch.undo()
    seeds = []
    for _ in range(2):  # all at once
        tf.random.set_seed(0)
        seeds.append(draw())
    assert_close(*seeds, rtol=0, atol=0)


def test_functions_at_more_points_than_fit_into_memory_are_refused() -> None:
    """Before there is any of them."""
    model = make_model("mean-field")
    for predict in (model.predict_f_samples, model.posterior().predict_f_samples):
        with pytest.raises((ValueError, MemoryError), match="Xnew: .*400,000 points"):
            predict(np.zeros([400_000, 2]))


@pytest.mark.parametrize("method", ["predict_f", "predict_y"])
def test_shapes_and_batches(family: str, method: str) -> None:
    model = make_model(family, output_dim=2)
    predict = getattr(model, method)
    whole = predict(XNEW)
    batched = predict(XNEW.reshape(2, 3, 2))
    for one, other in zip(whole, batched, strict=True):
        assert one.shape == (6, 2) and other.shape == (2, 3, 2)
        np.testing.assert_allclose(tf.reshape(other, [6, 2]), one, rtol=1e-9)
    # A point's prediction does not depend on the points beside it.
    assert_close([x[2:3] for x in whole], predict(XNEW[2:3]))
    Ynew = data(6, output_dim=2)[1]
    densities = model.predict_log_density((XNEW, Ynew))
    assert densities.shape == (6,)
    batch = XNEW.reshape(2, 3, 2), Ynew.reshape(2, 3, 2)
    assert_close(tf.reshape(model.predict_log_density(batch), [6]), densities)


def test_covariances_have_the_variances_on_their_diagonals(family: str) -> None:
    model = make_model(family, output_dim=2)
    variance = model.predict_f(XNEW)[1]
    outputs = model.predict_f(XNEW, full_output_cov=True)[1]
    assert outputs.shape == (6, 2, 2)
    assert_close(tf.linalg.diag_part(outputs), variance)
    batch = model.predict_f(XNEW.reshape(2, 3, 2), full_output_cov=True)[1]
    assert_close(tf.reshape(batch, [6, 2, 2]), outputs)
    if is_joint(model):
        points = model.predict_f(XNEW, full_cov=True)[1]
        assert points.shape == (2, 6, 6)
        assert_close(points, tf.linalg.matrix_transpose(points))
        assert np.linalg.eigvalsh(points).min() > -1e-9
        whole = model.predict_f(XNEW, full_cov=True, full_output_cov=True)[1].numpy()
        assert whole.shape == (6, 2, 6, 2)
        assert_close(np.einsum("npmp->pnm", whole), points)
        assert_close(whole, whole.transpose(2, 3, 0, 1))
        assert np.linalg.eigvalsh(whole.reshape(12, 12)).min() > -1e-9
    else:
        for predict in (model.predict_f, model.predict_f_samples):
            with pytest.raises(NotImplementedError, match="full_cov.*inducing outputs of its own"):
                predict(XNEW, full_cov=True)
    with pytest.raises(NotImplementedError, match="full_cov"):
        model.predict_y(XNEW, full_cov=True)
    with pytest.raises(NotImplementedError, match="full_cov"):
        model.predict_log_density((XNEW, YNEW), full_cov=True)


@pytest.mark.parametrize("num_draws", [2, 9])
def test_joint_predictions_have_the_marginal_ones_on_their_diagonals(
    family: str, num_draws: int
) -> None:
    model = make_model(family, output_dim=2, num_prediction_samples=num_draws)
    if not is_joint(model):
        return
    mean, variance = model.predict_f(XNEW)
    for full_output_cov, diagonal in ((False, "pnn->np"), (True, "npnp->np")):
        joint = model.predict_f(XNEW, full_cov=True, full_output_cov=full_output_cov)
        assert_close(joint[0], mean, rtol=1e-12)
        assert_close(np.einsum(diagonal, joint[1]), variance, rtol=1e-12)
        batches = model.predict_f(XNEW.reshape(2, 3, 2), True, full_output_cov)
        assert batches[1].shape[0] == 2
        assert_close(batches[0], tf.reshape(mean, [2, 3, 2]), rtol=1e-12)
        assert_close(np.einsum(f"b{diagonal[:-2]}bnp", batches[1]).reshape(6, 2), variance)


def test_draws_in_batches(family: str) -> None:
    model = make_model(family, output_dim=2)
    full_cov = is_joint(model)
    batch = XNEW.reshape(2, 3, 2)
    assert model.predict_f_samples(batch, 4, full_cov=full_cov).shape == (2, 4, 3, 2)
    assert model.predict_f_samples(batch, full_cov=full_cov).shape == (2, 3, 2)


def test_given_draws(model: DeepGPModel) -> None:
    """Predictions are a function of them; given the draws, a pass through the layers has the components."""
    if getattr(model, "sites", None) is not None or not hasattr(model, "draw_noise"):
        for predict in (model.predict_f, model.predict_y, model.predict_f_mixture):
            with pytest.raises(ValueError, match="noise: expected none"):
                predict(XNEW, noise=[np.zeros([2, 1, 2])])
        return
    noise = model.draw_noise(len(XNEW), num_samples=3, seed=[0, 1])
    mixture = model.predict_f_mixture(XNEW, noise=noise)
    assert mixture.means.shape == (3, 6, 1)
    assert_close(model.predict_f_mixture(XNEW, noise=noise), mixture, rtol=0, atol=0)
    assert_close(model.predict_f(XNEW, noise=noise)[0], tf.reduce_mean(mixture.means, axis=0))
    assert differ(model.predict_y(XNEW, noise=noise), model.predict_y(XNEW))
    data = XNEW, YNEW
    assert differ(model.predict_log_density(data, noise=noise), model.predict_log_density(data))
    if isinstance(
        model, (GlobalInducingDeepGP, GlobalInducingBNN)
    ):  # draws the last layer's inducing outputs, too
        return
    outputs = model.propagate(XNEW, noise=noise)
    partly = model.propagate(XNEW, noise=noise[:1])
    assert_close(outputs[-1].mean, mixture.means)
    assert_close(partly[0].sample, outputs[0].sample)


@pytest.mark.parametrize("family", COMPILED_FAMILIES)
def test_hidden_layers_of_unknown_shapes(model: DeepGPModel) -> None:
    spec = tf.TensorSpec(shape=None, dtype=tf.float64)
    density = tf.function(
        lambda X, Y: model.predict_log_density((X, Y)), input_signature=[spec, spec]
    )
    assert_close(density(XNEW, YNEW), model.predict_log_density((XNEW, YNEW)))
    objective = tf.function(
        lambda X, Y: model.maximum_log_likelihood_objective((X, Y)), input_signature=[spec, spec]
    )
    assert np.isfinite(objective(XNEW, YNEW))


@pytest.mark.parametrize("full_cov", [False, True])
def test_function_draws(family: str, full_cov: bool) -> None:
    model = make_model(family, output_dim=2)
    full_cov = full_cov and is_joint(model)
    assert model.predict_f_samples(XNEW, full_cov=full_cov).shape == (6, 2)
    draws = model.predict_f_samples(XNEW, num_samples=4, full_cov=full_cov)
    assert draws.shape == (4, 6, 2)
    assert np.isfinite(draws).all()
    assert differ(draws, model.predict_f_samples(XNEW, tf.constant(4), full_cov=full_cov))
    tf.random.set_seed(1)
    first = model.predict_f_samples(XNEW, 4, full_cov=full_cov)
    tf.random.set_seed(1)
    assert_close(model.predict_f_samples(XNEW, 4, full_cov=full_cov), first, rtol=0, atol=0)


def test_mixture_has_the_moments_of_predictions(model: DeepGPModel) -> None:
    mixture = model.predict_f_mixture(XNEW, num_samples=5)
    S = mixture.means.shape[0]
    assert mixture.means.shape == mixture.variances.shape == (S, 6, 1)
    assert mixture.log_weights.shape == (S,)
    assert_close(tf.reduce_logsumexp(mixture.log_weights), 0.0)
    for mixture, (mean, variance) in [
        (model.predict_f_mixture(XNEW), model.predict_f(XNEW)),
        (model.predict_y_mixture(XNEW), model.predict_y(XNEW)),
    ]:
        weights = np.exp(mixture.log_weights)[:, None, None]
        average = (weights * mixture.means).numpy().sum(0)
        second = (weights * (mixture.variances + mixture.means**2)).numpy().sum(0)
        assert_close((average, second - average**2), (mean, variance))


def test_log_density_is_that_of_the_mixture(model: DeepGPModel) -> None:
    means, variances, log_weights = model.predict_y_mixture(XNEW)
    components = tfp.distributions.Normal(means, tf.sqrt(variances)).log_prob(YNEW)[..., 0]
    expected = tf.reduce_logsumexp(components + log_weights[:, None], axis=0)
    assert_close(model.predict_log_density((XNEW, YNEW)), expected)


@pytest.mark.parametrize("family", COMPILED_FAMILIES)
def test_predictions_in_parts_and_of_unknown_size(family: str, tmp_path: Path) -> None:
    """More points than are carried through the layers at once: eager, compiled, and saved."""
    model = make_model(family, num_prediction_samples=4096)  # four points at once
    single = [model.predict_y(x[None]) for x in XNEW]
    expected = [np.concatenate(pieces) for pieces in zip(*single, strict=True)]
    assert_close(model.predict_y(XNEW), expected)
    signature = [tf.TensorSpec([None, 2], tf.float64)]
    predict = tf.function(model.predict_y, input_signature=signature, autograph=False)
    assert_close(predict(XNEW), expected)
    assert_close(predict(XNEW[:4]), [x[:4] for x in expected])
    assert_close(predict(XNEW[:1]), [x[:1] for x in expected])
    for mean_or_variance in predict(XNEW[:0]):
        assert mean_or_variance.shape == (0, 1)
    model.predict = predict
    tf.saved_model.save(model, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    assert_close(loaded.predict(XNEW), expected)


def test_classes_of_points_of_unknown_number() -> None:
    """GPflow does not know how many probabilities Softmax has before it has computed them."""
    layers = gd.layers.build_layers(X, (2,), 3, num_inducing=5)
    model = gd.models.DeepGP(layers, gpflow.likelihoods.Softmax(3), num_prediction_samples=4096)
    signature = [tf.TensorSpec([None, 2], tf.float64)]
    predict = tf.function(model.predict_y, input_signature=signature, autograph=False)
    for count in (0, 1, len(XNEW)):
        mean, variance = predict(XNEW[:count])
        assert mean.shape == variance.shape == (count, 3)
        np.testing.assert_allclose(np.sum(mean, axis=1), 1.0)


def test_no_points(model: DeepGPModel) -> None:
    for mean_or_variance in model.predict_y(XNEW[:0]):
        assert mean_or_variance.shape == (0, 1)
    assert model.predict_log_density((XNEW[:0], YNEW[:0])).shape == (0,)
    assert model.predict_f_samples(XNEW[:0], 3, full_cov=is_joint(model)).shape == (3, 0, 1)
    if is_joint(model):
        assert model.predict_f(XNEW[:0], full_cov=True)[1].shape == (1, 0, 0)


@pytest.mark.parametrize("family", ["global-inducing"])  # of the others others' tests have such
def test_whole_functions_at_points_of_unknown_number(model: DeepGPModel) -> None:
    signature = [tf.TensorSpec([None, 2], tf.float64)]

    @tf.function(input_signature=signature, autograph=False)
    def compiled(X: tf.Tensor) -> tf.Tensor:
        return model.predict_f(X, full_cov=True)[1]

    for count in (6, 2):
        assert_close(compiled(XNEW[:count]), model.predict_f(XNEW[:count], full_cov=True)[1])


@pytest.mark.parametrize("family", ["stripes-and-arrow", "global-inducing", "sampled"])
def test_saved_posterior(model: DeepGPModel, tmp_path: Path) -> None:
    """Of those that keep what they predict with in different ways; models are saved above."""
    module = tf.Module()
    module.posterior = model.posterior()
    module.predict = tf.function(
        module.posterior.predict_y,
        input_signature=[tf.TensorSpec([None, 2], tf.float64)],
        autograph=False,
    )
    tf.saved_model.save(module, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    assert_close(loaded.predict(XNEW), model.predict_y(XNEW))


# ---------------------------------------------------------------- the cached posterior


@pytest.mark.parametrize("family", COMPILED_FAMILIES)
def test_posterior_predicts_like_the_model(model: DeepGPModel) -> None:
    posteriors = [model.posterior(cache) for cache in PrecomputeCacheType]
    for predict in predictions(model).values():
        expected = predict(model, XNEW)
        for posterior in posteriors:
            assert_close(predict(posterior, XNEW), expected)
    for full_cov in (False, True) if is_joint(model) else (False,):
        draws = []
        for predictor in (model, *posteriors):
            tf.random.set_seed(1)
            draws.append(predictor.predict_f_samples(XNEW, 3, full_cov=full_cov))
        for other in draws[1:]:
            assert_close(other, draws[0])


@pytest.mark.parametrize("family", COMPILED_FAMILIES)
def test_posterior_follows_the_model_when_told_to(model: DeepGPModel) -> None:
    tensor, variable, nothing = (
        model.posterior(cache)
        for cache in (
            PrecomputeCacheType.TENSOR,
            PrecomputeCacheType.VARIABLE,
            PrecomputeCacheType.NOCACHE,
        )
    )
    signature = [tf.TensorSpec([None, 2], tf.float64)]
    compiled = tf.function(variable.predict_f, input_signature=signature, autograph=False)
    before = model.predict_f(XNEW)
    assert_close(compiled(XNEW), before)
    if variational(model) is not None:  # else there is nothing that could be computed before
        jointly_before = model.predict_f(XNEW, full_cov=True)
        randomise(variational(model))
        after = model.predict_f(XNEW)
        assert differ(after, before)
        for posterior in (tensor, variable):
            assert_close(posterior.predict_f(XNEW), before)
            assert_close(posterior.predict_f(XNEW, full_cov=True), jointly_before)
            assert_close(posterior.fused_predict_f(XNEW), after)
        assert_close(nothing.predict_f(XNEW), after)
    randomise(model)
    after = model.predict_f(XNEW)
    for posterior in (tensor, variable):
        posterior.update_cache()
        assert_close(posterior.predict_f(XNEW), after)
    assert_close(compiled(XNEW), after)
    assert compiled.experimental_get_tracing_count() == 1


def _one_layer_of_two_gps() -> gd.models.DeepGP:
    Z = np.linspace(-1.0, 1.0, 10).reshape(5, 2)
    layer = gd.layers.GPLayer(gpflow.kernels.SquaredExponential(), Z, num_latent_gps=2)
    model = gd.models.DeepGP(
        [layer], gpflow.likelihoods.Gaussian(0.1), posterior=gd.posteriors.MeanField
    )
    model.q_mu.assign(np.arange(10.0).reshape(5, 2))
    return model


_REPLACEMENTS: dict[str, Callable[[], Any]] = {
    "kernel": lambda: gpflow.kernels.Matern32(lengthscales=0.3),
    "kernel.lengthscales": lambda: gpflow.Parameter(0.3),
    "likelihood": lambda: gpflow.likelihoods.Gaussian(2.0),
    "mean_function": lambda: gpflow.functions.Constant(np.ones(2)),
    "q_mu": lambda: gpflow.Parameter(-np.ones((5, 2))),
    "whiten": lambda: False,
}


@pytest.mark.parametrize("name", _REPLACEMENTS)
def test_posterior_without_cache_follows_what_is_replaced(name: str) -> None:
    model = _one_layer_of_two_gps()
    posterior = model.posterior(PrecomputeCacheType.NOCACHE)
    # With a cache they would be compiled from the second on.
    before = [posterior.predict_y(XNEW) for _ in range(3)]
    *path, attribute = name.split(".")
    setattr(getattr(model, path[0]) if path else model, attribute, _REPLACEMENTS[name]())
    after = model.predict_y(XNEW)
    assert differ(after, before[0])
    assert_close(posterior.predict_y(XNEW), after)


def test_posterior_follows_settings_of_predictions_and_likelihood() -> None:
    model = gd.models.DeepGP(
        gd.layers.build_layers(XNEW, hidden_dims=(2,), num_inducing=5),
        gpflow.likelihoods.Gaussian(0.1),
    )
    randomise(variational(model))
    posterior = model.posterior()
    for settings in ({}, {"num_prediction_samples": 3}, {"seed": 5}):
        for attribute, value in settings.items():
            setattr(model, attribute, value)
        for _ in range(3):
            assert_close(posterior.predict_y(XNEW), model.predict_y(XNEW))
    model.likelihood = gpflow.likelihoods.Gaussian(2.0)
    assert_close(posterior.predict_y(XNEW), model.predict_y(XNEW))


def test_posterior_of_another_cache(model: DeepGPModel) -> None:
    expected = model.predict_f(XNEW)
    posterior = model.posterior("variable")
    for cache in (*PrecomputeCacheType, *reversed(PrecomputeCacheType)):
        posterior.update_cache(cache)
        assert_close(posterior.predict_f(XNEW), expected)
    for act in (model.posterior, posterior.update_cache):
        with pytest.raises(ValueError, match="precompute_cache.*'tensor'.*'all'"):
            act("all")


@pytest.mark.parametrize("family", COMPILED_FAMILIES)
def test_a_posterior_is_compiled_once_for_all_numbers_of_points(model: DeepGPModel) -> None:
    """From the second call on; what it says stays what the model says, also when both change."""
    calls = 0
    passage = model._passage

    def counted(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        return passage(*args, **kwargs)

    model._passage = counted
    posterior = model.posterior()
    inputs = np.concatenate([XNEW, X])
    for size in (6, 6, 1, 26):
        before = calls
        actual = posterior.predict_y(inputs[:size])
        traced = calls - before
        assert_close(actual, model.predict_y(inputs[:size]), rtol=1e-9)
        assert traced == (1 if size == 6 else 0)
    assert_close(copy.deepcopy(posterior).predict_y(XNEW), model.predict_y(XNEW), rtol=1e-9)
    randomise(model, seed=3)
    posterior.update_cache()
    for _ in range(2):
        assert_close(posterior.predict_y(XNEW), model.predict_y(XNEW), rtol=1e-9)

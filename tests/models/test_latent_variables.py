"""Deep GPs with latent variables: the bound, its gradients, predictions, and what they are for."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import kernels
from gpflow.keras import tf_keras
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp, roots_hermitenorm
from scipy.stats import norm

import gpflow_deep as gd
from gpflow_deep.likelihoods.monte_carlo import nodes_of_seed
from gpflow_deep.models.importance import (
    AppendedLatents,
    ImportanceLatents,
    LatentPassage,
    SharedFunctions,
)
from gpflow_deep.models.passage import walk
from tests.models.contract import assert_close, randomise

N, D, W = 4, 2, 1
NOISE = 0.3
JITTER = 1e-6


def _data(num_points: int = N) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((num_points, D))
    return X, np.sign(rng.standard_normal((num_points, 1))) + 0.3 * X[:, :1]


X, Y = _data()
XNEW, YNEW = X + 0.2, -Y


def _layers(
    hidden_dims: tuple[int, ...] = (2,), latent_dim: int = W, **options: Any
) -> list[gd.layers.GPLayer]:
    return gd.layers.build_layers(X, hidden_dims, num_inducing=3, latent_dim=latent_dim, **options)


def _model(
    hidden_dims: tuple[int, ...] = (2,),
    K: int = 3,
    S: int = 2,
    layers: Any = None,
    latents: Any = W,
    **options: Any,
) -> gd.models.LatentVariableDeepGP:
    """A small model, its parameters moved from their initial values; its functions are uncertain."""
    model = gd.models.LatentVariableDeepGP(
        layers or _layers(hidden_dims),
        gpflow.likelihoods.Gaussian(NOISE),
        latents,
        num_importance_samples=K,
        num_samples=S,
        num_data=N,
        **options,
    )
    randomise(model, scale=0.4)
    if isinstance(model.inducing_posterior, gd.posteriors.MeanField):
        for q_sqrt in model.inducing_posterior.q_sqrt:
            q_sqrt.assign(q_sqrt.numpy() + 0.5 * np.eye(q_sqrt.shape[-1]))
    return model


# ---------------------------------------------------------------- the bound


def _squared_exponential(kernel: Any, A: np.ndarray, B: np.ndarray) -> np.ndarray:
    scaled = [x / kernel.lengthscales.numpy() for x in (A, B)]
    squares = np.sum((scaled[0][:, None] - scaled[1][None]) ** 2, axis=-1)
    return kernel.variance.numpy() * np.exp(-0.5 * squares)


def _function_values(
    layer: Any, q_mu: np.ndarray, q_sqrt: np.ndarray, H: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mean [R, T] and joint covariances [T, R, R] of a layer's GPs at inputs H [R, D], by definition."""
    Z, kernel = layer.inducing_variable.Z.numpy(), layer.kernel
    Kuu = _squared_exponential(kernel, Z, Z) + JITTER * np.eye(len(Z))
    L = np.linalg.cholesky(Kuu)
    A = np.linalg.solve(L, _squared_exponential(kernel, Z, H)).T  # [R, M]
    mean = A @ q_mu + np.broadcast_to(layer.mean_function(H), [len(H), q_mu.shape[1]])
    prior = _squared_exponential(kernel, H, H) - A @ A.T
    return mean, np.stack([prior + A @ root @ root.T @ A.T for root in q_sqrt])


def _bound(model: Any, noise: list[np.ndarray], S: int, K: int) -> float:
    """Sample by sample, point by point: the equations of the class."""
    q = model.inducing_posterior
    pairs = [(m.numpy(), s.numpy()) for m, s in zip(q.q_mu, q.q_sqrt)]
    encoded = model.latents.condition(tf.constant(X), tf.constant(Y))
    m, v = (x.numpy() for x in encoded)
    total = 0.0
    for s in range(S):
        for n in range(N):
            rows = slice(s * K, (s + 1) * K)
            w = m[n] + v[n] * noise[0][rows, n]  # [K, W]
            ratio = norm.logpdf(w).sum(1) - norm.logpdf(w, m[n], v[n]).sum(1)
            H = np.concatenate([np.tile(X[n], [K, 1]), w], axis=1)
            for index, (layer, parameters) in enumerate(zip(model.layers, pairs)):
                mean, covariance = _function_values(layer, *parameters, H)
                if index == len(model.layers) - 1:
                    variance = np.diag(covariance[0])
                    break
                roots = np.linalg.cholesky(covariance + JITTER * np.eye(K))
                draws = np.einsum("tkj,jt->kt", roots, noise[index + 1][rows, n])
                H = mean + draws
            variance_y = model.likelihood.variance.numpy()
            fit = norm.logpdf(Y[n], mean[:, 0], variance_y**0.5) - 0.5 * variance / variance_y
            total += (logsumexp(fit + ratio) - np.log(K)) / S
    return total - float(model.prior_kl())


@pytest.mark.parametrize("hidden_dims", [(), (2,), (3, 2)], ids=["one", "two", "three"])
@pytest.mark.parametrize("K", [1, 2, 4])
def test_bound_by_definition(hidden_dims: tuple[int, ...], K: int) -> None:
    model = _model(hidden_dims, K)
    noise = model.draw_noise(N, seed=[0, 1])
    assert [z.shape for z in noise] == [(2 * K, N, T) for T in (W, *hidden_dims)]
    expected = _bound(model, [z.numpy() for z in noise], 2, K)
    np.testing.assert_allclose(model.elbo((X, Y), noise), expected, rtol=1e-8)


def test_new_draws_have_the_value_of_the_same_draws_given() -> None:
    """Whatever gradient they have."""
    model = _model((2, 2))
    noise = model.draw_noise(N, seed=[0, 1])
    given = model.elbo((X, Y), noise)
    model.draw_noise = lambda *args, **kwargs: noise
    assert_close(model.elbo((X, Y)), given, rtol=1e-12)


def test_many_importance_samples_lead_to_the_marginal_likelihood_of_the_latent_variable() -> None:
    """With one layer: log of an average over w, here by quadrature; fewer are a lower bound, on average."""
    bounds = {}
    for K in (1, 8, 50_000):
        model = _model((), K, S=1 if K > 8 else 2000)
        bounds[K] = float(model.elbo((X, Y), model.draw_noise(N, seed=[0, 1])))
    nodes, weights = roots_hermitenorm(200)
    total = 0.0
    for n in range(N):
        H = np.concatenate([np.tile(X[n], [200, 1]), nodes[:, None]], axis=1)
        q = model.inducing_posterior
        mean, covariance = _function_values(
            model.layers[0], q.q_mu[0].numpy(), q.q_sqrt[0].numpy(), H
        )
        noise = model.likelihood.variance.numpy()
        fit = norm.logpdf(Y[n], mean[:, 0], noise**0.5) - 0.5 * np.diag(covariance[0]) / noise
        total += logsumexp(fit + np.log(weights / weights.sum()))
    expected = total - float(model.prior_kl())
    np.testing.assert_allclose(bounds[50_000], expected, atol=0.05)
    assert bounds[1] < bounds[8] - 0.05 < bounds[50_000] - 0.05


def test_without_influence_of_the_latent_variable_it_is_a_deep_gp() -> None:
    """With q(w) = p(w) the bound is that of the deep GP of the inputs alone; predictions are, always."""
    layers = _layers(())
    layers[0].kernel.lengthscales.assign([1.3, 0.7, 1e8])
    model = _model((), layers=layers)
    plain = gd.layers.GPLayer(
        kernels.SquaredExponential(
            layers[0].kernel.variance.numpy(), layers[0].kernel.lengthscales.numpy()[:D]
        ),
        layers[0].inducing_variable.Z.numpy()[:, :D],
        1,
    )
    deep = gd.models.DeepGP([plain], gpflow.likelihoods.Gaussian(NOISE), gd.posteriors.MeanField)
    deep.likelihood.variance.assign(model.likelihood.variance)
    deep.inducing_posterior.assign_dense(*model.inducing_posterior.dense())
    for parameter in (*model.latents.network.W, *model.latents.network.b):
        parameter.assign(np.zeros(parameter.shape))
    model.latents.network.b[-1].assign([[[0.0, np.log(np.expm1(1.0))]]])
    assert_close(model.elbo((X, Y)), deep.elbo((X, Y)), rtol=1e-7)
    for full_cov in (False, True):
        assert_close(model.predict_f(XNEW, full_cov), deep.predict_f(XNEW, full_cov), rtol=1e-6)
    density = deep.predict_log_density((XNEW, YNEW))
    assert_close(model.predict_log_density((XNEW, YNEW)), density, rtol=1e-6)


@pytest.mark.parametrize("posterior", [gd.posteriors.StripesAndArrow, gd.posteriors.FullyCoupled])
def test_one_importance_sample_with_coupled_posteriors(posterior: type) -> None:
    """Block-diagonal ones are mean-field."""
    layers = _layers()
    coupled = _model(layers=layers, K=1, posterior=posterior)
    independent = _model(layers=_layers(), K=1)
    for layer, own in zip(coupled.layers, independent.layers):
        gpflow.utilities.multiple_assign(layer, gpflow.utilities.read_values(own))
    gpflow.utilities.multiple_assign(
        coupled.latents, gpflow.utilities.read_values(independent.latents)
    )
    coupled.likelihood.variance.assign(independent.likelihood.variance)
    coupled.inducing_posterior.assign_dense(*independent.inducing_posterior.dense())
    noise = independent.draw_noise(N, seed=[0, 1])
    assert_close(coupled.elbo((X, Y), noise), independent.elbo((X, Y), noise))


def test_one_importance_sample_takes_the_same_way_as_several() -> None:
    """A 1 x 1 covariance is a variance."""
    model = _model((2, 2), K=1)
    prepared = model._prepare().cast("float64")
    noise = model.draw_noise(N, seed=[0, 1])
    arguments = prepared.factors, prepared.moments, 1, JITTER, "float64"
    inputs = tf.concat([np.broadcast_to(X, (2, N, D)), noise[0]], axis=-1)
    walks = [
        walk(model.layers, functions, inputs, noise[1:])[-1]
        for functions in (
            gd.models.DeepGP._passage(model, prepared),
            SharedFunctions(*arguments, True),
            SharedFunctions(*arguments, False),
        )
    ]
    assert_close(walks[1].conditional, walks[0].conditional, rtol=1e-7)
    assert_close(walks[2].conditional, walks[0].conditional, rtol=1e-7)


def test_one_importance_sample_has_one_gradient() -> None:
    """Of drawn functions and of Cholesky factors alike; also of variances that differ from place to place."""
    layers = _layers((2, 2))
    layers[0].replace("kernel", kernels.Linear([0.7, 0.4, 0.2]) + kernels.RBF())
    layers[1].replace("kernel", kernels.Polynomial(2, [0.3, 0.5]) + kernels.RBF())
    model = _model(layers=layers, K=1)
    _, *noise = model.draw_noise(N, seed=[0, 1])
    inputs = tf.constant(np.random.default_rng(0).standard_normal((2, N, D + W)))
    parts = *layers, model.inducing_posterior
    sources = [inputs, *(v for part in parts for v in part.trainable_variables)]
    gradients = []
    for slopes in (True, False):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            prepared = model._prepare().cast("float64")
            functions = SharedFunctions(
                prepared.factors, prepared.moments, 1, JITTER, "float64", slopes
            )
            top = walk(layers, functions, inputs, noise)[-1].conditional
            value = tf.reduce_sum(tf.sin(top.mean) + top.covariance)
        gradients.append(tape.gradient(value, sources))
    assert_close(*gradients, rtol=1e-9)


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 5), st.integers(1, 3), st.integers(0, 1000))
def test_averages_of_importance_samples(K: int, S: int, seed: int) -> None:
    """In any order the same; K equal ones are one; and none is above the largest."""
    rng = np.random.default_rng(seed)
    latents = gd.posteriors.Latents(tf.zeros([N, W], tf.float64), tf.ones([N, W], tf.float64))

    def average(log_densities: np.ndarray) -> np.ndarray:
        passage = ImportanceLatents(latents, W, K, True)
        walk([AppendedLatents(W)], passage, tf.constant(X), [tf.zeros([S * K, N, W], tf.float64)])
        return passage.log_average(tf.constant(log_densities.reshape(S * K, N))).numpy()

    values = rng.standard_normal((S, K, N))
    of_all = average(values)
    assert_close(average(values[:, rng.permutation(K)]), of_all)
    expected = (logsumexp(values, axis=1) - np.log(K)).mean(axis=0)
    assert_close(of_all, expected)
    assert (of_all <= values.max(axis=1).mean(axis=0) + 1e-12).all()
    same = np.broadcast_to(values[:, :1], values.shape)
    assert_close(average(same), values[:, 0].mean(axis=0))


# ---------------------------------------------------------------- gradients


def _gradient(model: Any, noise: Any = None) -> np.ndarray:
    with tf.GradientTape() as tape:
        value = model.elbo((X, Y), noise)
    gradients = tape.gradient(value, model.trainable_variables)
    return tf.concat([tf.reshape(g, [-1]) for g in gradients], axis=0)


def test_gradient_with_given_draws_is_that_of_the_function_they_make() -> None:
    model = _model((2, 2))
    noise = model.draw_noise(N, seed=[0, 1])
    gradient = _gradient(model, noise).numpy()
    variables, start = model.trainable_variables, 0
    rng = np.random.default_rng(0)
    for variable in variables:
        size = int(np.prod(variable.shape))
        direction = rng.standard_normal(variable.shape)
        ends = []
        for step in (1e-5, -2e-5):
            variable.assign_add(step * direction)
            ends.append(float(model.elbo((X, Y), noise)))
        variable.assign_add(1e-5 * direction)
        slope = np.ravel(direction) @ gradient[start : start + size]
        np.testing.assert_allclose((ends[0] - ends[1]) / 2e-5, slope, rtol=1e-5, atol=1e-6)
        start += size


def _estimates(model: Any, new: bool, repeats: int = 40) -> np.ndarray:
    """Gradients, each an average over S draws."""
    take = tf.function(lambda: _gradient(model, None if new else model.draw_noise(N)))
    return np.stack([take().numpy() for _ in range(repeats)])


def _mean_and_error(estimates: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return estimates.mean(axis=0), estimates.std(axis=0, ddof=1) / len(estimates) ** 0.5


def test_gradients_of_new_draws_are_unbiased() -> None:
    """
    With hidden layers, whose values the samples of a point share. That a sample's value depended on the
    inputs of those before it, as by a Cholesky factor's gradient, would give q(w) another one: by some
    five standard errors here.
    """
    tf.random.set_seed(0)
    layers = _layers((2, 2))
    for layer in layers[:-1]:
        gpflow.set_trainable(layer.kernel.variance, False)
    model = _model(layers=layers, S=4000, latents=gd.posteriors.FreeLatents(N))
    new, given = (_mean_and_error(_estimates(model, new)) for new in (True, False))
    z = (new[0] - given[0]) / np.hypot(new[1], given[1])
    assert np.sqrt(np.mean(z**2)) < 1.3
    assert np.abs(z).max() < 4.5


def test_no_draw_has_a_gradient_where_latent_variables_have_their_posterior() -> None:
    """All weights are the evidence then, wherever the samples are (Tucker et al. 2019)."""
    exact = Y / (1.0 + NOISE), np.full((N, W), (NOISE / (1.0 + NOISE)) ** 0.5)
    for is_double in (True, False):
        q = gd.posteriors.Latents(*map(tf.Variable, exact))
        with tf.GradientTape() as tape:
            passage = ImportanceLatents(q, W, 3, is_double)
            noise = [np.random.default_rng(0).standard_normal((6, N, W))]
            w = walk([AppendedLatents(W)], passage, tf.constant(X), noise)[0].sample[..., D:]
            densities = -0.5 * tf.reduce_sum(tf.square(Y - w), axis=-1) / NOISE
            value = tf.reduce_sum(passage.log_average(densities))
        size = max(np.abs(gradient).max() for gradient in tape.gradient(value, list(q)))
        assert (size < 1e-12) == is_double


def test_gradients_of_the_encoder_are_less_noisy_than_those_of_given_draws() -> None:
    """Near the optimum of q(w), where they count; more samples do not drown the signal."""
    tf.random.set_seed(0)
    ratios = {}
    for K in (1, 16):
        model = _model((), K, S=1, latents=gd.posteriors.FreeLatents(N))
        gpflow.set_trainable(model, False)
        gpflow.set_trainable(model.latents, True)
        gd.training.fit(model, (X, Y), steps=500, learning_rate=0.02, progress=False)
        deviations = [_estimates(model, new, 300).std(axis=0) for new in (True, False)]
        ratios[K] = np.median(deviations[0] / deviations[1])
    assert ratios[1] < 0.7
    assert ratios[16] < 0.4


# ---------------------------------------------------------------- predictions


def test_training_has_the_gradients_of_new_draws() -> None:
    """The draws of a step are known beforehand, and are new all the same."""
    point = X[:1], Y[:1]
    model, twin = _model(), _model()
    model.num_data = twin.num_data = 1
    sgd = tf_keras.optimizers.SGD(1e-3)
    gd.training.fit(model, point, steps=1, optimizer=sgd, seed=3, progress=False)
    variables, noise = twin.trainable_variables, twin.draw_noise(1, seed=[3, 0])
    gradients = []
    for is_step in (True, False):
        with tf.GradientTape() as tape, nodes_of_seed([3, 0]) if is_step else nullcontext():
            bound = 1e-3 * twin.elbo(point, noise)
        gradients.append(tape.gradient(bound, variables))
    for after, before, own in zip(model.trainable_variables, variables, gradients[0], strict=True):
        np.testing.assert_allclose(after, before + own, rtol=1e-7)
    assert not all(np.allclose(own, other) for own, other in zip(*gradients, strict=True))


def test_predictions_are_mixtures_over_the_prior_of_the_latent_variable() -> None:
    """One layer, by quadrature over w."""
    model = _model((), num_prediction_samples=4096)
    q = model.inducing_posterior
    nodes, weights = roots_hermitenorm(100)
    weights = weights / weights.sum()
    mean, variance, density = [], [], []
    for x, y in zip(XNEW, YNEW):
        H = np.concatenate([np.tile(x, [100, 1]), nodes[:, None]], axis=1)
        f, covariance = _function_values(model.layers[0], q.q_mu[0].numpy(), q.q_sqrt[0].numpy(), H)
        f, v = f[:, 0], np.diag(covariance[0])
        mean.append(weights @ f)
        variance.append(weights @ (v + f**2) - mean[-1] ** 2)
        spread = (v + model.likelihood.variance.numpy()) ** 0.5
        density.append(logsumexp(norm.logpdf(y, f, spread) + np.log(weights)))
    predicted = model.predict_f(XNEW)
    np.testing.assert_allclose(predicted[0][:, 0], mean, atol=2e-3)
    np.testing.assert_allclose(predicted[1][:, 0], variance, rtol=5e-3)
    predicted = model.predict_log_density((XNEW, YNEW))
    np.testing.assert_allclose(predicted, density, atol=2e-3)


@pytest.mark.parametrize("hidden_dims", [(), (2,)], ids=["one", "two"])
@pytest.mark.parametrize("full_cov", [False, True])
def test_draws_have_the_predicted_moments(hidden_dims: tuple[int, ...], full_cov: bool) -> None:
    """Each point with a latent variable of its own: also together with others."""
    tf.random.set_seed(0)
    model = _model(hidden_dims, num_prediction_samples=2000)
    draws = model.predict_f_samples(XNEW, 20_000, full_cov=full_cov).numpy()[..., 0]
    mean, covariance = model.predict_f(XNEW, full_cov=full_cov)
    np.testing.assert_allclose(draws.mean(0), mean[:, 0], atol=0.04)
    if full_cov:
        np.testing.assert_allclose(np.cov(draws.T), covariance[0], atol=0.08)
    else:
        np.testing.assert_allclose(draws.var(0), covariance[:, 0], rtol=0.08)


def test_few_learned_components_predict_as_many_drawn_ones() -> None:
    """Of the latent variables, too."""
    model = _model(num_prediction_samples=8)
    error = {}
    for learned in (False, True):
        posterior = model.posterior()
        if learned:
            posterior.condense((XNEW, YNEW), 8)
        many = model.posterior()
        noise = [
            np.random.default_rng(i).standard_normal((4000, 1, T)) for i, T in enumerate((W, 2))
        ]
        expected = many.predict_log_density((XNEW, YNEW), noise=noise)
        error[learned] = np.abs(posterior.predict_log_density((XNEW, YNEW)) - expected).max()
    assert error[True] < 0.5 * error[False] and error[True] < 0.05


def test_propagated_points_bring_their_latent_variables() -> None:
    model = _model()
    noise = [z.numpy() for z in model.draw_noise(N, seed=[0, 1])]
    latent, hidden, output = model.propagate(X, noise)
    assert latent.sample.shape == (6, N, D + W)
    np.testing.assert_array_equal(latent.sample[..., :D], np.broadcast_to(X, (6, N, D)))
    np.testing.assert_array_equal(latent.sample[..., D:], noise[0])
    assert hidden.sample.shape == (6, N, 2)
    assert output.mean.shape == (6, N, 1)
    draws = model.sample_prior(X, 3, seed=[0, 1])
    assert [d.shape for d in draws] == [(3, N, D + W), (3, N, 2), (3, N, 1)]


# ---------------------------------------------------------------- what they are made of

KERNELS: dict[str, Callable[[], kernels.Kernel]] = {
    "linear": kernels.Linear,
    "with white noise": lambda: kernels.SquaredExponential() + kernels.White(0.1),
    "shared": lambda: kernels.SharedIndependent(kernels.Matern52(), 2),
    "separate": lambda: kernels.SeparateIndependent([kernels.Matern52(), kernels.Matern12()]),
}


@pytest.mark.parametrize(
    ("name", "whiten", "K"),
    [
        ("linear", True, 3),
        ("with white noise", True, 3),
        ("shared", True, 3),
        ("separate", False, 3),
        ("separate", True, 1),
    ],
)
def test_kernels_of_hidden_layers(name: str, whiten: bool, K: int) -> None:
    """New draws have the value of the same draws given, and the same gradients on average."""
    tf.random.set_seed(0)
    layers = _layers(whiten=whiten)
    layers[0].replace("kernel", KERNELS[name]())
    model = _model(layers=layers, K=K, S=500)
    noise = model.draw_noise(N, seed=[0, 1])
    own, model.draw_noise = model.draw_noise, lambda *args, **kwargs: noise
    assert_close(model.elbo((X, Y)), model.elbo((X, Y), noise), rtol=1e-9)
    model.draw_noise = own
    new, given = (_mean_and_error(_estimates(model, new, 20)) for new in (True, False))
    z = (new[0] - given[0]) / (np.hypot(new[1], given[1]) + 1e-12)
    assert np.abs(z).max() < 6


def test_several_latent_variables_of_points_with_missing_targets() -> None:
    likelihood = gd.likelihoods.MissingOutputs(gpflow.likelihoods.Gaussian(NOISE))
    layers = gd.layers.build_layers(X, (2,), 2, 3, latent_dim=2)
    model = gd.models.LatentVariableDeepGP(layers, likelihood, 2)
    targets = np.concatenate([Y, Y], axis=1)
    targets[0, 1] = targets[1, :] = np.nan
    with tf.GradientTape() as tape:
        loss = model.training_loss((X, targets))
    for gradient in tape.gradient(loss, model.trainable_variables):
        assert np.isfinite(gradient).all()


def test_products_in_single_precision() -> None:
    model, noise = _model(), None
    values = []
    for dtype in ("float64", "float32"):
        model.compute_dtype = dtype
        noise = noise or model.draw_noise(N, seed=[0, 1])
        values.append(float(model.elbo((X, Y), noise)))
    assert values[0] != values[1]
    np.testing.assert_allclose(values[1], values[0], rtol=1e-4)


@pytest.mark.parametrize("size", [0.01, 30.0])
def test_covariances_in_single_precision_stay_covariances(size: float) -> None:
    """Of a posterior that is far narrower, or wider, than the prior."""
    inputs = np.random.default_rng(0).uniform(-1.0, 1.0, (200, 2))
    layers = gd.layers.build_layers(inputs, (3,), num_inducing=100, latent_dim=1)
    model = gd.models.LatentVariableDeepGP(
        layers, gpflow.likelihoods.Gaussian(0.1), num_importance_samples=8, compute_dtype="float32"
    )
    scale = size * np.tile(np.eye(100), [3, 1, 1])
    model.inducing_posterior.q_sqrt[0].assign(scale)
    model.inducing_posterior.q_mu[1].assign(np.random.default_rng(1).standard_normal((100, 1)))
    noise = model.draw_noise(200, seed=[0, 1])
    bounds = []
    for dtype in ("float32", "float64"):
        model.compute_dtype = dtype
        bounds.append(model.elbo((inputs, inputs[:, :1]), noise))
    assert_close(bounds[0], bounds[1], rtol=1e-3)


def test_latent_variables_start_at_their_prior() -> None:
    """But for the first weights of the encoder's last layer, which tell points apart."""
    q = gd.posteriors.EncodedLatents(D, latent_dim=2)
    q.network.W[-1].assign(np.zeros_like(q.network.W[-1]))
    mean, scale = q.condition(tf.constant(X), tf.constant(Y))
    assert_close((mean, scale), (np.zeros((N, 2)), np.ones((N, 2))))


def test_an_encoder_of_other_inputs_is_refused() -> None:
    encoder = gd.posteriors.EncodedLatents(D + 1, latent_dim=W)
    with pytest.raises(
        ValueError, match=f"latents: expected an encoder of {D} inputs.*got input_dim={D + 1}"
    ):
        _model(latents=encoder)
    for inputs, targets in ((X, Y), (np.c_[X, Y][:-1], Y)):
        with pytest.raises(
            ValueError, match=rf"latents: expected inputs \[N, {D + 1}\].*got .* for "
        ):
            encoder.condition(inputs, targets)
    single = encoder.condition(np.c_[X, Y].astype(np.float32), Y.astype(np.float32))
    np.testing.assert_allclose(single.mean, encoder.condition(np.c_[X, Y], Y).mean, atol=1e-6)


def test_a_network_of_ones_own_as_encoder() -> None:
    import keras

    network = keras.Sequential([keras.layers.Dense(5, "tanh"), keras.layers.Dense(2 * W)])
    network.build((None, D + 1))
    keras.config.set_floatx("float32")
    with pytest.raises(ValueError, match="float64"):
        gd.posteriors.EncodedLatents(D, network=network)
    encoder = gd.posteriors.EncodedLatents(D, network=gd.layers.MLP([D + 1, 4, 2 * W]))
    model = _model(latents=encoder)
    before = encoder.network.W[0].numpy()
    gd.training.fit(model, (X, Y), steps=2, progress=False)
    assert (encoder.network.W[0].numpy() != before).any()


# ---------------------------------------------------------------- end to end


def test_two_branches() -> None:
    """
    Of targets that are above with probability 0.3, else below: the density is that of both branches. A deep
    GP without latent variables predicts one broad Gaussian.
    """
    rng = np.random.default_rng(0)
    tf.random.set_seed(0)

    def draw(size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        x = rng.uniform(-2, 2, (size, 1))
        centres = 1.0 + 0.5 * np.sin(2 * x), 0.3 * x - 1.0
        y = np.where(rng.random((size, 1)) < 0.3, *centres) + 0.1 * rng.standard_normal((size, 1))
        parts = [np.log(p) + norm.logpdf(y, c, 0.1) for p, c in zip((0.3, 0.7), centres)]
        return x, y, logsumexp(parts, axis=0)

    x, y, _ = draw(300)
    new_x, new_y, truth = draw(500)
    scores = {}
    for latent_dim in (None, 1):
        layers = gd.layers.build_layers(x, (2,), num_inducing=30, latent_dim=latent_dim)
        likelihood = gpflow.likelihoods.Gaussian(0.05)
        family = gd.models.DeepGP if latent_dim is None else gd.models.LatentVariableDeepGP
        model = family(layers, likelihood, num_data=len(x))
        gd.training.fit(model, (x, y), steps=1000, learning_rate=0.03, progress=False)
        scores[latent_dim] = float(np.mean(model.predict_log_density((new_x, new_y))))
    assert scores[1] > truth.mean() - 0.3
    assert scores[None] < truth.mean() - 1.0


# ---------------------------------------------------------------- wrong input


@pytest.mark.parametrize(
    ("message", "make"),
    [
        ("latent_dim: expected a positive integer", lambda: _layers(latent_dim=0)),
        ("num_importance_samples: expected a positive integer", lambda: _model(K=0)),
        (
            "posterior: expected MeanField with several importance samples, got StripesAndArrow",
            lambda: _model(posterior=gd.posteriors.StripesAndArrow),
        ),
        (
            "layers: expected a first layer of the inputs and 3 latent variables, got one of 3",
            lambda: _model(latents=3),
        ),
        ("latents: expected a positive integer", lambda: _model(latents="one")),
        (
            "network: expected 2 columns",
            lambda: gd.posteriors.EncodedLatents(D, network=gd.layers.MLP([D + 1, 3])),
        ),
        (
            "latents: expected targets .N, 2., as the encoder takes",
            lambda: _model(latents=gd.posteriors.EncodedLatents(D, 2)).elbo((X, Y)),
        ),
        (
            "Xnew: expected .*2., as the first layer is of so many inputs and 1 latent.*got .4, 3.",
            lambda: _model().posterior().predict_f(np.ones((4, 3))),
        ),
        (
            "noise: expected 3 importance samples of each draw, a multiple of 3 in all, got 4",
            lambda: _model().elbo((X, Y), [np.zeros((4, N, 1)), np.zeros((4, N, 2))]),
        ),
    ],
)
def test_what_does_not_fit(message: str, make: Callable[[], Any]) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_free_latents_are_of_all_points() -> None:
    model = _model(latents=gd.posteriors.FreeLatents(N))
    model.elbo((X, Y))
    message = f"expected all {N} points at once.*batch_size=None.*got 2"
    with pytest.raises(ValueError, match=message):
        model.elbo((X[:2], Y[:2]))
    with pytest.raises(ValueError, match=message):
        gd.training.fit(model, (X, Y), steps=2, batch_size=2, progress=False)
    unknown = [tf.TensorSpec([None, array.shape[1]], tf.float64) for array in (X, Y)]
    elbo = tf.function(lambda X, Y: model.elbo((X, Y)), input_signature=unknown)
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"expected all {N} points at once"):
        elbo(X[:2], Y[:2])


def test_a_passage_by_the_prior() -> None:
    passage = LatentPassage(W)
    step = walk([AppendedLatents(W)], passage, tf.constant(X), [tf.ones([1, 1, W], tf.float64)])[0]
    assert_close(step.conditional.mean[0], np.concatenate([X, np.zeros((N, W))], axis=1))
    assert_close(step.conditional.covariance[0], np.array([[0.0, 0.0, 1.0]] * N))
    assert_close(step.sample[0], np.concatenate([X, np.ones((N, W))], axis=1))

"""
What a structured deep GP must agree with: brute force, itself in other guises, SVGP, and sampling.

Nothing here knows how the model computes: it is built, asked and compared through its public names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_deep as gd
from tests import brute_force as bf
from tests.models.structured_problem import (
    STRUCTURES,
    WIDTHS,
    M,
    Problem,
    block_pattern,
    make_posterior,
    make_problem,
)


def _full(covariance: tf.Tensor) -> np.ndarray:
    """[S, N, T, T] of a covariance that may have come as its diagonal."""
    array = np.asarray(covariance)
    return array if array.ndim == 4 else array[..., None] * np.eye(array.shape[-1])


def _close(actual: object, expected: object, rtol: float = 1e-10, atol: float = 1e-10) -> None:
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=atol)


def _assert_means_agree(a: np.ndarray, b: np.ndarray, standard_errors: float = 4.5) -> None:
    """Means over the first axis agree within their standard errors."""
    error = np.sqrt(a.var(0) / len(a) + b.var(0) / len(b))
    np.testing.assert_array_less(np.abs(a.mean(0) - b.mean(0)), standard_errors * error + 1e-9)


# ---------------------------------------------------------------- brute force


def _assert_equals_brute_force(
    problem: Problem, posterior: Callable[..., Any], covariance_jitter: float = 0.0
) -> None:
    """Every layer's sample and conditional moments, the KL divergence and the ELBO."""
    model = problem.model(posterior, covariance_jitter=covariance_jitter)
    noise = problem.noise()
    chain = bf.theorem_one(
        problem.layers, problem.X, *problem.q_u, noise, problem.jitter, covariance_jitter
    )
    kl = bf.kl_divergence(problem.layers, *problem.q_u, problem.jitter)
    for i, step in enumerate(model.propagate(problem.X, noise=noise)):
        _close(step.sample, chain.sample[i], rtol=1e-8, atol=1e-8)
        _close(step.mean, chain.mean[i], rtol=1e-8, atol=1e-8)
        _close(_full(step.covariance), chain.covariance[i], rtol=1e-8, atol=1e-8)
    _close(model.prior_kl(), kl, rtol=1e-8)
    expected = bf.elbo(chain, problem.Y, problem.noise_variance, kl, problem.num_data)
    _close(model.elbo(problem.data, noise=noise), expected, rtol=1e-8)


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("widths", WIDTHS, ids=str)
def test_model_equals_brute_force(widths: tuple[int, ...], structure: str) -> None:
    pattern = block_pattern(structure, widths, seed=len(widths))
    whiten = (WIDTHS.index(widths) + STRUCTURES.index(structure)) % 2 == 0
    problem = make_problem(widths, pattern, whiten=whiten, seed=len(widths))
    jitter = 0.0 if len(widths) % 2 else 1e-6
    _assert_equals_brute_force(problem, make_posterior(structure, pattern), jitter)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_layers_may_have_different_numbers_of_inducing_points(structure: str) -> None:
    widths = (2, 3, 1)
    pattern = block_pattern(structure, widths)
    problem = make_problem(widths, pattern, num_inducing=(4, 2, 5))
    _assert_equals_brute_force(problem, make_posterior(structure, pattern))


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("whiten", [True, False], ids=["whitened", "unwhitened"])
def test_gps_may_have_kernels_of_their_own(whiten: bool, structure: str) -> None:
    widths = (2, 3, 2)
    pattern = block_pattern(structure, widths)
    problem = make_problem(widths, pattern, whiten=whiten, separate_kernels=True)
    _assert_equals_brute_force(problem, make_posterior(structure, pattern))


@pytest.mark.parametrize("separate_kernels", [False, True])
def test_many_points_are_not_solved_one_by_one(separate_kernels: bool) -> None:
    """Above the first layer mean-field's covariances are solved instead: to the same bound and gradient."""
    widths, num_points = (2, 3, 1), 60
    problem = make_problem(
        widths,
        block_pattern("mean-field", widths),
        num_points=num_points,
        separate_kernels=separate_kernels,
    )
    _assert_equals_brute_force(problem, gd.posteriors.MeanField)
    model, noise = problem.model(gd.posteriors.MeanField), problem.noise()
    X, Y = (tf.constant(x) for x in problem.data)

    def gradients(*data: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            objective = model.elbo(data, noise=noise)
        return tape.gradient(objective, model.trainable_variables)

    # A graph that does not know how many there are solves for each.
    unknown = [tf.TensorSpec([None, x.shape[1]], x.dtype) for x in (X, Y)]
    every = tf.function(gradients, autograph=False, input_signature=unknown)
    graphs = [
        tf.function(gradients, autograph=False).get_concrete_function(X, Y),
        every.get_concrete_function(),
    ]
    solved = [
        [op.outputs[0].shape[-1] for op in graph.graph.get_operations() if "TriangularS" in op.type]
        for graph in graphs
    ]
    assert num_points in solved[0] and 2 * num_points not in solved[0]
    assert None in solved[1]
    for one, other in zip(graphs[0](X, Y), every(X, Y), strict=True):
        _close(one, other, rtol=1e-8, atol=1e-8)


class _OwnProjection(gd.layers.GPLayer):
    """A user's layer, who knows of factors only."""

    def project(self, X: tf.Tensor, factor: tf.Tensor | None) -> gd.layers.Projection:
        assert factor is not None
        return super().project(X, factor)


@pytest.mark.parametrize("kind", [_OwnProjection, gd.layers.GPLayer])
def test_many_points_of_layers_that_project_themselves_and_in_wider_numbers(
    kind: type,
) -> None:
    X = np.linspace(-2.0, 2.0, 80)[:, None]

    def elbo(float_type: str) -> float:
        config = gpflow.config.Config(float=getattr(np, float_type), jitter=1e-6)
        with gpflow.config.as_context(config):
            data = X.astype(float_type), np.sin(3.0 * X).astype(float_type)
            layers = [kind(gpflow.kernels.Matern52(), data[0][::8], 1) for _ in range(2)]
            model = gd.models.DeepGP(
                layers, gpflow.likelihoods.Gaussian(0.1), num_samples=3, compute_dtype="float64"
            )
            noise = [np.full([3, 80, 1], 0.5, float_type)]
            return float(model.elbo(data, noise=noise))

    _close(elbo("float32"), elbo("float64"), rtol=1e-4)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_moments_along_a_chain_integrate_the_inducing_outputs(structure: str) -> None:
    """The density of a whole chain by the model's conditionals, against u drawn from q."""
    widths = (2, 2, 1)
    pattern = block_pattern(structure, widths)
    problem = make_problem(widths, pattern, num_points=1, seed=3)
    model = problem.model(make_posterior(structure, pattern))
    steps = model.propagate(problem.X, noise=problem.noise(num_samples=1, seed=1))
    chain, means = ([np.asarray(step[i])[0, 0] for step in steps] for i in (0, 1))
    covariances = [_full(step.covariance)[0, 0] for step in steps]
    by_model = bf.conditional_chain_log_density(chain, means, covariances)
    drawn, error = bf.monte_carlo_chain_log_density(
        problem.layers, problem.X[0], chain, *problem.q_u, problem.jitter, 100_000, seed=2
    )
    assert error < 0.1
    assert abs(by_model - drawn) < 4.5 * error


def test_elbo_gradient_equals_finite_differences() -> None:
    widths = (2, 1, 2)
    pattern = block_pattern("custom", widths, seed=5)
    problem = make_problem(widths, pattern, seed=5)
    model = problem.model(make_posterior("custom", pattern))
    noise = problem.noise()
    objective = tf.function(lambda: model.elbo(problem.data, noise=noise), autograph=False)
    with tf.GradientTape() as tape:
        value = objective()
    gradients = tape.gradient(value, model.trainable_variables)
    step, rng = 3e-5, np.random.default_rng(0)
    # Of fourth order: what rounding allows of steps is too long for the second.
    weights = {1: 8.0, -1: -8.0, 2: -1.0, -2: 1.0}
    for variable, gradient in zip(model.trainable_variables, gradients, strict=True):
        value = variable.numpy()
        direction = rng.standard_normal(value.shape)
        expected = 0.0
        for steps, weight in weights.items():
            variable.assign(value + steps * step * direction)
            expected += weight * float(objective()) / (12 * step)
        variable.assign(value)
        slope = float(tf.reduce_sum(tf.convert_to_tensor(gradient) * direction))
        _close(slope, expected, rtol=1e-6, atol=1e-6)


# ---------------------------------------------------------------- the same posterior in two forms


def _assert_same_model(a: gd.models.DeepGP, b: gd.models.DeepGP, problem: Problem) -> None:
    noise = problem.noise(seed=4)
    assert a.inducing_posterior.num_parameters == b.inducing_posterior.num_parameters
    _close(a.prior_kl(), b.prior_kl())
    for one, other in zip(
        a.propagate(problem.X, noise=noise), b.propagate(problem.X, noise=noise), strict=True
    ):
        _close(one.sample, other.sample)
        _close(one.mean, other.mean)
        _close(_full(one.covariance), _full(other.covariance))
    _close(a.elbo(problem.data, noise=noise), b.elbo(problem.data, noise=noise))
    for one, other in zip(a.predict_f(problem.X), b.predict_f(problem.X), strict=True):
        _close(one, other)


@pytest.mark.parametrize("structure", STRUCTURES[:3])
@pytest.mark.parametrize("widths", [(2,), (2, 1), (3, 2, 4), (2, 2, 2, 2, 1)], ids=str)
def test_fast_posterior_equals_the_dense_one(widths: tuple[int, ...], structure: str) -> None:
    pattern = block_pattern(structure, widths)
    problem = make_problem(widths, pattern, seed=6)
    fast = problem.model(make_posterior(structure, pattern))
    dense = problem.model(make_posterior("dense", pattern))
    dense.inducing_posterior.assign_dense(*fast.inducing_posterior.dense())
    _assert_same_model(fast, dense, problem)


@pytest.mark.parametrize("structure", STRUCTURES[1:])
def test_block_diagonal_q_is_mean_field(structure: str) -> None:
    """The ELBO, and the KL as the sum of the layers' terms."""
    widths = (2, 2, 1)
    problem = make_problem(widths, block_pattern("mean-field", widths), seed=7)
    mean_field = problem.model(gd.posteriors.MeanField)
    other = problem.model(make_posterior(structure, block_pattern(structure, widths)))
    noise = problem.noise(seed=1)
    _close(mean_field.elbo(problem.data, noise=noise), other.elbo(problem.data, noise=noise))

    blocks = problem.factor.reshape(5, M, 5, M)
    q_sqrt = np.stack([blocks[t, :, t] for t in range(5)])
    terms = [
        gpflow.kullback_leiblers.gauss_kl(problem.mean.reshape(5, M).T[:, rows], q_sqrt[rows])
        for rows in (slice(0, 2), slice(2, 4), slice(4, 5))
    ]
    _close(other.prior_kl(), sum(terms))


# ---------------------------------------------------------------- one layer: SVGP


@pytest.mark.parametrize("num_outputs", [1, 3])
@pytest.mark.parametrize("whiten", [True, False], ids=["whitened", "unwhitened"])
def test_one_mean_field_layer_is_svgp(num_outputs: int, whiten: bool) -> None:
    pattern = block_pattern("mean-field", (num_outputs,))
    problem = make_problem((num_outputs,), pattern, whiten=whiten, num_points=5, seed=8)
    model = problem.model(gd.posteriors.MeanField)
    layer = problem.layers[0]
    blocks = problem.factor.reshape(num_outputs, M, num_outputs, M)
    svgp = gpflow.models.SVGP(
        gpflow.kernels.SquaredExponential(layer.variance, layer.lengthscales),
        gpflow.likelihoods.Gaussian(problem.noise_variance),
        layer.Z.copy(),
        mean_function=gpflow.functions.Linear(A=layer.W, b=layer.b),
        num_latent_gps=num_outputs,
        q_mu=problem.mean.reshape(num_outputs, M).T,
        q_sqrt=np.stack([blocks[t, :, t] for t in range(num_outputs)]),
        whiten=whiten,
        num_data=problem.num_data,
    )
    _close(model.prior_kl(), svgp.prior_kl())
    _close(model.elbo(problem.data), svgp.elbo(problem.data))
    batch = (problem.X[:2], problem.Y[:2])
    _close(model.elbo(batch), svgp.elbo(batch))
    _close(model.training_loss(batch), svgp.training_loss(batch))
    Xnew = np.random.default_rng(1).standard_normal((4, 2))
    cases = [{}, {"full_cov": True}, {"full_output_cov": True}]
    for options in [*cases, {"full_cov": True, "full_output_cov": True}]:
        expected = svgp.predict_f(Xnew, **options)
        for predictor in (model, model.posterior()):
            for one, other in zip(predictor.predict_f(Xnew, **options), expected, strict=True):
                _close(one, other)
    for one, other in zip(model.predict_y(Xnew), svgp.predict_y(Xnew), strict=True):
        _close(one, other)
    _close(model.predict_log_density(problem.data), svgp.predict_log_density(problem.data))


# ---------------------------------------------------------------- sampling


def _elbo_estimates(model: gd.models.DeepGP, problem: Problem, repetitions: int) -> np.ndarray:
    """Values of the ELBO, each with draws of its own."""
    estimate = tf.function(lambda: model.elbo(problem.data), autograph=False)
    tf.random.set_seed(1)
    return np.array([float(estimate()) for _ in range(repetitions)])


@pytest.mark.parametrize("structure", STRUCTURES)
def test_monte_carlo_marginalisation_equals_brute_force(structure: str) -> None:
    """Given its draws v = m + L e of the inducing outputs, it is Theorem 1 with q a point mass at v."""
    widths = (2, 1, 2)
    pattern = block_pattern(structure, widths)
    problem = make_problem(widths, pattern, seed=15)
    model = problem.model(make_posterior(structure, pattern), marginalisation="monte_carlo")
    noise = model.draw_noise(len(problem.X), num_samples=2, seed=[1, 2])
    hidden, inducing = noise[:2], noise[2:]
    e = np.concatenate([np.reshape(part, [2, -1]) for part in inducing], -1)  # [S, T M]
    kl = bf.kl_divergence(problem.layers, *problem.q_u, problem.jitter)
    elbos = []
    for s in range(2):
        mean, factor = problem.q_u
        z = [np.asarray(part)[s : s + 1] for part in hidden] + [np.zeros([1, 3, 2])]
        chain = bf.theorem_one(
            problem.layers, problem.X, mean + factor @ e[s], 0.0 * factor, z, problem.jitter
        )
        elbos.append(bf.elbo(chain, problem.Y, problem.noise_variance, kl, problem.num_data))
    _close(model.elbo(problem.data, noise=noise), np.mean(elbos), rtol=1e-8)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_marginalising_by_theorem_one_equals_drawing_the_inducing_outputs(structure: str) -> None:
    """Two estimators of one ELBO; the paper compares them in its Figure 2."""
    widths = (2, 1, 1)
    pattern = block_pattern(structure, widths)
    problem = make_problem(widths, pattern, seed=9)
    estimates = []
    for marginalisation in ("analytic", "monte_carlo"):
        model = problem.model(
            make_posterior(structure, pattern), num_samples=100, marginalisation=marginalisation
        )
        estimates.append(_elbo_estimates(model, problem, 40))
    _assert_means_agree(*estimates)
    assert estimates[0].std() > 0


@pytest.mark.parametrize("structure", ["fully-coupled", "stripes-and-arrow"])
def test_many_samples_converge(structure: str) -> None:
    """The ELBO is unbiased for every number of samples, and its variance falls as 1/S."""
    widths = (2, 1)
    pattern = block_pattern(structure, widths)
    problem = make_problem(widths, pattern, seed=10)
    estimates = []
    for num_samples in (2, 128):
        model = problem.model(make_posterior(structure, pattern), num_samples=num_samples)
        estimates.append(_elbo_estimates(model, problem, 200))
    few, many = estimates
    _assert_means_agree(few, many)
    ratio = few.var() / many.var()
    assert 64 / 2 < ratio < 64 * 2


def test_prior_draws_of_a_layer_used_twice_are_those_of_two_equal_ones() -> None:
    Z = np.random.default_rng(0).normal(size=(4, 2))
    first, second = (gd.layers.GPLayer(gpflow.kernels.Matern52(), Z.copy(), 2) for _ in range(2))
    X = np.random.default_rng(1).normal(size=(3, 2))
    draws = [
        gd.models.DeepGP(layers, gpflow.likelihoods.Gaussian()).sample_prior(X, 2, seed=[0, 1])
        for layers in ([first, second], [first, first])
    ]
    np.testing.assert_allclose(draws[1], draws[0])


@pytest.mark.parametrize("separate_kernels", [False, True], ids=["shared", "separate"])
@pytest.mark.parametrize("structure", STRUCTURES)
def test_function_draws_agree_with_the_generative_definition(
    structure: str, separate_kernels: bool
) -> None:
    """Coherent draws over all test points: their means and covariances, and `predict_f`'s."""
    widths = (2, 2, 2)
    pattern = block_pattern(structure, widths)
    problem = make_problem(
        widths, pattern, num_points=3, seed=11, separate_kernels=separate_kernels
    )
    model = problem.model(make_posterior(structure, pattern), num_prediction_samples=2000)
    tf.random.set_seed(3)
    draws = np.asarray(model.predict_f_samples(problem.X, num_samples=4000, full_cov=True))
    truth = bf.simulate(problem.layers, problem.X, *problem.q_u, problem.jitter, 10_000, seed=4)[-1]
    a, b = (values.reshape(len(values), -1) for values in (draws, truth))
    _assert_means_agree(a, b)
    centre = b.mean(0)
    products = [((c - centre)[:, :, None] * (c - centre)[:, None, :]) for c in (a, b)]
    _assert_means_agree(*products)

    # Within the Monte Carlo error of the mixture's components, of which there are 2000.
    error = b.std(0).reshape(problem.Y.shape) / np.sqrt(2000)
    for full_cov in (False, True):
        mean, covariance = (np.asarray(part) for part in model.predict_f(problem.X, full_cov))
        np.testing.assert_array_less(np.abs(mean - truth.mean(0)), 4.5 * error)
        for p in range(2):
            outer = (truth - truth.mean(0))[..., p, None] * (truth - truth.mean(0))[..., None, :, p]
            expected, tolerance = outer.mean(0), 4.5 * outer.std(0) / np.sqrt(2000)
            if full_cov:
                np.testing.assert_array_less(np.abs(covariance[p] - expected), tolerance)
            else:
                difference = np.abs(covariance[:, p] - np.diag(expected))
                np.testing.assert_array_less(difference, np.diag(tolerance))

    mean, covariance = (np.asarray(part) for part in model.predict_f(problem.X, True, True))
    np.testing.assert_array_less(np.abs(mean - truth.mean(0)), 4.5 * error)
    products, shape = products[1], covariance.shape  # of the generative draws
    tolerance = (4.5 * products.std(0) / np.sqrt(2000)).reshape(shape)
    np.testing.assert_array_less(np.abs(covariance - products.mean(0).reshape(shape)), tolerance)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_covariance_of_outputs_has_the_variances_on_its_diagonal(structure: str) -> None:
    widths = (2, 2, 2)
    pattern = block_pattern(structure, widths)
    problem = make_problem(widths, pattern, num_points=3, seed=12)
    model = problem.model(make_posterior(structure, pattern))
    mean, variance = model.predict_f(problem.X)
    full_mean, covariance = model.predict_f(problem.X, full_output_cov=True)  # [N, P, P]
    _close(full_mean, mean)
    _close(tf.linalg.diag_part(covariance), variance)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_covariance_of_points_and_outputs_of_one_layer(structure: str) -> None:
    """Of one layer it is exact: that of two points in the place of one is the covariance of q projected."""
    pattern = block_pattern(structure, (3,))
    problem = make_problem((3,), pattern, num_points=2, seed=14)
    model = problem.model(make_posterior(structure, pattern))
    covariance = model.predict_f(problem.X, full_cov=True, full_output_cov=True)[1].numpy()
    _close(np.einsum("npmp->pnm", covariance), model.predict_f(problem.X, full_cov=True)[1])
    _close(np.einsum("npnq->npq", covariance), model.predict_f(problem.X, full_output_cov=True)[1])
    (layer,) = model.layers
    A, _ = layer.joint_projection(problem.X[None], layer.factorise())  # [1, 1, M, N]
    _, factor = model.inducing_posterior.dense()
    own = tf.reshape(factor @ tf.transpose(factor), [3, A.shape[2]] * 2)
    expected = np.einsum("mi,pmqk,kj->ipjq", A[0, 0], own, A[0, 0])
    between = ~np.eye(3, dtype=bool)[None, :, None, :] & np.ones_like(expected, dtype=bool)
    _close(covariance[between], expected[between])


@pytest.mark.parametrize("structure", ["mean-field", "fully-coupled"])
def test_cached_predictions_equal_fused_ones(structure: str) -> None:
    """Of those that the suite for all families leaves to this one."""
    widths = (2, 3, 2)
    pattern = block_pattern(structure, widths)
    problem = make_problem(widths, pattern, seed=13)
    model = problem.model(make_posterior(structure, pattern))

    def predictions(predictor: Any) -> list[tf.Tensor]:
        X = problem.X
        return [
            *predictor.predict_f(X),
            *predictor.predict_f(X, full_cov=True),
            *predictor.predict_f(X, full_output_cov=True),
            *predictor.predict_f(X, full_cov=True, full_output_cov=True),
            *predictor.predict_y(X),
            predictor.predict_log_density(problem.data),
        ]

    fused = predictions(model)
    for precompute_cache in gpflow.posteriors.PrecomputeCacheType:
        cached = predictions(model.posterior(precompute_cache))
        for one, other in zip(cached, fused, strict=True):
            _close(one, other)


@pytest.mark.parametrize(
    "posterior",
    [gd.posteriors.MeanField, gd.posteriors.StripesAndArrow, gd.posteriors.FullyCoupled],
)
def test_single_precision_with_one_hidden_gp_and_many_outputs(posterior: type) -> None:
    """At the size at which TensorFlow's product of such matrices ends the process in float32."""
    bounds: list[float] = []
    noise: list[tf.Tensor] = []
    for dtype in (np.float64, np.float32):
        gpflow.config.set_default_float(dtype)
        X = np.random.default_rng(0).normal(size=(100, 2)).astype(dtype)
        Y = (X[:, :1] > 0).astype(dtype) + (X[:, 1:] > 0)
        layers = gd.layers.build_layers(X, hidden_dims=[1], output_dim=3, num_inducing=60)
        model = gd.models.DeepGP(
            layers, gpflow.likelihoods.Softmax(3), posterior, num_samples=4, num_data=100
        )
        noise = noise or model.draw_noise(100, seed=[1, 2])
        with tf.GradientTape() as tape:
            bound = model.elbo((X, Y), [tf.cast(z, dtype) for z in noise])
        slopes = tape.gradient(bound, model.trainable_variables)
        assert all(np.isfinite(slope).all() for slope in slopes)
        bounds.append(float(bound))
    np.testing.assert_allclose(bounds[1], bounds[0], rtol=2e-2)

"""What a global inducing deep GP must agree with: SVGP, itself in other guises, and sampling."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_deep as gd
from gpflow_deep.initialisation import inducing_data
from gpflow_deep.posteriors import IndependentGaussian, Prior, PseudoObservations
from tests.models.contract import X, Y, assert_close, gradients, randomise

ESTIMATORS = ("marginal", "analytic_kl", "monte_carlo")


def _layers(hidden_dims: tuple[int, ...] = (2,), **settings: Any) -> list[gd.layers.GPLayer]:
    return gd.layers.build_layers(X, hidden_dims, 1, num_inducing=6, **settings)


def _model(hidden_dims: tuple[int, ...] = (2,), **settings: Any) -> gd.models.GlobalInducingDeepGP:
    settings = {"num_data": len(X), "num_samples": 4, **settings}
    likelihood = gpflow.likelihoods.Gaussian(0.1)
    return gd.models.GlobalInducingDeepGP(_layers(hidden_dims), likelihood, **settings)


# ---------------------------------------------------------------- SVGP


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_one_layer_reaches_the_best_bound_of_a_sparse_gp(estimator: str) -> None:
    """Titsias' optimal q is a full precision and its pseudo-observations."""
    (layer,) = _layers(())
    Z = layer.inducing_variable.Z
    sgpr = gpflow.models.SGPR((X, Y), layer.kernel, Z, noise_variance=0.1)
    model = gd.models.GlobalInducingDeepGP(
        [layer], gpflow.likelihoods.Gaussian(0.1), estimator=estimator, num_samples=2000
    )
    K = layer.kernel(Z).numpy() + gpflow.config.default_jitter() * np.eye(6)
    B = np.linalg.solve(K, layer.kernel(Z, X))
    precision = B @ B.T / 0.1
    (q,) = model.inducing_posteriors
    q.assign_precision(precision + 1e-9 * np.eye(6))
    q.assign_pseudo_outputs(np.linalg.solve(precision, B @ Y / 0.1))
    exact = estimator == "marginal"
    assert_close(model.elbo((X, Y)), sgpr.elbo(), rtol=1e-5 if exact else 0.05)
    assert_close(model.predict_y(X), sgpr.predict_y(X), rtol=1e-4, atol=1e-5)


def test_one_layer_with_a_gaussian_is_svgp() -> None:
    (layer,) = _layers(())
    build = partial(IndependentGaussian, whiten=True)
    likelihood = gpflow.likelihoods.Gaussian(0.1)
    model = gd.models.GlobalInducingDeepGP([layer], likelihood, posterior=build, num_data=40)
    randomise(model)
    (q,) = model.inducing_posteriors
    svgp = gpflow.models.SVGP(
        layer.kernel,
        likelihood,
        layer.inducing_variable,
        q_mu=q.q_mu.numpy(),
        q_sqrt=q.q_sqrt.numpy(),
        num_data=40,
    )
    assert_close(model.elbo((X, Y)), svgp.elbo((X, Y)), rtol=1e-9)
    assert_close(model.predict_f(X), svgp.predict_f(X), rtol=1e-8)
    assert_close(model.predict_f(X, full_cov=True)[1], svgp.predict_f(X, full_cov=True)[1], 1e-7)


# ---------------------------------------------------------------- the estimators

MIXES: dict[str, Any] = {
    "global": PseudoObservations,
    "separate": partial(PseudoObservations, precision="separate"),
    "independent layers": IndependentGaussian,
    "mean-field below": [partial(IndependentGaussian, whiten=True), PseudoObservations],
    "prior below": [Prior, PseudoObservations],
}


@pytest.mark.parametrize("mix", MIXES)
def test_the_estimators_have_one_expectation(mix: str) -> None:
    results = {}
    for estimator in ESTIMATORS:
        model = _model(posterior=MIXES[mix], estimator=estimator, num_samples=1000)
        randomise(model, scale=0.1)
        tf.random.set_seed(0)
        values = np.array([model.elbo((X, Y)) for _ in range(10)])
        results[estimator] = values.mean(), values.std() / np.sqrt(len(values) - 1)
    mean, error = results.pop("marginal")
    for other_mean, other_error in results.values():
        assert abs(mean - other_mean) < 4.5 * np.hypot(error, other_error) + 1e-9
        if mix != "independent layers":  # there the divergence itself varies most
            assert error < other_error


def test_marginalising_the_last_layer_takes_noise_from_its_gradients() -> None:
    variances = {}
    for estimator in ESTIMATORS:
        model = _model(estimator=estimator, num_samples=1, pseudo_outputs=np.zeros((6, 1)))
        q = model.inducing_posteriors[-1]
        variables = [
            q.pseudo_outputs.unconstrained_variable,
            *q.precision_diagonal.trainable_variables,
        ]
        slope = tf.function(
            lambda m=model, v=variables: gradients(lambda: m.training_loss((X, Y)), v)[1],
            autograph=False,
        )
        tf.random.set_seed(0)
        draws = [np.concatenate([np.ravel(g) for g in slope()]) for _ in range(100)]
        variances[estimator] = np.var(draws, axis=0).mean()
    assert variances["marginal"] < variances["analytic_kl"] / 5
    assert variances["marginal"] < variances["monte_carlo"] / 5


def test_equal_precisions_are_shared_ones() -> None:
    """Whatever way they are stored, under the same draws."""
    values = []
    for precision in ("shared", "separate", "full"):
        model = _model((2, 3), posterior=partial(PseudoObservations, precision=precision))
        rng = np.random.default_rng(0)
        for q in model.inducing_posteriors:
            diagonal = rng.gamma(2.0, size=6)
            value = {"shared": diagonal, "separate": np.tile(diagonal, (q.num_latent_gps, 1))}
            q.assign_precision(value.get(precision, np.diag(diagonal)))
            q.assign_pseudo_outputs(rng.standard_normal(q.pseudo_outputs.shape))
        noise = model.draw_noise(len(X), seed=[0, 1])
        values.append([model.elbo((X, Y), noise), *model.predict_y(X)])
    assert_close(values[1], values[0])
    assert_close(values[2], values[0])


def test_weight_of_the_divergence() -> None:
    weight = tf.Variable(1.0, trainable=False)
    model = _model(kl_weight=lambda: weight)
    noise = model.draw_noise(len(X), seed=[0, 1])
    objective = tf.function(
        lambda: model.maximum_log_likelihood_objective((X, Y), noise), autograph=False
    )
    bounds = {}
    for value in (1.0, 0.5, 0.0):
        weight.assign(value)
        bounds[value] = objective()
    assert_close(bounds[0.5], 0.5 * (bounds[0.0] + bounds[1.0]))
    assert bounds[0.0] > bounds[1.0]
    # What is a bound stays one.
    assert_close(model.elbo((X, Y), noise), bounds[1.0])
    half = _model(kl_weight=0.5).maximum_log_likelihood_objective((X, Y), noise)
    assert_close(half, bounds[0.5])
    assert_close(_model().elbo((X, Y), noise), bounds[1.0])


# ---------------------------------------------------------------- layers


KERNELS: dict[str, Callable[[int, int], gpflow.kernels.Kernel]] = {
    "matern": lambda d, i: gpflow.kernels.Matern32(lengthscales=np.full(d, 1.2)),
    "linear": lambda d, i: gpflow.kernels.Linear() + gpflow.kernels.Constant(),
    "product": lambda d, i: gpflow.kernels.SquaredExponential() * gpflow.kernels.Cosine(),
    "one input": lambda d, i: gpflow.kernels.Matern52(active_dims=[1]) + gpflow.kernels.White(0.1),
    "shared": lambda d, i: gpflow.kernels.SharedIndependent(
        gpflow.kernels.RationalQuadratic(), 1 if i == 1 else 2
    ),
    "separate": lambda d, i: gpflow.kernels.SeparateIndependent(
        [gpflow.kernels.Matern32(), gpflow.kernels.SquaredExponential()][: 1 if i == 1 else 2]
    ),
}


@pytest.mark.parametrize("kernel", KERNELS)
def test_covariances_of_many_sets_of_inputs(kernel: str) -> None:
    """One set at a time, by GPflow."""
    layer = _layers(kernel_factory=KERNELS[kernel])[0]
    rng = np.random.default_rng(0)
    U, F = tf.constant(rng.standard_normal((3, 6, 2))), tf.constant(rng.standard_normal((3, 4, 2)))
    Kuf, variance = layer.covariances(F, U)
    Kuu, _ = layer.factorise_at(U)
    for s in range(3):
        for t, one in enumerate(
            getattr(layer.kernel, "kernels", [layer.kernel])
            if kernel == "separate"
            else [getattr(layer.kernel, "kernel", layer.kernel)]
        ):
            assert_close(Kuf[s, t], one(U[s], F[s]))
            assert_close(variance[s, t], one(F[s], full_cov=False))
            assert_close(Kuu[s, t], one(U[s]) + gpflow.config.default_jitter() * np.eye(6))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("inducing", ["global", "local"])
def test_every_kernel(kernel: str, inducing: str) -> None:
    layers = _layers(kernel_factory=KERNELS[kernel])
    model = gd.models.GlobalInducingDeepGP(
        layers, gpflow.likelihoods.Gaussian(0.1), inducing=inducing, num_samples=2
    )
    _, slopes = gradients(lambda: model.training_loss((X, Y)), model.trainable_variables)
    assert all(np.isfinite(slope).all() and np.any(slope) for slope in slopes)
    assert np.isfinite(model.predict_f_samples(X[:5], 2, full_cov=True)).all()


def test_inducing_inputs_of_layers() -> None:
    """Those that are not used are no parameters of the model; the caller's layers stay as they are."""
    layers = _layers((2, 2))
    likelihood = gpflow.likelihoods.Gaussian()
    local = gd.models.GlobalInducingDeepGP(layers, likelihood, inducing="local")
    propagated = gd.models.GlobalInducingDeepGP(layers, likelihood)
    given = gd.models.GlobalInducingDeepGP(layers, likelihood, X[:9])
    counts = [
        sum(path.endswith(".Z") for path in gpflow.utilities.parameter_dict(m))
        for m in (local, propagated, given)
    ]
    assert counts == [3, 1, 1]
    assert [q.num_inducing for q in given.inducing_posteriors] == [9, 9, 9]
    assert propagated.layers[1].kernel is layers[1].kernel
    assert layers[1].inducing_variable is not None


def test_what_counts_outputs_is_not_trained() -> None:
    """The mean function has a gradient for it, the kernel takes it for whole numbers."""
    rng = np.random.default_rng(0)
    data = np.column_stack([rng.uniform(-2.0, 2.0, 60), np.arange(60) % 2]).astype(float)
    targets = np.sin(3.0 * data[:, :1]) + data[:, 1:]
    parts = gpflow.kernels.Matern52(active_dims=[0]), gpflow.kernels.Coregion(2, 1, active_dims=[1])
    kernels = [parts[0] * parts[1], gpflow.kernels.Matern52()]
    layers = gd.layers.build_layers(
        data, (2,), 1, 8, kernel_factory=lambda _, layer: kernels[layer]
    )
    model = gd.models.GlobalInducingDeepGP(layers, gpflow.likelihoods.Gaussian(0.1), num_data=60)
    Z = layers[0].inducing_variable.Z
    before = Z.numpy()
    gd.training.fit(model, (data, targets), steps=5, learning_rate=0.1, progress=False)
    np.testing.assert_array_equal(Z.numpy()[:, 1], before[:, 1])
    assert np.all(Z.numpy()[:, 0] != before[:, 0])


def test_function_variances() -> None:
    """Of random functions the prior's; of functions that are known nearly none."""
    (layer,) = _layers(())
    likelihood = gpflow.likelihoods.Gaussian()
    model = gd.models.GlobalInducingDeepGP([layer], likelihood, posterior=Prior)
    (variance,) = model.function_variances(X, num_samples=2000)
    np.testing.assert_allclose(variance, layer.kernel.variance, rtol=0.1)
    known = gd.models.GlobalInducingDeepGP([layer], likelihood, X)
    known.inducing_posteriors[0].assign_precision(1e6 * np.eye(len(X)))
    (variance,) = known.function_variances(X)
    assert variance < 1e-4


def test_initial_values_from_data() -> None:
    U0, V = inducing_data(np.r_[X, X], np.r_[Y, Y], 15, seed=3)
    assert U0.shape == (15, 2) and V.shape == (15, 1)
    assert len(np.unique(U0, axis=0)) == 15
    for u, v in zip(U0, V, strict=True):
        assert v == Y[np.flatnonzero((X == u).all(axis=1))]
    model = _model(inducing_inputs=U0, pseudo_outputs=V)
    hidden, output = model.inducing_posteriors
    np.testing.assert_array_equal(output.pseudo_outputs, V)
    np.testing.assert_allclose(output.precision_factor()[0], np.eye(15))
    np.testing.assert_allclose(hidden.precision_factor()[0], np.exp(-2.0) * np.eye(15))
    assert len(inducing_data(X, Y, 100)[0]) == len(X)


# ---------------------------------------------------------------- wrong input

SEPARATE = gpflow.inducing_variables.SeparateIndependentInducingVariables
POINTS = gpflow.inducing_variables.InducingPoints
WRONG: dict[str, tuple[type[Exception], str, dict[str, Any]]] = {
    "estimator": (
        ValueError,
        "estimator: expected one of.*'marginal'.*got 'elbo'",
        {"estimator": "elbo"},
    ),
    "kl_weight": (
        ValueError,
        "kl_weight: expected a number of at least 0, got -1",
        {"kl_weight": -1},
    ),
    "inducing": (
        ValueError,
        "inducing: expected 'global' or 'local', got 'other'",
        {"inducing": "other"},
    ),
    "U0 too wide": (
        ValueError,
        r"inducing_inputs: expected \[M, 2\].*got \[4, 3\]",
        {"inducing_inputs": np.ones((4, 3))},
    ),
    "U0 NaN": (
        ValueError,
        "inducing_inputs: expected finite",
        {"inducing_inputs": np.full((4, 2), np.nan)},
    ),
    "U0 of local": (
        ValueError,
        "inducing_inputs: expected None",
        {"inducing_inputs": X, "inducing": "local"},
    ),
    "posteriors": (
        ValueError,
        "posterior: expected one, or one for each of 2 layers, got 1",
        {"posterior": [Prior]},
    ),
    "posterior": (
        TypeError,
        "posterior: expected PseudoObservations.*for layer 0",
        {"posterior": lambda T, M: T},
    ),
    "pseudo-outputs": (
        ValueError,
        r"pseudo_outputs: expected shape \[6, 1\], got \[5, 1\]",
        {"pseudo_outputs": np.ones((5, 1))},
    ),
    "no pseudo-outputs": (
        ValueError,
        "pseudo_outputs: expected None",
        {"pseudo_outputs": np.ones((6, 1)), "posterior": Prior},
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments(name: str) -> None:
    error, message, settings = WRONG[name]
    with pytest.raises(error, match=message):
        _model(**settings)


def test_wrong_layers() -> None:
    likelihood = gpflow.likelihoods.Gaussian()
    kernel = gpflow.kernels.SquaredExponential()
    bare = gd.layers.GPLayer(kernel, None, 1)
    with pytest.raises(ValueError, match=re.escape("inducing_inputs: expected [M, D]")):
        gd.models.GlobalInducingDeepGP([bare], likelihood)
    with pytest.raises(ValueError, match="layers: expected inducing variables in all"):
        gd.models.DeepGP([bare], likelihood)
    with pytest.raises(ValueError, match="inducing_variable: expected inducing variables of"):
        bare.factorise()
    separate = SEPARATE([POINTS(X[:4]), POINTS(X[4:8])])
    shared = gpflow.kernels.SharedIndependent(kernel, 2)
    own = gd.layers.GPLayer(shared, separate, 2)
    with pytest.raises(ValueError, match="layers: expected inducing points shared by all GPs"):
        gd.models.GlobalInducingDeepGP([own, bare], likelihood)
    scales = gpflow.inducing_variables.Multiscale(X[:4].copy(), np.ones_like(X[:4]))
    wide = gd.layers.GPLayer(kernel, None, X.shape[1])
    for variable in (scales, gpflow.inducing_variables.SharedIndependentInducingVariables(scales)):
        multiscale = gd.layers.GPLayer(shared, variable, 2)
        for layers in ([multiscale, bare], [wide, multiscale]):
            with pytest.raises(
                ValueError, match="layers: expected inducing points.* got Multiscale"
            ):
                gd.models.GlobalInducingDeepGP(layers, likelihood, X[:4].copy())
    patches = gpflow.inducing_variables.InducingPatches(X[:4, :1].copy())
    convolutional = gd.layers.GPLayer(
        gpflow.kernels.Convolutional(kernel, [1, 2], [1, 1]), patches, 1
    )
    with pytest.raises(ValueError, match="layers: expected inducing points.* got InducingPatches"):
        gd.models.GlobalInducingDeepGP([convolutional], likelihood, X[:4].copy())
    # Points of each GP are points.
    gd.models.GlobalInducingDeepGP([own, bare], likelihood, X[:4].copy())


def test_wrong_noise() -> None:
    model = _model()
    noise = model.draw_noise(len(X))
    with pytest.raises(ValueError, match=r"noise: expected tensors of shapes \[S, 20, 2\]"):
        model.elbo((X, Y), noise[:-1])
    with pytest.raises(ValueError, match="noise: expected tensors"):
        model.propagate(X, noise)

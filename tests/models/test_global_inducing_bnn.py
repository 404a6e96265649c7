"""What a Bayesian neural network must agree with: GPs, exact limits, itself in other guises, sampling."""

from __future__ import annotations

import copy
import pickle
from functools import partial
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.base import Module
from gpflow.keras import tf_keras

import gpflow_deep as gd
from gpflow_deep.layers import BayesianConv2D, BayesianDense, GPLayer
from gpflow_deep.layers.bayesian import (
    Activation,
    AveragePool2D,
    Flatten,
    GroupNormalization,
    MaxPool2D,
    Residual,
)
from gpflow_deep.models import inducing_chain
from gpflow_deep.models.passage import walk
from gpflow_deep.numerics import parts
from gpflow_deep.posteriors import (
    FactorisedWeights,
    GlobalInducingWeights,
    LocalInducingWeights,
    PriorWeights,
    PseudoObservations,
    WeightSpec,
)
from tests.models.contract import (
    PREDICTIONS,
    XNEW,
    X,
    Y,
    assert_close,
    differ,
    fix_draws,
    gradients,
    randomise,
)

ESTIMATORS = ("marginal", "analytic_kl", "monte_carlo")
LOCALLY = partial(FactorisedWeights, local_reparameterisation=True)
MIXES: dict[str, Any] = {
    "global": GlobalInducingWeights,
    "separate": partial(GlobalInducingWeights, precision="separate"),
    "local": LocalInducingWeights,
    "factorised": FactorisedWeights,
    "locally reparameterised": LOCALLY,
    "factorised below": [FactorisedWeights, GlobalInducingWeights],
    "random features below": [PriorWeights, GlobalInducingWeights],
}


def _model(
    posterior: Any = GlobalInducingWeights, prior: str = "neal", top: Any = None, **settings: Any
) -> gd.models.GlobalInducingBNN:
    layers = [BayesianDense(4, prior), Activation("tanh"), top or BayesianDense(1, prior)]
    settings = {"num_data": len(X), "num_samples": 4, "num_prediction_samples": 8, **settings}
    likelihood = settings.pop("likelihood", None) or gpflow.likelihoods.Gaussian(0.1)
    model = gd.models.GlobalInducingBNN(layers, likelihood, X[:6], posterior=posterior, **settings)
    randomise(model, scale=0.1)
    return model


def _conv_model(**settings: Any) -> tuple[gd.models.GlobalInducingBNN, np.ndarray, np.ndarray]:
    """A network with all kinds of layers, and images of three classes."""
    rng = np.random.default_rng(0)
    images = rng.standard_normal([12, 6, 6, 2])
    block = Residual(
        [BayesianConv2D(3, stride=2, prior="spatial"), Activation(), BayesianConv2D(3)],
        [BayesianConv2D(3, 1, 2, prior="scale")],
    )
    layers = [block, GroupNormalization(), Activation(), MaxPool2D(2), Flatten(), BayesianDense(3)]
    settings = {"num_samples": 2, "num_data": 12, "num_prediction_samples": 4, **settings}
    likelihood = gpflow.likelihoods.Softmax(3)
    model = gd.models.GlobalInducingBNN(layers, likelihood, images[:4], **settings)
    return model, images.reshape([12, -1]), rng.integers(3, size=[12, 1])


# ---------------------------------------------------------------- limits


@pytest.mark.parametrize("precision", ["shared", "separate", "full"])
def test_one_layer_is_a_gp_with_a_linear_kernel(precision: str) -> None:
    """Weight space and function space by two models."""
    network = gd.models.GlobalInducingBNN(
        [BayesianDense(1, "standard")],
        gpflow.likelihoods.Gaussian(0.1),
        X[:6],
        posterior=partial(GlobalInducingWeights, precision=precision),
    )
    kernel = gpflow.kernels.Linear() + gpflow.kernels.Constant()
    gpflow.config.set_default_jitter(1e-10)
    gps = gd.models.GlobalInducingDeepGP(
        [GPLayer(kernel, X[:6], 1)],
        gpflow.likelihoods.Gaussian(0.1),
        posterior=partial(PseudoObservations, precision=precision),
    )
    (q,), (other,) = network.inducing_posteriors, gps.inducing_posteriors
    randomise(q.observations)
    gpflow.utilities.multiple_assign(other, gpflow.utilities.read_values(q.observations))
    assert_close(network.elbo((X, Y)), gps.elbo((X, Y)), rtol=1e-6)
    assert_close(network.predict_f(XNEW), gps.predict_f(XNEW), rtol=1e-6, atol=1e-8)
    joint = network.predict_f(XNEW, full_cov=True), gps.predict_f(XNEW, full_cov=True)
    assert_close(*joint, rtol=1e-6, atol=1e-7)


def test_one_layer_reaches_the_exact_evidence() -> None:
    """Inducing points at the data, observed as the targets are: Bayesian linear regression."""
    model = gd.models.GlobalInducingBNN(
        [BayesianDense(1)], gpflow.likelihoods.Gaussian(0.1), X, pseudo_outputs=Y
    )
    model.inducing_posteriors[0].observations.assign_precision(np.full(len(X), 10.0))
    kernel = gpflow.kernels.Linear(1 / 3) + gpflow.kernels.Constant(1 / 3)
    exact = gpflow.models.GPR((X, Y), kernel, noise_variance=0.1)
    assert_close(model.elbo((X, Y)), exact.log_marginal_likelihood(), rtol=1e-9)
    assert_close(model.predict_y(XNEW), exact.predict_y(XNEW), rtol=1e-8)


@pytest.mark.parametrize("prior", ["neal", "scale"])
@pytest.mark.parametrize("posterior", [LOCALLY, GlobalInducingWeights, PriorWeights])
def test_one_layer_has_the_components_of_what_it_depends_on(posterior: Any, prior: str) -> None:
    """Factorised weights are the same whatever was drawn for their prior precision."""
    model = gd.models.GlobalInducingBNN(
        [BayesianDense(1, prior)],
        gpflow.likelihoods.Gaussian(0.1),
        X[:6],
        posterior=posterior,
        num_prediction_samples=8,
    )
    depends = prior == "scale" and posterior is not LOCALLY
    f = model.predict_f_mixture(XNEW)
    assert f.means.shape == (8 if depends else 1, len(XNEW), 1)
    assert model.predict_y(XNEW)[0].shape == model.predict_f_samples(XNEW).shape == (len(XNEW), 1)
    assert np.isfinite(model.predict_log_density((X, Y))).all()
    _, slopes = gradients(lambda: model.training_loss((X, Y)), model.trainable_variables)
    assert all(np.isfinite(slope).all() for slope in slopes)


def test_gps_on_top_of_no_network_are_a_global_inducing_gp() -> None:
    kernel = gpflow.kernels.SquaredExponential(lengthscales=[0.7, 1.3])
    settings: dict[str, Any] = {"num_samples": 3, "pseudo_outputs": Y[:6]}
    likelihood = gpflow.likelihoods.Gaussian(0.1)
    model = gd.models.GlobalInducingBNN([GPLayer(kernel, None, 1)], likelihood, X[:6], **settings)
    gps = gd.models.GlobalInducingDeepGP([GPLayer(kernel, X[:6], 1)], likelihood, **settings)
    assert_close(model.elbo((X, Y)), gps.elbo((X, Y)))
    assert_close(model.predict_f(XNEW, full_cov=True), gps.predict_f(XNEW, full_cov=True))
    noise = model.draw_noise(len(X), seed=[1, 2])
    assert noise == []


# ---------------------------------------------------------------- the estimators


@pytest.mark.parametrize("mix", MIXES)
def test_the_estimators_have_one_expectation(mix: str) -> None:
    results = {}
    for estimator in ESTIMATORS:
        model = _model(MIXES[mix], "scale", estimator=estimator, num_samples=2000)
        tf.random.set_seed(0)
        values = np.array([model.elbo((X, Y)) for _ in range(10)])
        results[estimator] = values.mean(), values.std() / np.sqrt(len(values) - 1)
    mean, error = results.pop("marginal")
    for other_mean, other_error in results.values():
        assert abs(mean - other_mean) < 5.0 * np.hypot(error, other_error) + 1e-9


@pytest.mark.parametrize("estimator", ESTIMATORS[1:])
def test_no_draws_of_a_density_that_is_all_steps(estimator: str) -> None:
    with pytest.raises(ValueError, match="estimator: expected 'marginal' for MultiClass"):
        _model(likelihood=gpflow.likelihoods.MultiClass(1), estimator=estimator)


def test_local_reparameterisation_has_the_same_expectation() -> None:
    results = []
    for posterior in (FactorisedWeights, LOCALLY):
        model = _model(posterior, num_samples=2000)
        values = [model.elbo((X, Y)).numpy() for _ in range(10)]
        results.append((np.mean(values), np.std(values) / 3.0))
    (one, first), (other, second) = results
    assert abs(one - other) < 5.0 * np.hypot(first, second)
    assert second < first


def test_local_reparameterisation_beside_a_posterior_with_inducing_inputs() -> None:
    """What one branch of a block does to the inducing points the other one does not see."""

    def model(posterior: Any) -> gd.models.GlobalInducingBNN:
        block = Residual([BayesianDense(2)], [BayesianDense(2)])
        layers = [BayesianDense(2), block, BayesianDense(1)]
        likelihood = gpflow.likelihoods.Gaussian()
        return gd.models.GlobalInducingBNN(layers, likelihood, X[:6], posterior=posterior)

    for branches in ([LOCALLY, GlobalInducingWeights], [GlobalInducingWeights, LOCALLY]):
        bnn = model([FactorisedWeights, *branches, FactorisedWeights])
        assert np.isfinite(bnn.elbo((X, Y)))
        with pytest.raises(ValueError, match="expected no local_reparameterisation below a layer"):
            model([LOCALLY, *branches, FactorisedWeights])
    with pytest.raises(ValueError, match="expected no local_reparameterisation below a layer"):
        model([FactorisedWeights, FactorisedWeights, LOCALLY, GlobalInducingWeights])


def test_inducing_inputs_that_no_posterior_uses_are_not_trained() -> None:
    """GPflow's Scipy takes no variable without a gradient."""
    model = _model(FactorisedWeights)
    fix_draws(model)
    loss = model.training_loss_closure((X, Y), compile=False, seed=0)
    before = loss()
    gpflow.optimizers.Scipy().minimize(
        loss, model.trainable_variables, options={"maxiter": 3}, compile=False
    )
    assert loss() < before
    assert _model().inducing_inputs.trainable


def test_models_on_the_same_layers() -> None:
    layers = [BayesianDense(3, "scale"), Activation("tanh"), BayesianDense(1)]
    gaussian = gpflow.likelihoods.Gaussian
    first = gd.models.GlobalInducingBNN(layers, gaussian(), X[:6])
    with pytest.warns(UserWarning, match="is built on layers of"):
        second = gd.models.GlobalInducingBNN(layers, gaussian(), X[:6])
    assert len(first.layers) == len(second.layers)


def test_gps_on_top() -> None:
    """The estimators agree, and the network below learns."""
    results = {}
    for estimator in ESTIMATORS:
        top = GPLayer(gpflow.kernels.SquaredExponential(), None, 1)
        model = _model(top=top, estimator=estimator, num_samples=1000)
        tf.random.set_seed(0)
        values = np.array([model.elbo((X, Y)) for _ in range(10)])
        results[estimator] = values.mean(), values.std() / 3.0
    mean, error = results.pop("marginal")
    for other_mean, other_error in results.values():
        assert abs(mean - other_mean) < 5.0 * np.hypot(error, other_error)
    _, slopes = gradients(lambda: model.training_loss((X, Y)), model.trainable_variables)
    assert all(np.isfinite(slope).all() and np.any(slope) for slope in slopes)
    for full_cov in (False, True):
        draws = model.predict_f_samples(XNEW, 2000, full_cov=full_cov)
        mean, variance = model.predict_f(XNEW)
        np.testing.assert_allclose(np.var(draws, axis=0), variance, rtol=0.35)


def test_tempering_is_of_what_training_maximises() -> None:
    model = _model(prior="scale")
    fix_draws(model)
    bounds = model.elbo((X, Y)), model.maximum_log_likelihood_objective((X, Y))
    assert_close(*bounds)
    model.kl_weight = 0.0
    fit = model.maximum_log_likelihood_objective((X, Y))
    model.kl_weight = lambda: tf.constant(0.25, tf.float64)
    tempered = model.maximum_log_likelihood_objective((X, Y))
    assert_close(model.elbo((X, Y)), bounds[0])
    assert_close(tempered, fit + 0.25 * (bounds[0] - fit))


# ---------------------------------------------------------------- draws and predictions


@pytest.mark.parametrize("mix", ["global", "factorised", "local"])
def test_draws_of_functions_have_the_predicted_moments(mix: str) -> None:
    model = _model(MIXES[mix], "scale", num_prediction_samples=3000)
    mean, variance = model.predict_f(XNEW)
    _, covariance = model.predict_f(XNEW, full_cov=True)
    assert_close(tf.linalg.diag_part(covariance)[0], variance[:, 0])
    draws = model.predict_f_samples(XNEW, 4000)[..., 0].numpy()
    scale = np.sqrt(variance[:, 0])
    np.testing.assert_allclose(draws.mean(axis=0) / scale, mean[:, 0] / scale, atol=0.1)
    correlations = covariance[0] / np.outer(scale, scale)
    np.testing.assert_allclose(np.cov(draws.T) / np.outer(scale, scale), correlations, atol=0.2)


def test_draws_from_the_prior() -> None:
    """A wide network's variance by hand: the mean square of a layer's inputs, constant included."""
    layers = [BayesianDense(200), Activation("relu"), BayesianDense(1)]
    model = gd.models.GlobalInducingBNN(layers, gpflow.likelihoods.Gaussian(), X[:4])
    first, second = model.sample_prior(XNEW, 2000, seed=[1, 2])
    expected = (np.square(XNEW).sum(axis=1) + 1) / 3
    np.testing.assert_allclose(np.var(first, axis=(0, 2)), expected, rtol=0.05)
    np.testing.assert_allclose(
        np.var(second, axis=0)[:, 0], (200 * expected / 2 + 1) / 201, rtol=0.15
    )


def test_uncertainty_by_layer() -> None:
    model = _model(FactorisedWeights)
    variances = model.weight_variances(5000)
    for q, variance in zip(model.inducing_posteriors, variances, strict=True):
        np.testing.assert_allclose(variance, np.exp(q.log_variance) / q.fan_in, rtol=0.15)
    functions = model.function_variances(XNEW, 3000)
    assert [v.shape for v in functions] == [(4,), (1,)]
    total = np.mean(model.predict_f(XNEW)[1])
    np.testing.assert_allclose(functions[1][0], total, rtol=0.8)


@pytest.mark.parametrize("is_network", [True, False])
def test_uncertainty_of_functions_adds_up(
    is_network: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    By draws that have the moments of normals it is the exact variance: of a network all of it is between
    draws, of GPs some is left where their inducing outputs are given.
    """

    def draws(shapes: list[Any], seed: Any) -> list[tf.Tensor]:
        """Of S x T x n the same for all T."""
        sizes = [int(shape[-1]) for shape in shapes]
        corners = sum(sizes) ** 0.5 * np.eye(sum(sizes))
        columns = np.split(np.concatenate([corners, -corners]), np.cumsum(sizes)[:-1], axis=1)
        return [tf.broadcast_to(part[:, None], shape) for part, shape in zip(columns, shapes)]

    layer: Any = BayesianDense(2) if is_network else GPLayer(gpflow.kernels.Matern52(), None, 2)
    model = gd.models.GlobalInducingBNN([layer], gpflow.likelihoods.Gaussian(), X[:6])
    randomise(model)
    exact = np.mean(model.predict_f(XNEW)[1], axis=0)
    monkeypatch.setattr(inducing_chain, "standard_normals", draws)
    # Weights; or the GPs' values at a point, inducing outputs, and noise of pseudo-observations.
    (variances,) = model.function_variances(XNEW, 2 * (3 if is_network else 2 + 6 + 6))
    assert_close(variances, exact, rtol=1e-6)


def test_uncertainty_by_layer_of_many_points_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    for top in (None, GPLayer(gpflow.kernels.SquaredExponential(), None, 1)):
        model = _model(top=top)
        whole = model.function_variances(X, 20)
        monkeypatch.setattr(parts, "_ROWS", 100)
        assert_close(model.function_variances(X, 20), whole)
        monkeypatch.undo()


def test_predictions_and_their_cache() -> None:
    model = _model(prior="scale")
    posterior = model.posterior()
    for name, predict in PREDICTIONS.items():
        expected = predict(model, XNEW)
        assert_close(predict(posterior, XNEW), expected)
        if name in ("predict_f full_cov", "predict_log_density"):  # of each kind one
            compiled = tf.function(partial(predict, model, XNEW), autograph=False)
            assert_close(compiled(), expected, rtol=1e-7)
    variables = model.posterior(gpflow.posteriors.PrecomputeCacheType.VARIABLE)
    assert_close(variables.predict_y(XNEW), model.predict_y(XNEW))
    mixture = model.predict_f_mixture(XNEW, 20)
    assert mixture.means.shape == (20, 6, 1)


# ---------------------------------------------------------------- images


def test_networks_of_all_kinds_of_layers(tmp_path: Path) -> None:
    model, images, classes = _conv_model()
    fix_draws(model, len(images))
    before, slopes = gradients(
        lambda: model.training_loss((images, classes)), model.trainable_variables
    )
    for variable, slope in zip(model.trainable_variables, slopes, strict=True):
        assert np.isfinite(slope).all() and np.any(slope), variable.name
    model, images, classes = _conv_model()
    gd.training.fit(
        model, (images, classes), steps=20, batch_size=6, learning_rate=0.05, progress=False
    )
    fix_draws(model, len(images))
    assert model.training_loss((images, classes)) < before
    probabilities, _ = model.predict_y(images)
    np.testing.assert_allclose(np.sum(probabilities, axis=1), 1.0, rtol=1e-6)
    assert np.isfinite(gd.metrics.log_loss(classes, probabilities))
    other, _, _ = _conv_model()
    path = tf.train.Checkpoint(model=model).save(str(tmp_path / "checkpoint"))
    tf.train.Checkpoint(model=other).restore(path).assert_consumed()
    assert_close(other.predict_f(images), model.predict_f(images))
    assert [v.shape[-1] for v in model.function_variances(images, 3)] == [3, 3, 3, 3]
    assert len(model.sample_prior(images, 2)) == 4


def test_factorised_convolutions_draw_their_outputs() -> None:
    """Mean and variance of its outputs by local reparameterisation are those over its weights."""
    model, images, _ = _conv_model(posterior=LOCALLY)
    noise = model.draw_noise(len(images), 2000, seed=[1, 2])
    assert noise[0].shape == (2000, 12, 27)
    points, inducing = model._noise(noise, len(images), model._num_sampled, training=True)
    assert len(points) == 3
    passage = model._passage(model._prepare_training(inducing))
    points = model._by_layer(points, 3, training=True)
    locally = walk(model._random_layers, passage, tf.constant(images), points)[0].sample
    weights = model._passage(model._draw_chain(2000, num_sampled=4))
    outputs = walk(model._random_layers, weights, tf.constant(images), [None] * 4)[0].sample
    np.testing.assert_allclose(np.mean(locally, axis=0), np.mean(outputs, axis=0), atol=0.02)
    np.testing.assert_allclose(np.var(locally, axis=0), np.var(outputs, axis=0), rtol=0.3)


# ---------------------------------------------------------------- as a GPflow model


_COPIES = (copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model)))


@pytest.mark.parametrize("copied", _COPIES)
def test_copies(copied: Any) -> None:
    model = _model(prior="scale")
    other = copied(model)
    assert_close(other.predict_y(XNEW), model.predict_y(XNEW), rtol=0, atol=0)
    randomise(other)
    assert differ(other.predict_y(XNEW), model.predict_y(XNEW))
    assert len(other.trainable_variables) == len(model.trainable_variables)


def test_training_in_single_precision() -> None:
    gpflow.config.set_default_float(np.float32)
    for mix in ("global", "locally reparameterised"):
        model = _model(MIXES[mix], "scale", num_samples=2)
        data = X.astype(np.float32), Y.astype(np.float32)
        adam = tf_keras.optimizers.Adam(0.02)
        loss_of = partial(model.training_loss, data)
        for _ in range(5):
            loss, slopes = gradients(loss_of, model.trainable_variables)
            assert loss.dtype == tf.float32 and np.isfinite(loss)
            adam.apply_gradients(zip(slopes, model.trainable_variables, strict=True))
        assert model.predict_y(XNEW)[0].dtype == tf.float32


@pytest.mark.parametrize("precision", ["shared", "separate", "full"])
@pytest.mark.parametrize("posterior", [GlobalInducingWeights, LocalInducingWeights])
def test_observations_so_precise_that_single_precision_loses_the_prior(
    posterior: Any, precision: str
) -> None:
    """Training under the prior "scale" meets such draws, and goes on by gradients that are right."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, size=(60, 1))
    noise: list[tf.Tensor] = []
    found: list[tuple[float, list[np.ndarray]]] = []
    for dtype in (np.float64, np.float32):
        gpflow.config.set_default_float(dtype)
        data = X.astype(dtype), np.sin(X).astype(dtype)
        start: dict[str, Any] = {"input_shape": 1}
        if posterior is GlobalInducingWeights:
            start = {"inducing_inputs": data[0], "pseudo_outputs": data[1]}
        model = gd.models.GlobalInducingBNN(
            [BayesianDense(40), Activation(), BayesianDense(1)],
            gpflow.likelihoods.Gaussian(0.01),
            posterior=[posterior, partial(posterior, precision=precision)],
            num_samples=3,
            num_data=60,
            **start,
        )
        observations = model.inducing_posteriors[-1].observations
        size = observations.num_inducing
        values = np.full([1, size], 1e6) if precision == "separate" else np.full(size, 1e6)
        observations.assign_precision(np.diag(values) if precision == "full" else values)
        noise = noise or model.draw_noise(60, seed=[1, 2])
        with tf.GradientTape() as tape:
            bound = model.elbo(data, [tf.cast(z, dtype) for z in noise])
        gradients = tape.gradient(bound, model.trainable_variables)
        found.append((float(bound), [np.asarray(g) for g in gradients]))
    (exact, expected), (bound, gradients) = found
    np.testing.assert_allclose(bound, exact, rtol=1e-3)
    for own, other in zip(gradients, expected, strict=True):
        assert np.linalg.norm(own - other) < 0.03 * np.linalg.norm(other)


def test_one_full_precision_for_all_draws_in_single_precision() -> None:
    """The product of matrices at whose size TensorFlow's ends the process in float32."""
    bounds: list[float] = []
    noise: list[tf.Tensor] = []
    for dtype in (np.float64, np.float32):
        gpflow.config.set_default_float(dtype)
        rng = np.random.default_rng(0)
        X = rng.normal(size=(60, 2)).astype(dtype)
        Y = np.sin(X.sum(axis=1, keepdims=True))
        model = gd.models.GlobalInducingBNN(
            [BayesianDense(70), Activation(), BayesianDense(1)],
            gpflow.likelihoods.Gaussian(0.1),
            X[:50],
            pseudo_outputs=Y[:50],
            posterior=partial(GlobalInducingWeights, precision="full"),
            num_samples=10,
            num_data=60,
        )
        noise = noise or model.draw_noise(60, seed=[1, 2])
        bounds.append(float(model.elbo((X, Y), [tf.cast(z, dtype) for z in noise])))
    np.testing.assert_allclose(bounds[1], bounds[0], rtol=1e-4)


def _gp_on_three_features(kernel: Any, mean_function: Any = None) -> list[Any]:
    return [BayesianDense(3), Activation(), GPLayer(kernel, None, 1, mean_function)]


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        ({"estimator": "exact"}, ValueError, "estimator: expected one of"),
        ({"kl_weight": -1.0}, ValueError, "kl_weight: expected a number of at least 0"),
        ({"layers": []}, TypeError, "layers: expected a non-empty sequence"),
        (
            {"layers": [BayesianDense(2), Activation()]},
            TypeError,
            "layers: expected BayesianDense or",
        ),
        (
            {"layers": [tf.nn.relu, BayesianDense(2)]},
            TypeError,
            "layers of a network below the last",
        ),
        (
            {"layers": [BayesianDense(1), GPLayer(gpflow.kernels.RBF(), X[:3], 1)]},
            ValueError,
            "expected a GPLayer without an inducing variable",
        ),
        (
            {"layers": [BayesianConv2D(2), BayesianDense(1)]},
            ValueError,
            r"takes images \[H, W, C\]",
        ),
        ({"inducing_inputs": None}, ValueError, "input_shape: expected it without inducing_inputs"),
        ({"inducing_inputs": X[:, 0]}, ValueError, r"inducing_inputs: expected \[M, D\] or"),
        ({"input_shape": 2}, ValueError, "input_shape: expected None beside inducing_inputs"),
        (
            {"inducing_inputs": None, "input_shape": 2},
            ValueError,
            "inducing_inputs: expected some for GlobalInducingWeights",
        ),
        ({"posterior": [FactorisedWeights] * 3}, ValueError, "for each of 2 layers, got 3"),
        ({"posterior": lambda spec: spec}, TypeError, "function that makes a WeightPosterior"),
        ({"posterior": "factorised"}, TypeError, "posterior's class or a function.* got 'fact"),
        (
            {"posterior": gd.posteriors.MeanField},
            TypeError,
            "posterior: expected .*, got .*MeanField",
        ),
        (
            {"posterior": lambda _: FactorisedWeights(WeightSpec(7, 7))},
            ValueError,
            r"posterior: expected .* = \(3, 3\), got one with \(7, 7\)",
        ),
        (
            {"inducing_inputs": None, "input_shape": 2.0},
            ValueError,
            "input_shape: expected a positive integer, got 2.0",
        ),
        (
            {"posterior": [LOCALLY, GlobalInducingWeights]},
            ValueError,
            "expected no local_reparameterisation below a layer",
        ),
        ({"pseudo_outputs": Y[:3]}, ValueError, r"pseudo_outputs: expected shape \[6, 1\]"),
        (
            {"layers": _gp_on_three_features(gpflow.kernels.RBF(lengthscales=[1.0, 1.0]))},
            ValueError,
            "kernel: SquaredExponential .* does not fit inputs of dimension 3",
        ),
        (
            {"layers": _gp_on_three_features(gpflow.kernels.RBF(active_dims=[3]))},
            ValueError,
            "kernel: SquaredExponential .* does not fit inputs of dimension 3",
        ),
        (
            {
                "layers": _gp_on_three_features(
                    gpflow.kernels.RBF(), gpflow.functions.Linear(np.ones([2, 1]))
                )
            },
            ValueError,
            "mean_function: Linear does not fit inputs of dimension 3",
        ),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], error: type, message: str) -> None:
    layers: Any = [BayesianDense(3), BayesianDense(1)]
    arguments = {"layers": layers, "inducing_inputs": X[:6], **arguments}
    layers = arguments.pop("layers")
    inducing_inputs = arguments.pop("inducing_inputs")
    likelihood = gpflow.likelihoods.Gaussian()
    with pytest.raises(error, match=message):
        gd.models.GlobalInducingBNN(layers, likelihood, inducing_inputs, **arguments)


def test_variables_of_a_keras_layer_are_trained() -> None:
    dense = tf.keras.layers.Dense(5, dtype="float64")
    layers = [Activation(dense), BayesianDense(3), Activation(), BayesianDense(1)]
    model = gd.models.GlobalInducingBNN(layers, gpflow.likelihoods.Gaussian(0.1), X[:6])
    assert len(model.trainable_variables) == 8
    start = dense.get_weights()
    gd.training.fit(model, (X, Y), steps=3, progress=False)
    for one, other in zip(dense.get_weights(), start, strict=True):
        assert differ(one, other)
    for copied in _COPIES:
        other = copied(model)
        assert_close(other.predict_f(XNEW), model.predict_f(XNEW))
        other.trainable_variables[0].assign(2.0 * other.trainable_variables[0])
        assert differ(other.predict_f(XNEW), model.predict_f(XNEW))


def test_sizes_by_numpy() -> None:
    layers = [BayesianDense(np.int64(1))]
    model = gd.models.GlobalInducingBNN(
        layers, gpflow.likelihoods.Gaussian(), input_shape=np.int64(2), posterior=FactorisedWeights
    )
    assert model.predict_f(XNEW)[0].shape == (len(XNEW), 1)


def test_a_layer_twice() -> None:
    layer = BayesianDense(2)
    likelihood = gpflow.likelihoods.Gaussian()
    with pytest.raises(ValueError, match="expected each random layer once"):
        gd.models.GlobalInducingBNN([layer, layer], likelihood, X[:6])
    assert isinstance(layer, Module)


def test_inputs_of_another_dimension() -> None:
    with pytest.raises(ValueError, match=r"Xnew: expected \[..., 2\]"):
        _model().predict_f(XNEW[:, :1])


def test_inputs_of_another_dimension_than_gps_alone_have() -> None:
    layer = GPLayer(gpflow.kernels.RBF(), None, 1)
    model = gd.models.GlobalInducingBNN([layer], gpflow.likelihoods.Gaussian(), X[:6])
    for predictor in (model, model.posterior()):
        with pytest.raises(ValueError, match=r"Xnew: expected \[..., 2\]"):
            predictor.predict_f_mixture(np.ones([6, 4]))
    with pytest.raises(ValueError, match=r"expected \[..., 2\]"):
        model.predict_log_density((np.ones([4, 1]), np.ones([4, 1])))


def _images(size: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(2)
    return rng.normal(size=[8, size, size, 3]), rng.integers(2, size=[8, 1])


def test_a_convolution_of_one_position_is_a_dense_layer() -> None:
    """It draws its weights all the same, where the dense layer of many inputs draws their values."""
    images, labels = _images(2)
    likelihood = gpflow.likelihoods.Softmax(2)
    first = [BayesianConv2D(4, 2, stride=2)], [Flatten(), BayesianDense(4)]
    models = [
        gd.models.GlobalInducingBNN(
            [*layers, Activation(), Flatten(), BayesianDense(2)],
            likelihood,
            images[:4],
            estimator="monte_carlo",
        )
        for layers in first
    ]
    convolved, dense = (model._inducing_shapes(3, 1, training=True) for model in models)
    assert convolved == [[3, 4, 13]] and dense == [[3, 4, 13], [3, 4, 4]]
    data = images.reshape(8, -1), labels
    assert all(np.isfinite(model.elbo(data)) for model in models)
    divergences = [model._draw_chain(1, [1, 2], 2).divergences[0] for model in models]
    assert_close(*divergences)


@pytest.mark.parametrize(
    "posterior, message",
    [
        (partial(GlobalInducingWeights, precision="full"), "precision: expected 'shared' or"),
        (LocalInducingWeights, "another one than LocalInducingWeights for a convolution"),
    ],
)
def test_posteriors_that_convolutions_do_not_have(posterior: Any, message: str) -> None:
    images, _ = _images(2)
    layers = [BayesianConv2D(4, 2, stride=2), Flatten(), BayesianDense(2)]
    with pytest.raises(ValueError, match=message):
        gd.models.GlobalInducingBNN(
            layers,
            gpflow.likelihoods.Softmax(2),
            images[:4],
            posterior=[posterior, GlobalInducingWeights],
        )


def test_outputs_without_variance_have_a_gradient() -> None:
    """Of a patch of zeros, without a bias, a unit's output is zero for all weights."""
    images, labels = _images(6)
    images[:, [0, 1, 4, 5]] = images[:, :, [0, 1, 4, 5]] = 0.0
    layers = [BayesianConv2D(2, 3, bias=False), AveragePool2D(2), Activation("tanh")]
    model = gd.models.GlobalInducingBNN(
        [*layers, Flatten(), BayesianDense(2)],
        gpflow.likelihoods.Softmax(2),
        input_shape=images.shape[1:],
        posterior=LOCALLY,
    )
    loss = model.training_loss_closure((images.reshape(8, -1), labels), compile=False)
    with tf.GradientTape() as tape:
        value = loss()
    for gradient in tape.gradient(value, model.trainable_variables):
        assert np.isfinite(gradient).all()


def test_predictions_of_images_are_in_parts_by_their_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many channels take as many fewer rows at a time; the numbers are the same."""
    images, labels = _images(6)
    model = gd.models.GlobalInducingBNN(
        [BayesianConv2D(5, 3), Activation(), Flatten(), BayesianDense(2)],
        gpflow.likelihoods.Softmax(2),
        images[:4],
        num_prediction_samples=10,
    )
    rows = images.reshape(8, -1)
    whole = model.predict_y(rows)[0], model.predict_log_density((rows, labels))
    monkeypatch.setattr(gd.numerics.parts, "_NUMBERS", 6 * 6 * 5 * 10 * 3)
    assert model._part_size(model._prediction(model._prepare(), None, None)) == 3
    assert_close((model.predict_y(rows)[0], model.predict_log_density((rows, labels))), whole)


def test_noise_is_named_by_its_shapes() -> None:
    model = _model(estimator="monte_carlo")
    noise = model.draw_noise(len(XNEW))
    with pytest.raises(ValueError, match=r"noise: expected tensors of shapes \[S, "):
        model.predict_f(XNEW, noise=[*noise, *noise])

"""Identities of amortised deep GPs, of deep sigma point processes and of orthogonal inducing points."""

from __future__ import annotations

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.keras import tf_keras
from scipy.linalg import block_diag

import gpflow_deep as gd
from tests.models.contract import assert_close, randomise

RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, 2))
Y = np.sin(X[:, :1]) + 0.1 * RNG.normal(size=(12, 1))
XNEW = RNG.normal(size=(5, 2))


def _model(rule: str = "AR2P", **settings: Any) -> gd.models.AmortizedDeepGP:
    layers = gd.layers.build_amortized_layers(2, (3,), num_inducing=4)
    likelihood = gpflow.likelihoods.Gaussian(0.1)
    model = gd.models.AmortizedDeepGP(
        layers, likelihood, rule, **{"num_samples": 6, "num_data": 12, **settings}
    )
    randomise(model)
    return model


def _sparse(kind: type = gd.models.DeepGP, **settings: Any) -> gd.models.DeepGP:
    layers = gd.layers.build_layers(X, (3,), num_inducing=4)
    return kind(layers, gpflow.likelihoods.Gaussian(0.1), num_data=12, **settings)


def test_with_maps_that_ignore_the_input_a_layer_is_an_svgp() -> None:
    """Inducing points and q are then the same everywhere: N equal divergences, of which the mean counts."""
    Z, mean, sd = RNG.normal(size=(4, 2)), RNG.normal(size=(1, 4)), RNG.uniform(0.5, 1.0, (1, 4))
    maps, network = gd.layers.AffineMaps(2, 4), gd.layers.MLP([2, 4], num_networks=2)
    maps.W.assign(np.zeros([4, 2, 2]))
    maps.b.assign(Z)
    network.W[0].assign(np.zeros([2, 2, 4]))
    network.b[0].assign([mean, np.log(np.expm1(sd))])
    kernel, likelihood = gpflow.kernels.Matern52(), gpflow.likelihoods.Gaussian(0.2)
    layer = gd.layers.AmortizedGPLayer(kernel, 4, 2, 1, networks=[maps, network])
    model = gd.models.AmortizedDeepGP([layer], likelihood, "AR2", num_data=50)
    svgp = gpflow.models.SVGP(
        kernel, likelihood, Z, q_mu=mean.T, q_sqrt=sd.T, q_diag=True, whiten=False, num_data=50
    )
    assert_close(model.predict_f(XNEW), svgp.predict_f(XNEW), rtol=1e-7)
    assert_close(model.elbo((X, Y)), svgp.elbo((X, Y)), rtol=1e-7)


def test_sites_at_draws_are_draws() -> None:
    """AR2P with equal weights and sites at the draws of AR2, the same for all points."""
    sites, sampled = _model("AR2P"), _model("AR2")
    for one, other in zip(sites.layers, sampled.layers, strict=True):
        gpflow.utilities.multiple_assign(one, gpflow.utilities.read_values(other))
    noise = RNG.uniform(-2, 2, size=(6, 1, 3))
    sites.likelihood.variance.assign(sampled.likelihood.variance)
    sites.sites.nodes[0].assign(noise[:, 0])
    sites.sites.weight_logits.assign(np.zeros(5))
    assert_close(sites.elbo((X, Y)), sampled.elbo((X, Y), noise=[np.tile(noise, [1, 12, 1])]))


def test_sites_start_as_a_standard_normal() -> None:
    (nodes,) = _sparse(gd.models.DeepSigmaPointProcess, num_sites=256).sites.noise()
    np.testing.assert_allclose(np.mean(nodes, axis=0), 0.0, atol=0.03)
    np.testing.assert_allclose(np.cov(nodes[:, 0].numpy().T), np.eye(3), atol=0.1)


def test_a_sample_is_its_own_mean_where_there_is_no_variance() -> None:
    """AR1 and AR2 differ in what the networks see, and that is the same for draws of zero."""
    one, two = _model("AR1"), _model("AR2")
    for model in (one, two):
        randomise(model, seed=3)
    zeros = [np.zeros([3, 12, 3])]
    assert_close(one.elbo((X, Y), noise=zeros), two.elbo((X, Y), noise=zeros))
    draws = [RNG.normal(size=(3, 12, 3))]
    assert abs(one.elbo((X, Y), noise=draws) - two.elbo((X, Y), noise=draws)) > 1e-3


def test_predictive_objective_is_the_predictive_density() -> None:
    """Less the weighted divergences; the ELBO is below it for the weight of one."""
    model = _model(predictive_objective=0.3, num_data=60)
    kl = tf.reduce_mean(model.prior_kl(X))
    density = tf.reduce_sum(model.predict_log_density((X, Y)))
    assert_close(model.maximum_log_likelihood_objective((X, Y)), 5 * density - 0.3 * kl)
    assert model.elbo((X, Y)) < 5 * density - kl


def test_sigma_points_are_a_mean_field_deep_gp_with_sites_for_draws() -> None:
    points = _sparse(gd.models.DeepSigmaPointProcess, num_sites=6, predictive_objective=0.5)
    randomise(points)
    plain = _sparse(posterior=points.inducing_posterior)
    for one, other in zip(plain.layers, points.layers, strict=True):
        gpflow.utilities.multiple_assign(one, gpflow.utilities.read_values(other))
    plain.likelihood.variance.assign(points.likelihood.variance)
    points.sites.weight_logits.assign(np.zeros(5))
    noise = [tf.broadcast_to(z, [6, 12, 3]) for z in points.sites.noise()]
    assert_close(points.elbo((X, Y)), plain.elbo((X, Y), noise=noise))
    points.sites.weight_logits.assign(RNG.normal(size=5))
    density = tf.reduce_sum(points.predict_log_density((X, Y)))
    objective = points.maximum_log_likelihood_objective((X, Y))
    assert_close(objective, density - 0.5 * points.prior_kl())


def test_joint_draws_of_sigma_points_have_the_moments_of_predictions() -> None:
    model = _sparse(gd.models.DeepSigmaPointProcess, num_sites=4)
    randomise(model)
    tf.random.set_seed(1)
    draws = model.predict_f_samples(XNEW, 8000, full_cov=True).numpy()[..., 0]
    mean, covariance = model.predict_f(XNEW, full_cov=True)
    np.testing.assert_allclose(draws.mean(0), mean[:, 0], atol=0.06)
    np.testing.assert_allclose(np.cov(draws.T), covariance[0], atol=0.06)


@pytest.mark.parametrize("rule", ["AR1", "AR2P"])
def test_draws_have_the_moments_of_predictions(rule: str) -> None:
    model = _model(rule)
    tf.random.set_seed(1)
    draws = model.predict_f_samples(XNEW, 8000, full_cov=False).numpy()[..., 0]
    mean, variance = model.predict_f(XNEW)
    np.testing.assert_allclose(draws.mean(0), mean[:, 0], atol=0.06)
    np.testing.assert_allclose(draws.var(0), variance[:, 0], rtol=0.08)


def test_orthogonal_points_that_are_fixed_stay_so() -> None:
    parts = gpflow.kernels.Matern52(), gpflow.likelihoods.Gaussian(0.1)
    Z, O = (gpflow.inducing_variables.InducingPoints(rows) for rows in (X[:3], X[3:5]))
    for points in (Z, O):
        gpflow.set_trainable(points, False)
    model = gd.models.OrthogonalSVGP(*parts, Z, O)
    assert not model.layers[0].inducing_variable.Z.trainable
    with pytest.raises(ValueError, match="expected both trainable or neither"):
        gd.models.OrthogonalSVGP(*parts, Z, X[3:5])


def test_orthogonal_points_are_an_svgp_with_independent_halves() -> None:
    """The same q by the dense factor, and by the residual kernel with explicit inverses."""
    Z, O = RNG.normal(size=(3, 2)), RNG.normal(size=(4, 2))
    kernel, likelihood = gpflow.kernels.Matern52(), gpflow.likelihoods.Gaussian(0.1)
    model = gd.models.OrthogonalSVGP(kernel, likelihood, Z, O, num_data=12)
    given = map(gpflow.inducing_variables.InducingPoints, (Z, O))
    same = gd.models.OrthogonalSVGP(kernel, likelihood, *given, num_data=12)
    np.testing.assert_array_equal(same.predict_f(XNEW)[1], model.predict_f(XNEW)[1])
    randomise(model)
    q = model.inducing_posterior
    layer = gd.layers.GPLayer(kernel, np.concatenate([Z, O]), 1)
    layer.inducing_variable.Z.assign(model.layers[0].inducing_variable.Z)
    full = gd.models.DeepGP([layer], likelihood, gd.posteriors.MeanField, num_data=12)
    full.inducing_posterior.assign_dense(*q.dense())
    assert_close(model.elbo((X, Y)), full.elbo((X, Y)))
    assert_close(model.predict_f(XNEW, full_cov=True), full.predict_f(XNEW, full_cov=True))

    points = model.layers[0].inducing_variable.Z.numpy()
    K = kernel(points).numpy() + 1e-6 * np.eye(7)
    k = kernel(points, XNEW).numpy()
    C = K[3:, 3:] - K[3:, :3] @ np.linalg.solve(K[:3, :3], K[:3, 3:])
    c = k[3:] - K[3:, :3] @ np.linalg.solve(K[:3, :3], k[:3])
    mean, factor = (part.numpy() for part in q.dense())
    assert not factor[3:, :3].any()
    roots = block_diag(np.linalg.cholesky(K[:3, :3]), np.linalg.cholesky(C))
    prior, cross = block_diag(K[:3, :3], C), np.concatenate([k[:3], c])
    alpha = np.linalg.solve(prior, cross)
    S = roots @ factor @ factor.T @ roots.T
    expected = alpha.T @ roots @ mean
    variance = np.diag(kernel(XNEW).numpy() + alpha.T @ (S - prior) @ alpha)
    actual = model.predict_f(XNEW)
    np.testing.assert_allclose(actual[0][:, 0], expected, rtol=1e-7)
    np.testing.assert_allclose(actual[1][:, 0], variance, rtol=1e-7)
    free = 7 + 3 * 4 // 2 + 4 * 5 // 2
    assert q.num_parameters == free == sum(int(tf.size(v)) for v in q.trainable_variables)
    with pytest.raises(ValueError, match="zeros outside the pattern of Orthogonal"):
        q.assign_dense(mean, np.tril(np.ones([7, 7])))


def test_orthogonal_points_take_the_natural_steps_of_their_halves() -> None:
    """By GPflow's optimiser: the covariances of each half after one step are the best, inv(I + B B^T / s)."""
    parts = gpflow.kernels.Matern52(), gpflow.likelihoods.Gaussian(0.1)
    model = gd.models.OrthogonalSVGP(*parts, X[:3], X[3:7], num_data=12)
    ((q_mu, q_sqrt),) = model.variational_params
    loss = model.training_loss_closure((X, Y))
    before = loss()
    gpflow.optimizers.NaturalGradient(gamma=1.0).minimize(loss, [(q_mu, q_sqrt)])
    assert loss() < before
    layer = model.layers[0]
    basis = layer.project(tf.constant(X[None]), layer.factorise()).basis[0].numpy()
    halves = (basis[:, rows] for rows in (slice(0, 3), slice(3, 7)))
    expected = block_diag(*(np.linalg.inv(np.eye(b.shape[1]) + b.T @ b / 0.1) for b in halves))
    np.testing.assert_allclose(q_sqrt[0] @ tf.transpose(q_sqrt[0]), expected, rtol=1e-9, atol=1e-12)


def test_orthogonal_points_refuse_covariances_that_they_would_lose() -> None:
    """An SVGP's values, say; those of their own are taken."""
    kernel, likelihood = gpflow.kernels.Matern52(), gpflow.likelihoods.Gaussian(0.1)
    model = gd.models.OrthogonalSVGP(kernel, likelihood, X[:3], X[3:5])
    values = np.tril(RNG.uniform(0.1, 1.0, (1, 5, 5)))
    with pytest.raises(ValueError, match="q_sqrt: expected no covariance between the first"):
        model.q_sqrt.assign(values)
    with pytest.raises(tf.errors.InvalidArgumentError, match="MeanField has it"):
        tf.function(model.q_sqrt.assign)(tf.constant(values))
    values[:, 3:, :3] = 0.0
    model.q_sqrt.assign(values)
    np.testing.assert_array_equal(model.q_sqrt, values)
    gpflow.utilities.multiple_assign(model, gpflow.utilities.read_values(model))
    with pytest.raises(tf.errors.InvalidArgumentError, match="NaN"):  # GPflow's own
        model.q_sqrt.assign(np.full_like(values, np.nan))


@pytest.mark.parametrize(
    ("likelihood", "outputs", "classes"),
    [
        (gpflow.likelihoods.Bernoulli(), 1, [0.0, 1.0]),
        (gpflow.likelihoods.MultiClass(3), 3, [0, 1, 2]),
    ],
)
def test_probabilities_of_classes(likelihood: Any, outputs: int, classes: list) -> None:
    """Trained for the predictive density, by which probabilities of all classes sum to one."""
    layers = gd.layers.build_amortized_layers(2, (2,), outputs, num_inducing=3)
    model = gd.models.AmortizedDeepGP(layers, likelihood, num_samples=4, predictive_objective=True)
    targets = (X[:, :1] > 0).astype(type(classes[0]))
    adam = tf_keras.optimizers.Adam(0.02)

    @tf.function(autograph=False)
    def step() -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = model.training_loss((X, targets))
        variables = model.trainable_variables
        adam.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    losses = [float(step()) for _ in range(30)]
    assert losses[-1] < losses[0] - 0.5
    probabilities = [np.exp(model.predict_log_density((XNEW, np.full([5, 1], c)))) for c in classes]
    np.testing.assert_allclose(np.sum(probabilities, axis=0), 1.0, rtol=1e-5)


def test_the_number_of_operations_does_not_grow() -> None:
    """With points, samples or outputs."""

    def count(num_points: int, num_samples: int, width: int) -> int:
        layers = gd.layers.build_amortized_layers(2, (width,), width, num_inducing=3)
        likelihood = gpflow.likelihoods.Gaussian()
        model = gd.models.AmortizedDeepGP(layers, likelihood, num_samples=num_samples)
        specs = [tf.TensorSpec([num_points, columns], tf.float64) for columns in (2, width)]

        def step(*data: tf.Tensor) -> list[tf.Tensor]:
            with tf.GradientTape() as tape:
                loss = model.training_loss(data)
            return tape.gradient(loss, model.trainable_variables)

        graph = tf.function(step, autograph=False).get_concrete_function(*specs).graph
        # Big constants are made by operations, small ones are stored.
        return sum(o.type not in ("Const", "Fill") for o in graph.get_operations())

    # Sizes that agree by chance need less broadcasting.
    assert abs(count(11, 5, 4) - count(40, 12, 9)) <= 2


def test_fit() -> None:
    """Training by the loop of the package, without draws: the same from any seed of TensorFlow's."""
    ends = []
    for seed in (1, 2):
        tf.random.set_seed(seed)
        model = _model()
        before = float(model.training_loss((X, Y)))
        gd.training.fit(model, (X, Y), steps=20, learning_rate=0.02, progress=False)
        ends.append(float(model.training_loss((X, Y))))
    assert ends[0] == ends[1] < before


@pytest.mark.parametrize("inference", ["affine", "joint"])
def test_input_dependent_svgp(inference: str) -> None:
    model = gd.models.InputDependentSVGP(
        None, gpflow.likelihoods.Gaussian(0.1), 3, 2, inference=inference, num_data=12
    )
    assert len(model.layers[0].networks) == (1 if inference == "joint" else 2)
    assert model.layers[0].full_covariance == (inference == "joint")
    assert model.predict_f_mixture(XNEW).means.shape == (1, 5, 1)
    assert model.draw_noise(5) == [] and not model.sites.trainable_variables
    assert np.isfinite(model.elbo((X, Y)))


def test_the_objective_is_no_bound_on_the_evidence() -> None:
    """As its docstring says: a point pays an N-th for inducing outputs that it has to itself."""
    kernel, noise = gpflow.kernels.RBF(), 0.1
    exact = gpflow.models.GPR((X, Y), kernel, noise_variance=noise).log_marginal_likelihood()
    model = gd.models.InputDependentSVGP(
        kernel, gpflow.likelihoods.Gaussian(noise), 4, 2, num_data=len(X)
    )
    gpflow.set_trainable(model.layers[0].kernel, False)
    gpflow.set_trainable(model.likelihood, False)
    assert model.elbo((X, Y)) < exact
    gd.training.fit(model, (X, Y), steps=300, learning_rate=0.03, progress=False)
    assert model.elbo((X, Y)) > exact + 1.0


def test_plain_priors_collapse_with_depth_and_amortised_ones_do_not() -> None:
    """Two inputs' images, relative to the spread of all: in a deep prior most come together."""
    inputs = np.linspace(-2, 2, 40)[:, None]
    depth = 8
    kernel = {"kernel_factory": lambda d, i: gpflow.kernels.SquaredExponential()}
    plain = [gd.layers.GPLayer(kernel["kernel_factory"](1, i), inputs[:2], 1) for i in range(depth)]
    widths = (1,) * (depth - 1)
    amortized = gd.layers.build_amortized_layers(1, widths, num_inducing=2, **kernel)
    likelihood = gpflow.likelihoods.Gaussian(0.1)
    share = {}
    for model in (
        gd.models.DeepGP(plain, likelihood, gd.posteriors.MeanField),
        gd.models.AmortizedDeepGP(amortized, likelihood),
    ):
        draws = model.sample_prior(inputs, 50, seed=[0, 1])
        assert [d.shape for d in draws] == [(50, 40, 1)] * depth
        assert_close(draws, model.sample_prior(inputs, 50, seed=[0, 1]), rtol=0, atol=0)
        spread = [float(np.mean(np.std(d, axis=1))) for d in draws]
        share[type(model).__name__] = spread[-1] / spread[0]
    assert share["DeepGP"] < 0.5
    assert 0.9 < share["AmortizedDeepGP"] < 1.5


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rule": "AR3"}, "amortization: expected one of 'AR1', 'AR2', 'AR2P', 'AR2PP', got 'AR3'"),
        ({"predictive_objective": -1.0}, "predictive_objective: expected a positive number"),
        ({"num_samples": 0}, "num_samples: expected a positive integer, got 0"),
    ],
)
def test_bad_input(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _model(**settings)


def test_bad_combinations() -> None:
    layers = gd.layers.build_layers(X, (3,), num_inducing=4)
    likelihood = gpflow.likelihoods.Gaussian()
    with pytest.raises(
        TypeError, match="layers: expected a non-empty sequence of AmortizedGPLayer"
    ):
        gd.models.AmortizedDeepGP(layers, likelihood)
    with pytest.raises(
        ValueError, match="posterior: expected MeanField with sites.*StripesAndArrow"
    ):
        gd.models.DeepSigmaPointProcess(layers, likelihood, posterior=gd.posteriors.StripesAndArrow)
    with pytest.raises(ValueError, match="noise: expected none, as points travel by learned sites"):
        _model().elbo((X, Y), noise=[np.zeros([6, 12, 3])])
    with pytest.raises(ValueError, match=r"noise: expected tensors of shapes \[S, 12, 3\]"):
        _model("AR2").elbo((X, Y), noise=[np.zeros([6, 11, 3])])
    with pytest.raises(TypeError, match=r"X: expected inputs \[N, D\], as every point .* got None"):
        _model().prior_kl()
    with pytest.raises(ValueError, match="inference: expected 'affine' or 'joint'"):
        gd.models.InputDependentSVGP(None, likelihood, 3, 2, inference="both")
    with pytest.raises(ValueError, match=r"orthogonal_inducing_variable: expected \[M2, 2\]"):
        gd.models.OrthogonalSVGP(gpflow.kernels.Matern52(), likelihood, X[:3], X[:3, :1])
    with pytest.raises(ValueError, match="layers: expected whitened layers of more than 4"):
        gd.posteriors.Orthogonal(layers, 4)

"""Inducing variables that are not at inputs, or that GPflow's fallbacks hold, and latent GPs to be mixed."""

from __future__ import annotations

from collections.abc import Callable

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.inducing_variables import (
    FallbackSeparateIndependentInducingVariables,
    FallbackSharedIndependentInducingVariables,
    InducingPatches,
    InducingPoints,
    InducingVariables,
    MultioutputInducingVariables,
    Multiscale,
    SeparateIndependentInducingVariables,
    SharedIndependentInducingVariables,
)
from gpflow.kernels import (
    Convolutional,
    Kernel,
    LinearCoregionalization,
    Matern32,
    SeparateIndependent,
    SharedIndependent,
    SquaredExponential,
)
from scipy.stats import multivariate_normal, norm

import gpflow_deep as gd
from gpflow_deep.layers import AmortizedGPLayer, GPLayer, covariances

RNG = np.random.default_rng(0)
IMAGES, IMAGE_SHAPE = RNG.standard_normal((4, 6)), [2, 3]
Z, OTHER_Z = (RNG.standard_normal((3, 6)) for _ in range(2))
INTERDOMAIN: dict[str, tuple[Callable[[], Kernel], Callable[[], InducingVariables]]] = {
    "patches": (
        lambda: Convolutional(SquaredExponential(1.3), IMAGE_SHAPE, [2, 2], weights=[0.5, 2.0]),
        lambda: InducingPatches(Z[:, :4].copy()),
    ),
    "scales": (
        lambda: SquaredExponential(1.3, 2.0),
        lambda: Multiscale(Z.copy(), np.full(Z.shape, 0.5)),
    ),
}


@pytest.mark.parametrize("name", INTERDOMAIN)
def test_interdomain_inducing_variables_in_one_and_two_layers(name: str) -> None:
    """The only layer, or the first, is what SVGP makes of the same kernel and inducing variables."""
    kernel, inducing_variable = (make() for make in INTERDOMAIN[name])
    first = GPLayer(kernel, inducing_variable, 1)
    assert first.input_dim == 6
    svgp = gpflow.models.SVGP(kernel, gpflow.likelihoods.Gaussian(0.1), inducing_variable)
    svgp.q_mu.assign(RNG.standard_normal((3, 1)))
    svgp.q_sqrt.assign(0.5 * svgp.q_sqrt)
    wanted = svgp.predict_f(IMAGES)
    for layers in ([first], [first, GPLayer(SquaredExponential(), Z[:, :1].copy(), 1)]):
        model = gd.models.DeepGP(layers, svgp.likelihood, gd.posteriors.MeanField, num_samples=2)
        q_mu, q_sqrt = model.inducing_posterior.variational_params[0]
        q_mu.assign(svgp.q_mu)
        q_sqrt.assign(svgp.q_sqrt)
        output = model.propagate(IMAGES)[0]
        np.testing.assert_allclose(output.mean[0], wanted[0], rtol=1e-8)
        np.testing.assert_allclose(tf.reshape(output.covariance[0], [4, 1]), wanted[1], rtol=1e-8)
        if len(layers) == 1:
            moments = zip(model.predict_f(IMAGES, True), svgp.predict_f(IMAGES, True), strict=True)
            for actual, expected in moments:
                np.testing.assert_allclose(actual, expected, rtol=1e-8, atol=1e-10)
        assert np.isfinite(model.elbo((IMAGES, np.ones((4, 1)))))


def test_images_of_another_size_are_refused() -> None:
    kernel, patches = (make() for make in INTERDOMAIN["patches"])
    with pytest.raises(ValueError, match="kernel.*InducingPatches"):
        GPLayer(kernel, InducingPatches(Z[:, :3].copy()), 1)
    with pytest.raises(ValueError, match="kernel.*InducingPatches"):
        GPLayer(SquaredExponential(lengthscales=np.ones(3)), patches, 1)


def _two() -> list[Kernel]:
    return [SquaredExponential(1.3, 2.0), Matern32(0.5, 3.0)]


KERNELS: dict[str, Callable[[], Kernel]] = {
    "shared": lambda: SharedIndependent(SquaredExponential(1.3, 2.0), 2),
    "separate": lambda: SeparateIndependent(_two()),
    "mixed": lambda: LinearCoregionalization(_two(), [[1.0, 0.5], [0.0, 2.0], [-1.0, 0.3]]),
    "stacked": lambda: gd.kernels.StackedStationary(2, lengthscales=[2.0, 3.0]),
}
INDUCING = {
    FallbackSharedIndependentInducingVariables: SharedIndependentInducingVariables,
    FallbackSeparateIndependentInducingVariables: SeparateIndependentInducingVariables,
    SharedIndependentInducingVariables: None,
    SeparateIndependentInducingVariables: None,
}


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("kind", INDUCING)
def test_covariances_of_each_gp(kind: type[InducingVariables], name: str) -> None:
    """Each GP's kernel at its own inducing inputs, however they are held."""
    kernel = KERNELS[name]()
    separate = issubclass(kind, FallbackSeparateIndependentInducingVariables)
    points = [InducingPoints(Z.copy()), InducingPoints(OTHER_Z.copy())]
    layer = GPLayer(kernel, kind(points if separate else points[0]), 2)
    kernels = list(kernel.latent_kernels) * (2 if name == "shared" else 1)
    Zs = [Z, OTHER_Z if separate else Z]
    Kuf = np.stack([k(z, IMAGES) for k, z in zip(kernels, Zs, strict=True)])
    Kuu = np.stack([k(z) + 1e-3 * np.eye(3) for k, z in zip(kernels, Zs, strict=True)])
    one = name == "shared" and not separate
    actual = covariances.Kuf(layer.own_inducing_variable, kernel, tf.constant(IMAGES))
    np.testing.assert_allclose(actual, Kuf[0] if one else Kuf, rtol=1e-10, atol=1e-14)
    actual = covariances.Kuu(layer.own_inducing_variable, kernel, 1e-3)
    np.testing.assert_allclose(actual, Kuu[0] if one else Kuu, rtol=1e-10, atol=1e-14)
    projection = layer.project(tf.constant(IMAGES)[:, None], layer.factorise())
    assert projection.mean.shape == (4, 1, 2)


@pytest.mark.parametrize("family", ["sigma points", "one layer of them", "amortised"])
def test_draws_of_components_are_coherent_over_the_outputs(family: str) -> None:
    """More outputs than GPs, which depend on each other as the predicted covariance says."""
    kernel = LinearCoregionalization(_two(), [[1.0, 0.5], [0.0, 2.0], [-1.0, 0.3]])
    likelihood, mean = gpflow.likelihoods.Gaussian(), gpflow.functions.Linear(np.ones((2, 3)))
    model: gd.models.DeepGPModel
    if family == "amortised":
        last = AmortizedGPLayer(kernel, 3, 2, 2, mean)
        model = gd.models.AmortizedDeepGP([last], likelihood)
    else:
        points = Z[:, :2].copy()
        layers = [GPLayer(Matern32(), points, 2), GPLayer(kernel, points.copy(), 2, mean)]
        layers = layers[family != "sigma points" :]
        model = gd.models.DeepSigmaPointProcess(layers, likelihood, num_sites=4)
    X, S = IMAGES[:2, :2], 20_000
    expected_mean, expected = model.predict_f(X, full_output_cov=True)
    tf.random.set_seed(0)
    for full_cov in (False, True)[: 1 + (family != "amortised")]:
        draws = model.predict_f_samples(X, S, full_cov=full_cov).numpy()
        for n in range(2):
            scale = np.sqrt(np.diag(expected[n]))
            error = (draws[:, n].mean(0) - expected_mean[n]) / scale
            np.testing.assert_allclose(error, 0.0, atol=5.0 / S**0.5)
            error = (np.cov(draws[:, n].T) - expected[n]) / np.outer(scale, scale)
            np.testing.assert_allclose(error, 0.0, atol=0.05)
        if full_cov:
            joint = model.predict_f(X, full_cov=True, full_output_cov=True)[1].numpy()
            actual = np.cov(draws.reshape(S, 6).T).reshape(joint.shape)
            np.testing.assert_allclose(actual, joint, atol=0.05 * joint.max())


class _Own(Matern32):
    """A kernel whose methods are GPflow's and whose covariances are registered below."""


class _OwnShared(SharedIndependentInducingVariables):
    """Inducing variables of all GPs with registered covariances."""


class _Features(InducingPoints):
    """Points in the space of what :class:`_Projected` makes of inputs."""


class _Projected(Kernel):
    """A kernel of features of the inputs, as GPflow's notebooks have it with networks."""

    def __init__(self) -> None:
        super().__init__()
        self.base, self.W = SquaredExponential(), RNG.standard_normal((6, 2))

    def K(self, X: tf.Tensor, X2: tf.Tensor | None = None) -> tf.Tensor:
        return self.base.K(X @ self.W, None if X2 is None else X2 @ self.W)

    def K_diag(self, X: tf.Tensor) -> tf.Tensor:
        return self.base.K_diag(X @ self.W)


@gpflow.covariances.Kuu.register(InducingPoints, _Own)
def _(iv: InducingPoints, kernel: _Own, *, jitter: float = 0.0) -> tf.Tensor:
    return kernel(iv.Z) + (0.5 + jitter) * tf.eye(iv.num_inducing, dtype=tf.float64)


@gpflow.covariances.Kuu.register(_Features, SquaredExponential)
def _(
    iv: _Features, kernel: SquaredExponential, *, jitter: float = 0.0
) -> tf.linalg.LinearOperator:
    return tf.linalg.LinearOperatorDiag(tf.fill([iv.num_inducing], kernel.variance + jitter))


@gpflow.covariances.Kuf.register(_OwnShared, SharedIndependent, object)
def _(iv: _OwnShared, kernel: SharedIndependent, X: tf.Tensor) -> tf.Tensor:
    return 0.5 * kernel.kernel(iv.inducing_variable.Z, X)


class _Masked(InducingPoints):
    """Points of which covariances are for those in use; how many is known once the code runs."""


def _in_use(iv: _Masked) -> tf.Tensor:
    return tf.boolean_mask(iv.Z, tf.reduce_all(tf.abs(iv.Z) < 100.0, axis=1))


@gpflow.covariances.Kuu.register(_Masked, gpflow.kernels.Matern52)
def _(iv: _Masked, kernel: gpflow.kernels.Matern52, *, jitter: float = 0.0) -> tf.Tensor:
    points = _in_use(iv)
    return kernel(points) + jitter * tf.eye(tf.shape(points)[0], dtype=tf.float64)


@gpflow.covariances.Kuf.register(_Masked, gpflow.kernels.Matern52, object)
def _(iv: _Masked, kernel: gpflow.kernels.Matern52, X: tf.Tensor) -> tf.Tensor:
    return kernel(_in_use(iv), X)


@gpflow.covariances.Kuu.register(_Features, _Projected)
def _(iv: _Features, kernel: _Projected, *, jitter: float = 0.0) -> tf.Tensor:
    return kernel.base(iv.Z) + jitter * tf.eye(iv.num_inducing, dtype=tf.float64)


@gpflow.covariances.Kuf.register(_Features, _Projected, object)
def _(iv: _Features, kernel: _Projected, X: tf.Tensor) -> tf.Tensor:
    return kernel.base(iv.Z, X @ kernel.W)


def test_densities_of_mixed_outputs_are_of_each_output_by_itself() -> None:
    """As GPflow's; the covariance of the outputs makes the joint one."""
    W, noise = np.array([[1.0], [0.8], [-1.2]]), 0.01
    mixing, likelihood = (
        LinearCoregionalization([SquaredExponential()], W),
        gpflow.likelihoods.Gaussian(noise),
    )
    model = gd.models.DeepGP([GPLayer(mixing, Z.copy(), 1)], likelihood)
    Y = np.random.default_rng(1).standard_normal((4, 1)) @ W.T
    mean, covariance = model.predict_f(IMAGES, full_output_cov=True)
    variance = tf.linalg.diag_part(covariance) + noise
    each = norm(mean, np.sqrt(variance)).logpdf(Y).sum(axis=1)
    np.testing.assert_allclose(model.predict_log_density((IMAGES, Y)), each)
    np.testing.assert_allclose(gd.metrics.log_density(Y, *model.predict_y_mixture(IMAGES)), each)
    joint = [
        multivariate_normal(m, c + noise * np.eye(3)).logpdf(y)
        for m, c, y in zip(mean.numpy(), covariance.numpy(), Y, strict=True)
    ]
    assert np.all(joint > each + 1.0)


REGISTERED: dict[str, Callable[[], tuple[Kernel, InducingVariables]]] = {
    "of a kernel without methods of its own": lambda: (
        _Own(),
        InducingPoints(Z.copy()),
    ),
    "of all GPs at once": lambda: (
        SharedIndependent(SquaredExponential(), 2),
        _OwnShared(InducingPoints(Z.copy())),
    ),
    "of points in a space of features": lambda: (_Projected(), _Features(Z[:, :2].copy())),
}


@pytest.mark.parametrize("name", REGISTERED)
def test_covariances_that_a_user_registered_are_taken(name: str) -> None:
    kernel, inducing_variable = REGISTERED[name]()
    num_gps = 2 if isinstance(kernel, SharedIndependent) else 1
    likelihood = gpflow.likelihoods.Gaussian(0.1)
    svgp = gpflow.models.SVGP(kernel, likelihood, inducing_variable, num_latent_gps=num_gps)
    layer = GPLayer(kernel, inducing_variable, num_gps)
    model = gd.models.DeepGP([layer], likelihood, gd.posteriors.MeanField)
    for either in (svgp, model):
        either.q_mu.assign(np.ones((3, num_gps)))
    for actual, expected in zip(model.predict_f(IMAGES), svgp.predict_f(IMAGES), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-5)
    Y = np.zeros((len(IMAGES), num_gps))
    np.testing.assert_allclose(model.elbo((IMAGES, Y)), svgp.elbo((IMAGES, Y)), rtol=1e-5)


@pytest.mark.parametrize("family", ["DeepGP", "FITCEPDeepGP", "SampledDeepGP"])
def test_registered_covariances_may_be_of_as_many_points_as_the_code_finds(family: str) -> None:
    layers = [GPLayer(gpflow.kernels.Matern52(), _Masked(Z.copy()), 1)]
    model = getattr(gd.models, family)(layers, gpflow.likelihoods.Gaussian(0.1))
    data = IMAGES, np.ones((len(IMAGES), 1))
    closures = [
        model.training_loss_closure(data, compile=compile, seed=0) for compile in (True, False)
    ]
    np.testing.assert_allclose(*(closure() for closure in closures))
    np.testing.assert_allclose(
        tf.function(model.predict_f)(IMAGES)[0], model.predict_f(IMAGES)[0], atol=1e-12
    )


def test_registered_covariances_may_be_operators() -> None:
    kernel = SquaredExponential(2.0)
    actual = covariances.Kuu(_Features(Z.copy()), kernel, 1e-3)
    np.testing.assert_allclose(actual, (2.0 + 1e-3) * np.eye(3))


def test_points_that_travel_have_no_registered_covariances() -> None:
    layers = [GPLayer(_Own(), Z.copy(), 1)]
    with pytest.raises(ValueError, match="layers: expected inducing points of .* registered for"):
        gd.models.GlobalInducingDeepGP(layers, gpflow.likelihoods.Gaussian(0.1), Z.copy())


def test_inducing_variables_of_an_unknown_kind_are_refused() -> None:
    class Mine(MultioutputInducingVariables):
        num_inducing, shape = 3, (3, 6, 2)

    with pytest.raises(TypeError, match="inducing_variable.*Mine"):
        GPLayer(KERNELS["separate"](), Mine(), 2)


def test_latent_gps_are_those_of_separate_kernels() -> None:
    """Outputs are mixtures of the layer's GPs, and have the mean function; the GPs have none of both."""
    kernel, separate = KERNELS["mixed"](), KERNELS["separate"]()
    mean_function = gpflow.functions.Constant([1.0, 2.0, 3.0])
    X = tf.constant(IMAGES)
    layers = [
        GPLayer(kernel, Z.copy(), 2, mean_function),
        AmortizedGPLayer(kernel, 3, 6, 2, mean_function),
    ]
    for layer in layers:
        assert layer.mixing is kernel.W
        assert (layer.num_latent_gps, layer.output_dim) == (2, 3)
        np.testing.assert_array_equal(layer.prior_mean(X), np.tile([1.0, 2.0, 3.0], [4, 1]))
        np.testing.assert_array_equal(layer.latent_mean(X), np.zeros((4, 2)))
    plain = GPLayer(separate, Z.copy(), 2)
    assert plain.mixing is None and plain.output_dim == 2
    for actual, expected in zip(
        layers[0].project(X[:, None], layers[0].factorise()),
        plain.project(X[:, None], plain.factorise()),
        strict=True,
    ):
        np.testing.assert_allclose(actual, expected, rtol=1e-10, atol=1e-14)
    groups = tf.stack([X, X + 0.5])
    for function in (covariances.batch_covariance, covariances.local_covariances):
        np.testing.assert_allclose(function(kernel, groups), function(separate, groups), 1e-12)
    conditionals = [
        layer.condition(groups, layer.infer(X))
        for layer in (layers[1], AmortizedGPLayer(separate, 3, 6, 2))
    ]
    for actual, expected in zip(*conditionals, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-10, atol=1e-14)

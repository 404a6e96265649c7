"""Layers with every kind of kernel and inducing variables: as GPflow's SVGP has them, and deep."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.inducing_variables import (
    InducingPoints,
    InducingVariables,
    SeparateIndependentInducingVariables,
    SharedIndependentInducingVariables,
)
from gpflow.kernels import Kernel, SeparateIndependent, SharedIndependent, SquaredExponential
from tensorflow.python.autograph.utils import ag_logging

import gpflow_deep as gd
from gpflow_deep.layers import GPLayer
from gpflow_deep.numerics.factorisations import FactorisationError

RNG = np.random.default_rng(0)
X, Z, OTHER_Z, XNEW = (RNG.standard_normal((n, 2)) for n in (8, 4, 4, 3))
Y = np.sin(X) + 0.1 * RNG.standard_normal(X.shape)
T, M = 2, 4


def _two(*kernels: Kernel) -> SeparateIndependent:
    return SeparateIndependent(kernels or [SquaredExponential(1.3, 0.7), gpflow.kernels.Matern32()])


KERNELS: dict[str, Callable[[], Kernel]] = {
    "squared exponential": lambda: SquaredExponential(1.3, [0.7, 1.2]),
    "matern": lambda: gpflow.kernels.Matern52(0.8, [0.7, 1.2]),
    "sum with white": lambda: gpflow.kernels.Matern32() + gpflow.kernels.White(0.1),
    "short cut with white": lambda: SquaredExponential() + gpflow.kernels.White(0.1),
    "product": lambda: gpflow.kernels.Matern12() * gpflow.kernels.RationalQuadratic(),
    "active dims": lambda: (
        SquaredExponential(active_dims=[1]) + gpflow.kernels.Matern52(active_dims=[0])
    ),
    "linear": lambda: gpflow.kernels.Linear(0.5) + gpflow.kernels.White(0.3),
    "periodic": lambda: gpflow.kernels.Periodic(SquaredExponential(lengthscales=0.8), period=2.0),
    "arc cosine": lambda: gpflow.kernels.ArcCosine(order=1),
}
SINGLE: dict[str, Callable[[], InducingVariables]] = {
    "points": lambda: InducingPoints(Z.copy()),
}
MULTI: dict[str, Callable[[], InducingVariables]] = {
    "shared inputs": lambda: SharedIndependentInducingVariables(InducingPoints(Z.copy())),
    "separate inputs": lambda: SeparateIndependentInducingVariables(
        [InducingPoints(Z.copy()), InducingPoints(OTHER_Z.copy())]
    ),
}
COMBINATIONS: dict[str, tuple[Callable[[], Kernel], Callable[[], InducingVariables]]] = {
    **{name: (kernel, SINGLE["points"]) for name, kernel in KERNELS.items()},
    **{
        f"shared kernel, {name}": (lambda: SharedIndependent(SquaredExponential(1.3, 0.7), T), Zs)
        for name, Zs in MULTI.items()
    },
    **{f"separate kernels, {name}": (_two, Zs) for name, Zs in MULTI.items()},
}


def _close(actual: Any, expected: Any, rtol: float = 1e-8, atol: float = 1e-9) -> None:
    for one, other in zip(tf.nest.flatten(actual), tf.nest.flatten(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=rtol, atol=atol)


def _random_q(model: gd.models.DeepGP, seed: int = 0) -> None:
    rng = np.random.default_rng(seed)
    q = model.inducing_posterior
    mean, scale_tril = (np.array(part) for part in q.dense())
    entries = np.tril(np.kron(q.pattern, np.ones((M, M))))
    factor = 0.2 * rng.standard_normal(scale_tril.shape) * entries
    np.fill_diagonal(factor, rng.uniform(0.3, 1.0, len(mean)))
    q.assign_dense(rng.standard_normal(len(mean)), factor)


@pytest.mark.parametrize("whiten", [True, False], ids=["whitened", "unwhitened"])
@pytest.mark.parametrize("name", COMBINATIONS)
def test_a_single_layer_is_svgp(name: str, whiten: bool) -> None:
    kernel, inducing_variable = (make() for make in COMBINATIONS[name])
    layer = GPLayer(kernel, inducing_variable, T, whiten=whiten)
    likelihood = gpflow.likelihoods.Gaussian(0.1)
    model = gd.models.DeepGP([layer], likelihood, gd.posteriors.MeanField)
    _random_q(model)
    ((q_mu, q_sqrt),) = model.inducing_posterior.variational_params
    if name in KERNELS:  # GPflow has one kernel for all outputs, too
        kernel = SharedIndependent(kernel, T)
        inducing_variable = SharedIndependentInducingVariables(inducing_variable)
    svgp = gpflow.models.SVGP(
        kernel,
        likelihood,
        inducing_variable,
        num_latent_gps=T,
        q_mu=q_mu.numpy(),
        q_sqrt=q_sqrt.numpy(),
        whiten=whiten,
    )
    for options in ({}, {"full_cov": True}):
        _close(model.predict_f(XNEW, **options), svgp.predict_f(XNEW, **options))
    variables = layer.trainable_variables
    assert variables
    losses, slopes = [], []
    for one in (model, svgp):
        with tf.GradientTape() as tape:
            losses.append(one.training_loss((X, Y)))
        slopes.append([tf.convert_to_tensor(g) for g in tape.gradient(losses[-1], variables)])
    _close(*losses)
    _close(*slopes, rtol=1e-6, atol=1e-7)


def _deep(posterior: Any, first: str, last: str, whiten: bool = True) -> gd.models.DeepGP:
    """Two layers of two GPs, the first with a fixed mean."""
    layers = [
        GPLayer(*(make() for make in COMBINATIONS[name]), T, mean, whiten=whiten)
        for name, mean in ((first, gpflow.mean_functions.Identity(2)), (last, None))
    ]
    posterior = posterior if isinstance(posterior, type) else posterior(layers)
    likelihood = gpflow.likelihoods.Gaussian(0.1)
    return gd.models.DeepGP(layers, likelihood, posterior, num_samples=2, num_prediction_samples=4)


@pytest.mark.parametrize("last", ["squared exponential", "separate kernels, separate inputs"])
@pytest.mark.parametrize(
    "first", ["matern", "separate kernels, shared inputs", "shared kernel, separate inputs"]
)
def test_deep_layers_with_their_own_kernels(first: str, last: str) -> None:
    """The fast structure equals the dense definition whatever a layer's GPs share."""
    fast = _deep(gd.posteriors.StripesAndArrow, first, last)
    pattern = fast.inducing_posterior.pattern
    dense = _deep(lambda layers: gd.posteriors.BlockStructured(layers, pattern), first, last)
    _random_q(fast)
    dense.inducing_posterior.assign_dense(*fast.inducing_posterior.dense())
    noise = fast.draw_noise(len(X), seed=[0, 1])
    _close(fast.elbo((X, Y), noise=noise), dense.elbo((X, Y), noise=noise))
    for options in ({"full_cov": True}, {"full_output_cov": True}):
        _close(fast.predict_f(XNEW, **options), dense.predict_f(XNEW, **options))


@pytest.mark.parametrize("first", ["squared exponential", "separate kernels, separate inputs"])
@pytest.mark.parametrize(
    "posterior", [gd.posteriors.MeanField, gd.posteriors.FullyCoupled], ids=lambda p: p.__name__
)
def test_whitening_changes_the_parameters_not_the_model(posterior: type, first: str) -> None:
    """The same q(u), as u = chol(K_MM) v and as itself."""
    white, plain = (_deep(posterior, first, "matern", whiten) for whiten in (True, False))
    _random_q(white)
    blocks = []
    for layer in white.layers:
        factor = np.asarray(layer.factorise())
        blocks += list(np.broadcast_to(factor, (T, M, M)))
    unwhiten = np.asarray(
        tf.linalg.LinearOperatorBlockDiag(
            [tf.linalg.LinearOperatorFullMatrix(block) for block in blocks]
        ).to_dense()
    )
    mean, scale_tril = white.inducing_posterior.dense()
    plain.inducing_posterior.assign_dense(unwhiten @ mean.numpy(), unwhiten @ scale_tril.numpy())
    noise = white.draw_noise(len(X), seed=[0, 1])
    _close(white.prior_kl(), plain.prior_kl())
    _close(white.elbo((X, Y), noise=noise), plain.elbo((X, Y), noise=noise))
    for options in ({"full_cov": True}, {"full_output_cov": True}):
        _close(white.predict_f(XNEW, **options), plain.predict_f(XNEW, **options), rtol=1e-6)


@pytest.mark.parametrize(
    "lengthscales", [0.5, np.array([0.5, 0.7]), tf.constant(0.5, tf.float64)], ids=str
)
def test_scales_need_be_no_parameters(lengthscales: Any) -> None:
    kernel, plain = SquaredExponential(lengthscales=lengthscales), SquaredExponential()
    plain.lengthscales = lengthscales
    one, other = (
        layer.project(tf.constant(XNEW)[None], layer.factorise())
        for layer in (GPLayer(k, Z.copy(), T) for k in (kernel, plain))
    )
    _close(one.basis, other.basis)


def test_a_mean_function_of_vectors_is_refused() -> None:
    with pytest.raises(ValueError, match=r"mean_function: expected values \[N, T\].*got \(1,\)"):
        GPLayer(SquaredExponential(), Z.copy(), T, lambda X: tf.sin(X[:, 0]))


@pytest.mark.parametrize(
    "mean_function",
    [
        gpflow.mean_functions.Constant([0.5, -0.5]),
        gpflow.mean_functions.Constant(0.5),
        gpflow.functions.Linear(np.eye(2), [1.0, 2.0]),
        gpflow.functions.Polynomial(2, input_dim=2, output_dim=2),
        gpflow.functions.Linear(np.ones((2, 1))) + gpflow.functions.Constant(1.0),
    ],
    ids=lambda function: type(function).__name__,
)
def test_mean_functions(mean_function: Any) -> None:
    """At the prior the mean is the mean function's, over samples and points alike."""
    layer = GPLayer(SquaredExponential(), Z.copy(), T, mean_function)
    inputs = RNG.standard_normal((5, 3, 2))
    projection = layer.project(inputs, layer.factorise())
    expected = np.stack([np.broadcast_to(mean_function(x), (3, T)) for x in inputs])
    _close(projection.mean, expected)
    model = gd.models.DeepGP([layer], gpflow.likelihoods.Gaussian())
    for options in ({}, {"full_cov": True}):
        mean, _ = model.predict_f(XNEW, **options)
        _close(mean, np.broadcast_to(mean_function(XNEW), (3, T)))


class _Squares(gpflow.functions.MeanFunction):
    """Written for a matrix."""

    def __call__(self, X: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(X**2, axis=1, keepdims=True)


class _Row(gpflow.functions.MeanFunction):
    def __call__(self, X: tf.Tensor) -> tf.Tensor:
        return tf.constant([[1.0, 2.0]], X.dtype)


@pytest.mark.parametrize(
    "mean_function",
    [
        _Squares(),
        _Row(),
        gpflow.mean_functions.SwitchedMeanFunction(
            [gpflow.functions.Constant([c, 1.0]) for c in (5.0, -5.0)]
        ),
    ],
    ids=lambda function: type(function).__name__,
)
def test_mean_functions_of_matrices_only(mean_function: Any) -> None:
    """GPflow calls them with no other inputs."""
    labelled = np.concatenate([XNEW[:, :1], [[0.0], [1.0], [1.0]]], axis=1)
    layer = GPLayer(SquaredExponential(), Z.copy(), T, mean_function)
    model = gd.models.DeepGP([layer], gpflow.likelihoods.Gaussian())
    expected = np.broadcast_to(mean_function(labelled), (3, T))
    for full_cov in (False, True):
        _close(model.predict_f(labelled, full_cov)[0], expected)
    for shape in ([None, 2], None):
        compiled = tf.function(
            layer.prior_mean, input_signature=[tf.TensorSpec(shape, tf.float64)], autograph=False
        )
        for rows in (slice(0, 3), slice(0, 1), slice(0, 0)):
            _close(compiled(labelled[rows]), expected[rows])
    batch = np.stack([labelled, labelled[::-1]])
    _close(layer.prior_mean(batch), np.stack([expected, expected[::-1]]))
    assert layer.prior_mean(batch[:, :0]).shape == (2, 0, T)


@pytest.mark.parametrize("kind", [SquaredExponential, gpflow.kernels.RationalQuadratic])
def test_one_lengthscale_in_a_vector(kind: type[Kernel]) -> None:
    likelihood = gpflow.likelihoods.Gaussian(0.1)
    kernel = kind(lengthscales=[0.7])
    layer = GPLayer(kernel, Z.copy(), T)
    models = (
        gd.models.DeepGP([layer], likelihood, gd.posteriors.MeanField),
        gpflow.models.SVGP(kernel, likelihood, layer.inducing_variable, num_latent_gps=T),
    )
    slopes = []
    for model in models:
        with tf.GradientTape() as tape:
            loss = model.training_loss((X, Y))
        slopes.append(tape.gradient(loss, kernel.trainable_variables))
    assert [slope.shape for slope in slopes[0]] == [v.shape for v in kernel.trainable_variables]
    _close(*slopes, rtol=1e-6)


# ---------------------------------------------------------------- failed factorisations


def _singular_model() -> gd.models.DeepGP:
    """A second layer whose inducing inputs coincide."""
    same = np.repeat(Z[:1], 6, axis=0)
    layers = [
        GPLayer(SquaredExponential(), Z.copy(), 2, name="first"),
        GPLayer(SquaredExponential(1.0, [0.25, 4.5]), same, 2, name="second"),
    ]
    return gd.models.DeepGP(layers, gpflow.likelihoods.Gaussian(), gd.posteriors.MeanField)


def test_a_singular_covariance_is_explained() -> None:
    model = _singular_model()
    assert np.isfinite(model.elbo((X, Y)))
    with gpflow.config.as_context():
        gpflow.config.set_default_jitter(0.0)
        with pytest.raises(FactorisationError) as eager:
            model.elbo((X, Y))
        with pytest.raises(tf.errors.InvalidArgumentError) as compiled:
            model.training_loss_closure((X, Y))()
        with pytest.raises(FactorisationError):
            model.predict_f(XNEW)
        with pytest.raises(FactorisationError):
            model.posterior()
    for error in (eager, compiled):
        text = str(error.value)
        for fact in ("second", "6 inducing points", "SquaredExponential", "lengthscales", "4.5"):
            assert fact in text
        for fact in ("eigenvalue", "jitter", "duplicates", "float64"):
            assert fact in text
        assert "first" not in text.split("Try")[0]


# ---------------------------------------------------------------- refusals


def _refused(error: type, match: str, *args: Any, **kwargs: Any) -> None:
    with pytest.raises(error, match=match):
        GPLayer(*args, **kwargs)


@pytest.mark.parametrize(
    "kernel",
    [
        SquaredExponential(lengthscales=np.ones(2)),
        gpflow.kernels.Matern52(lengthscales=np.ones(3)) + gpflow.kernels.Linear(),
        gpflow.kernels.SharedIndependent(gpflow.kernels.Matern32(lengthscales=np.ones(2)), 2),
    ],
)
def test_more_lengthscales_than_one_input(kernel: gpflow.kernels.Kernel) -> None:
    """One input is broadcast to any number of them, and gradients fail in the midst of training."""
    _refused(ValueError, "lengthscales: expected one or 1, got", kernel, Z[:, :1].copy(), 2)
    none = SquaredExponential(active_dims=slice(3, 4))
    _refused(ValueError, "active_dims: expected some of 1 inputs", none, Z[:, :1].copy(), 2)


def test_kernels_without_a_short_cut_in_float32() -> None:
    """Many inducing inputs: the smallest eigenvalues are clear of float32's rounding."""
    points = np.random.default_rng(0).normal(size=(100, 1))
    gpflow.config.set_default_float(np.float32)
    for kernel in (
        SquaredExponential() + gpflow.kernels.Linear(),
        gpflow.kernels.Periodic(SquaredExponential()),
        gpflow.kernels.Cosine(),
        gpflow.kernels.Polynomial(),
    ):
        factor = GPLayer(kernel, points.astype(np.float32), 1).factorise()
        assert np.isfinite(factor).all()


def test_what_is_no_layer_is_refused() -> None:
    kernel = SquaredExponential()
    _refused(TypeError, "kernel.*GPflow kernel.*'rbf'", "rbf", Z, 2)
    for count in (0, -1, 1.5, "2", None, True):
        _refused(ValueError, f"num_latent_gps.*positive integer.*{count}", kernel, Z, count)
    mixing = gpflow.kernels.LinearCoregionalization([kernel, kernel], np.ones((3, 2)))
    _refused(ValueError, "kernel.*3 GPs.*LinearCoregionalization.*2", mixing, Z, 3)
    _refused(
        ValueError,
        "mean_function.*3 columns.*W.*2",
        mixing,
        Z,
        2,
        gpflow.functions.Constant([1.0, 2]),
    )
    _refused(ValueError, "kernel.*3 GPs.*2", _two(), Z, 3)
    _refused(ValueError, "kernel.*3 GPs.*2", SharedIndependent(kernel, 2), Z, 3)
    _refused(ValueError, "kernel.*Separate", kernel, MULTI["separate inputs"](), 2)
    separate = MULTI["separate inputs"]()
    _refused(ValueError, "inducing_variable.*3.*2", kernel, separate, 3)
    unequal = SeparateIndependentInducingVariables([InducingPoints(Z), InducingPoints(Z[:2])])
    _refused(ValueError, r"inducing_variable.*same number.*4, 2", _two(), unequal, 2)
    for Z_bad in (Z[0], np.zeros((0, 2)), np.where(Z == Z[0, 0], np.nan, Z), np.array([["a"]])):
        _refused((ValueError, TypeError), "inducing_variable", kernel, Z_bad, 2)
    _refused(TypeError, "mean_function.*zero", kernel, Z, 2, "zero")
    _refused(
        ValueError,
        r"mean_function.*2 columns.*3",
        kernel,
        Z,
        2,
        gpflow.functions.Constant(np.ones(3)),
    )
    _refused(
        ValueError, "kernel.*lengthscales.*2.*3", SquaredExponential(lengthscales=np.ones(3)), Z, 2
    )
    _refused(ValueError, "kernel", SquaredExponential(active_dims=[2]), Z, 2)


@pytest.mark.parametrize("white", [None, 1e-3])
def test_a_users_own_function_calls_a_layer_without_complaint(
    white: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """AutoGraph converts what such a function calls, and warns of what it cannot read."""
    complaints: list[Any] = []
    monkeypatch.setattr(ag_logging, "warning", lambda *words: complaints.append(words))
    X = np.random.default_rng(0).standard_normal((12, 2))
    model = gd.models.DeepGP(
        gd.layers.build_layers(X, (2,), num_inducing=4, white_noise=white),
        gpflow.likelihoods.Gaussian(0.1),
    )

    @tf.function
    def first_layer(X: tf.Tensor) -> tuple[tf.Tensor, ...]:
        layer, q = model.layers[0], model.inducing_posterior
        factor = layer.factorise()
        recursion = q.recursion(q.moments(), jitter=1e-6)
        K, variance = layer.covariances(X, tf.convert_to_tensor(layer.inducing_variable.Z)[None])
        return (*recursion.condition(layer.project(X, factor)), K, variance)

    assert all(np.isfinite(x).all() for x in first_layer(tf.constant(X)[None]))
    assert not complaints


def test_parts_assigned_to_a_layer_in_use_are_checked() -> None:
    layers = gd.layers.build_layers(X, (2,), num_inducing=4)
    layer = layers[1]
    layer.kernel = SquaredExponential(lengthscales=np.ones(2))  # before a model has it
    model = gd.models.DeepGP(layers, gpflow.likelihoods.Gaussian())
    before, mean = vars(layer).copy(), model.predict_f(X)[0]
    for assign in (lambda *part: setattr(layer, *part), layer.replace):
        with pytest.raises(ValueError, match="inducing_variable: expected 4 inducing points, as"):
            assign("inducing_variable", InducingPoints(X[:6]))
        with pytest.raises(ValueError, match="kernel: SquaredExponential .* does not fit"):
            assign("kernel", SquaredExponential(lengthscales=np.ones(3)))
        with pytest.raises(ValueError, match="mean_function: expected 1 columns"):
            assign("mean_function", gpflow.functions.Constant(np.ones(3)))
    assert all(vars(layer)[name] is before[name] for name in ("kernel", "mean_function"))
    assert layer.inducing_variable is before["inducing_variable"]
    np.testing.assert_allclose(model.predict_f(X)[0], mean)
    layer.inducing_variable = new = InducingPoints(X[1:5])
    layer.mean_function = None
    assert layer.inducing_variable is new
    assert isinstance(layer.mean_function, gpflow.functions.Zero)
    assert np.isfinite(model.predict_f(X)[0]).all()
    layer = gd.layers.GPLayer(SquaredExponential(), None, 2)
    model = gd.models.GlobalInducingDeepGP([layer], gpflow.likelihoods.Gaussian(), X[:4])
    with pytest.raises(ValueError, match="inducing_variable: expected 4 inducing points"):
        model.layers[0].inducing_variable = InducingPoints(X[:6])


@pytest.mark.parametrize("compiled", [False, True])
def test_inducing_inputs_that_grow_in_place(compiled: bool) -> None:
    """GPflow takes variables of open shape; the posterior has as many outputs as in the beginning."""
    Z = np.linspace(-1.0, 1.0, 5)[:, None]
    variable = gpflow.inducing_variables.InducingPoints(tf.Variable(Z, shape=[None, 1]))
    layer = GPLayer(SquaredExponential(), variable, 1)
    model = gd.models.DeepGP([layer], gpflow.likelihoods.Gaussian(0.1))
    calls = (model.prior_kl, lambda: model.predict_f(Z)[0])
    kl, predict = map(tf.function, calls) if compiled else calls
    assert kl() >= 0.0 and np.isfinite(predict()).all()
    variable.Z.assign(np.vstack([Z, [[2.0]]]))
    if compiled:
        # In words of TensorFlow's, of whichever operation came first; but not a number.
        with pytest.raises(
            tf.errors.InvalidArgumentError, match=r"\[6,6\] is not compatible .* \[5,5\]"
        ):
            kl()
        with pytest.raises(tf.errors.InvalidArgumentError, match="6.*5"):
            predict()
        return
    for call in (kl, predict):
        with pytest.raises(ValueError, match="expected 5 inducing points.* got 6"):
            call()

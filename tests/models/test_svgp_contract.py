"""
What GPflow's own tests ask of its models, asked of ours of one layer: the same calls, the same assertions,
with GPflow's SVGP as the control.
"""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.inducing_variables import InducingPoints, SharedIndependentInducingVariables
from gpflow.posteriors import PrecomputeCacheType

import gpflow_deep as gd
from tests.models.contract import assert_close

D, P, M, N = 2, 2, 6, 15
RNG = np.random.default_rng(0)
X = RNG.standard_normal((N, D))
Y = np.sin(X @ RNG.standard_normal((D, P))) + 0.1 * RNG.standard_normal((N, P))
Z = X[:M].copy()
XNEW = RNG.standard_normal((4, D))
YNEW = RNG.standard_normal((4, P))


def _layer(
    kernel: Any, Z: Any, num_latent_gps: int, whiten: bool = True, mean_function: Any = None
) -> gd.layers.GPLayer:
    return gd.layers.GPLayer(kernel, Z, num_latent_gps, mean_function, whiten=whiten)


def _structured(posterior: type) -> Callable[..., Any]:
    def build(
        kernel: Any, likelihood: Any, Z: Any, num_latent_gps: int = 1, **settings: Any
    ) -> Any:
        options = {k: settings.pop(k) for k in ("whiten", "mean_function") if k in settings}
        layer = _layer(kernel, Z, num_latent_gps, **options)
        return gd.models.DeepGP([layer], likelihood, posterior, **settings)

    return build


def _other(model: Callable[..., Any]) -> Callable[..., Any]:
    def build(
        kernel: Any, likelihood: Any, Z: Any, num_latent_gps: int = 1, **settings: Any
    ) -> Any:
        settings.pop("whiten", None)
        layer = _layer(kernel, Z, num_latent_gps, mean_function=settings.pop("mean_function", None))
        return model([layer], likelihood, **settings)

    return build


def _svgp(kernel: Any, likelihood: Any, Z: Any, num_latent_gps: int = 1, **settings: Any) -> Any:
    return gpflow.models.SVGP(kernel, likelihood, Z, num_latent_gps=num_latent_gps, **settings)


MODELS: dict[str, Callable[..., Any]] = {
    "SVGP": _svgp,
    "mean-field": _structured(gd.posteriors.MeanField),
    "fully-coupled": _structured(gd.posteriors.FullyCoupled),
    "stripes-and-arrow": _structured(gd.posteriors.StripesAndArrow),
    "sigma-points": _other(gd.models.DeepSigmaPointProcess),
    "global-inducing": _other(gd.models.GlobalInducingDeepGP),
    "fitc-ep": _other(gd.models.FITCEPDeepGP),
}
#: Those whose parameters are SVGP's.
SVGPS = ("SVGP", "mean-field", "sigma-points")


OURS = [name for name in MODELS if name != "SVGP"]


@pytest.fixture(params=MODELS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _make(name: str, **settings: Any) -> Any:
    settings = {
        "likelihood": gpflow.likelihoods.Gaussian(0.1),
        "Z": Z.copy(),
        "num_latent_gps": P,
        **settings,
    }
    kernel = settings.pop("kernel", None) or gpflow.kernels.Matern32(lengthscales=[1.0, 2.0])
    model = MODELS[name](kernel, **settings)
    rng = np.random.default_rng(1)
    for _, parameter in sorted(gpflow.utilities.parameter_dict(model).items()):
        if parameter.trainable and ".layers" not in parameter.name:
            parameter.unconstrained_variable.assign_add(
                0.1 * rng.standard_normal(parameter.unconstrained_variable.shape)
            )
    return model


@pytest.fixture
def model(name: str) -> Any:
    return _make(name)


# ---------------------------------------------------------------- predictions


@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
@pytest.mark.parametrize("full_cov", [False, True])
@pytest.mark.parametrize("full_output_cov", [False, True])
def test_predict_f(
    name: str, batch: tuple[int, ...], full_cov: bool, full_output_cov: bool
) -> None:
    if name == "SVGP" and batch and full_cov:
        pytest.skip("GPflow's own posteriors take no batches here.")
    model = _make(name)
    Xnew = RNG.standard_normal((*batch, 4, D))
    mean, covariance = model.predict_f(Xnew, full_cov=full_cov, full_output_cov=full_output_cov)
    assert mean.shape == (*batch, 4, P)
    tails = {(0, 0): (4, P), (1, 0): (P, 4, 4), (0, 1): (4, P, P), (1, 1): (4, P, 4, P)}
    assert covariance.shape == (*batch, *tails[full_cov, full_output_cov])
    first_mean, variance = model.predict_f(Xnew)
    assert_close(mean, first_mean, rtol=1e-10, atol=1e-10)
    pattern = {(0, 0): "...np->...np", (1, 0): "...pnn->...np", (0, 1): "...npp->...np"}
    pattern[1, 1] = "...npnp->...np"
    diagonal = np.einsum(pattern[full_cov, full_output_cov], covariance)
    assert_close(diagonal, variance, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("batch", [(), (3,)])
@pytest.mark.parametrize("num_samples", [None, 5])
@pytest.mark.parametrize("full_cov", [None, False, True])
def test_predict_f_samples(
    name: str, batch: tuple[int, ...], num_samples: int | None, full_cov: bool | None
) -> None:
    if name == "SVGP" and batch and full_cov is not False:
        pytest.skip("GPflow's own posteriors take no batches here.")
    model = _make(name)
    Xnew = RNG.standard_normal((*batch, 4, D))
    options = {} if full_cov is None else {"full_cov": full_cov}
    samples = model.predict_f_samples(Xnew, num_samples, **options)
    size = () if num_samples is None else (num_samples,)
    assert samples.shape == (*batch, *size, 4, P)


def test_draws_are_of_smooth_functions_by_default(name: str) -> None:
    model = _make(name, num_latent_gps=1, likelihood=gpflow.likelihoods.Gaussian(0.1))
    grid = np.stack([np.linspace(-2, 2, 100), np.zeros(100)], axis=1)
    draws = model.predict_f_samples(grid, 20).numpy()[..., 0]
    draws -= draws.mean(axis=1, keepdims=True)
    lag = np.mean(draws[:, 1:] * draws[:, :-1]) / np.mean(draws**2)
    assert lag > 0.95


@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
def test_predict_y_and_log_density(name: str, batch: tuple[int, ...]) -> None:
    model = _make(name)
    Xnew, Ynew = RNG.standard_normal((*batch, 4, D)), RNG.standard_normal((*batch, 4, P))
    f_mean, f_variance = model.predict_f(Xnew)
    mean, variance = model.predict_y(Xnew)
    noise = model.likelihood.variance
    assert_close(mean, f_mean)
    assert_close(variance, f_variance + noise, rtol=1e-8)
    by_hand = -0.5 * (np.log(2 * np.pi * variance) + (Ynew - mean) ** 2 / variance)
    densities = model.predict_log_density((Xnew, Ynew))
    assert densities.shape == (*batch, 4)
    assert_close(densities, by_hand.numpy().sum(-1), rtol=1e-8)


# ---------------------------------------------------------------- unknown shapes


def _dynamic(likelihood: str) -> dict[str, Any]:
    if likelihood == "classes":
        return {"likelihood": gpflow.likelihoods.MultiClass(3), "num_latent_gps": 3}
    return {}


# No input enters what the others have of their own.
SEE_INPUTS = ["mean-field", "sigma-points", "global-inducing", "fitc-ep"]


# All are asked for what is least known; in what is known a little more they take turns.
@pytest.mark.parametrize(
    ("name", "shape", "likelihood"),
    [
        *((name, None, "gaussian") for name in ["SVGP", *SEE_INPUTS]),
        *zip(SEE_INPUTS, cycle([[None, None], None]), cycle(["gaussian", "classes"])),
    ],
)
def test_training_on_unknown_shapes(name: str, shape: Any, likelihood: str) -> None:
    model = _make(name, **_dynamic(likelihood))
    gpflow.set_trainable(model.inducing_variable, False)
    spec = tf.TensorSpec(shape=shape, dtype=tf.float64)
    targets = Y if likelihood == "gaussian" else np.arange(N, dtype=float)[:, None] % 3
    loss = tf.function(lambda data: model.training_loss(data), input_signature=[(spec, spec)])

    def closure() -> tf.Tensor:
        return loss((X, targets))

    before = closure()
    gpflow.optimizers.Scipy().minimize(
        closure, variables=model.trainable_variables, options={"maxiter": 3}, compile=False
    )
    assert closure() < before


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        *((name, None) for name in ["SVGP", *SEE_INPUTS]),
        *zip(SEE_INPUTS, cycle([[None, None], [None, D]])),
    ],
)
def test_predictions_of_unknown_shapes(name: str, shape: Any) -> None:
    model = _make(name)
    spec = tf.TensorSpec(shape=shape, dtype=tf.float64)
    predictions = [lambda X: model.predict_y(X), lambda X: model.predict_f(X, full_cov=True)]
    if name == "SVGP" and shape is None:
        predictions.pop()
    for predict in predictions:
        compiled = tf.function(predict, input_signature=[spec])
        assert_close(compiled(XNEW), predict(XNEW))


@pytest.mark.parametrize(
    ("name", "source"),
    # What they lack, every family has been trained without: they take turns.
    list(zip(MODELS, cycle(["generator", "numpy_function", "padded_batch"]))),
)
def test_datasets_without_static_shapes(name: str, source: str) -> None:
    if source == "generator":
        dataset = tf.data.Dataset.from_generator(
            lambda: ((X[i : i + 5], Y[i : i + 5]) for i in (0, 5, 10)),
            output_types=(tf.float64, tf.float64),
        )
    elif source == "padded_batch":
        dataset = tf.data.Dataset.from_tensor_slices((X, Y)).padded_batch(5)
    else:
        dataset = tf.data.Dataset.range(3).map(
            lambda i: tuple(
                tf.numpy_function(lambda i, a=a: a[5 * i : 5 * i + 5], [i], tf.float64)
                for a in (X, Y)
            )
        )
    model = _make(name, num_data=N)
    # No thread that reads ahead: it would wait for the interpreter, and who deletes the iterator for it.
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    closure = model.training_loss_closure(
        iter(dataset.repeat().with_options(options)), compile=True
    )
    assert all(np.isfinite(closure()) for _ in range(3))


# ---------------------------------------------------------------- names and values of SVGP


def test_names(name: str) -> None:
    kernel = gpflow.kernels.SquaredExponential()
    mean_function = gpflow.functions.Constant(np.ones(P))
    model = _make(name, kernel=kernel, mean_function=mean_function)
    assert model.kernel is kernel
    assert model.mean_function is mean_function
    assert isinstance(model.inducing_variable, (InducingPoints, SharedIndependentInducingVariables))
    assert model.num_latent_gps == P
    if name != "SVGP":
        deep = gd.models.DeepGP(gd.layers.build_layers(X, (2,), P, M), model.likelihood)
        assert not hasattr(deep, "kernel")
        with pytest.raises(
            AttributeError, match="kernel: models of one layer have it, this one has 2"
        ):
            _ = deep.kernel


@pytest.mark.parametrize("name", SVGPS)
@pytest.mark.parametrize("whiten", [True, False])
def test_values_of_an_svgp_are_taken_over(name: str, whiten: bool) -> None:
    if name == "sigma-points" and not whiten:
        pytest.skip("Its layers are whitened here.")
    settings = {"whiten": whiten, "mean_function": gpflow.functions.Constant(np.zeros(P))}
    saved = _make("SVGP", **settings, num_data=N)
    model = MODELS[name](
        gpflow.kernels.Matern32(lengthscales=[1.0, 2.0]),
        gpflow.likelihoods.Gaussian(),
        np.zeros((M, D)) + np.arange(M)[:, None],
        P,
        **({**settings, "mean_function": gpflow.functions.Constant(np.ones(P))}),
        num_data=N,
    )
    gpflow.utilities.multiple_assign(model, gpflow.utilities.read_values(saved))
    gpflow.utilities.multiple_assign(model, gpflow.utilities.parameter_dict(saved))
    assert_close(
        model.predict_f(XNEW, full_cov=True), saved.predict_f(XNEW, full_cov=True), rtol=1e-6
    )
    assert_close(model.q_mu, saved.q_mu)
    assert_close(model.q_sqrt, saved.q_sqrt)
    assert model.whiten == saved.whiten
    if name != "sigma-points":  # whose objective is another
        assert_close(model.elbo((X, Y)), saved.elbo((X, Y)), rtol=1e-6)
        assert_close(model.prior_kl(), saved.prior_kl(), rtol=1e-6)


def test_parts_are_replaced_by_their_names(name: str) -> None:
    model = _make(name)
    model.kernel.lengthscales.prior = tfp.distributions.Gamma(*np.array([2.0, 3.0]))
    count = len(model.trainable_variables)
    kernel = gpflow.kernels.SquaredExponential(lengthscales=[0.5, 2.0])
    parts = {
        "kernel": kernel,
        "inducing_variable": InducingPoints(X[-M:].copy()),
        "mean_function": gpflow.functions.Constant(np.ones(P)),
    }
    if name in SVGPS:
        parts["q_mu"] = gpflow.Parameter(np.ones((M, P)))
        factor = np.tile(0.3 * np.eye(M), (P, 1, 1))
        parts["q_sqrt"] = gpflow.Parameter(factor, transform=gpflow.utilities.triangular())
    for key, part in parts.items():
        setattr(model, key, part)
        assert getattr(model, key) is part
    assert len(model.trainable_variables) == count + 1  # that of the mean function
    assert model.log_prior_density() == 0.0
    paths = gpflow.utilities.parameter_dict(model)
    assert {id(x) for x in paths.values()} == {id(x) for x in model.parameters}
    assert paths[".kernel.lengthscales"] is kernel.lengthscales
    assert np.isfinite(model.training_loss((X, Y)))
    if name in SVGPS:
        svgp = _make("SVGP", **{key: parts[key] for key in ("kernel", "mean_function")})
        for key in parts:
            setattr(svgp, key, parts[key])
        assert_close(model.predict_f(XNEW), svgp.predict_f(XNEW), rtol=1e-6)
    if name != "SVGP":
        # Where they belong, and there only: in the layer and the posterior.
        assert set(model._trackable_children()).isdisjoint(parts)


_UNFIT: list[tuple[str, Any, type[Exception], str]] = [
    ("q_mu", np.ones((M, 1)), ValueError, r"q_mu: expected shape \(6, 2\), got \(6, 1\)"),
    ("q_sqrt", np.ones((M, P)), ValueError, r"q_sqrt: expected shape \(2, 6, 6\), got \(6, 2\)"),
    ("q_sqrt", np.ones((1, M, M)), ValueError, "q_sqrt: expected shape"),
    ("inducing_variable", X[:4], ValueError, "inducing_variable: expected 6 inducing points"),
    ("inducing_variable", None, TypeError, "inducing_variable"),
    ("kernel", "rbf", TypeError, "kernel: expected a GPflow kernel"),
    (
        "kernel",
        gpflow.kernels.SquaredExponential(lengthscales=[1.0, 2.0, 3.0]),
        ValueError,
        "kernel: SquaredExponential .* does not fit",
    ),
    ("mean_function", 3.0, TypeError, "mean_function: expected a GPflow mean function"),
    (
        "mean_function",
        gpflow.functions.Constant(np.ones(3)),
        ValueError,
        "mean_function: expected 2 columns",
    ),
    ("whiten", "yes", TypeError, "whiten"),
]


@pytest.mark.parametrize(
    "owner, part, value, error, message",
    [("model", *case) for case in _UNFIT]
    + [("layer", *case) for case in _UNFIT if not case[0].startswith("q_")],
)
def test_unfit_parts_are_refused_and_leave_what_there_was(
    owner: str, part: str, value: Any, error: type[Exception], message: str
) -> None:
    model = _make("mean-field")
    before, elbo = getattr(model, part), model.elbo((X, Y))
    with pytest.raises(error, match=message):
        setattr(model if owner == "model" else model.layers[0], part, value)
    assert getattr(model, part) is before
    assert_close(model.elbo((X, Y)), elbo)


def test_parts_are_replaced_by_what_a_layer_takes() -> None:
    model = _make("mean-field")
    model.inducing_variable = X[-M:].copy()
    model.mean_function = None
    other = _make("mean-field")
    other.inducing_variable = InducingPoints(X[-M:].copy())
    other.mean_function = gpflow.functions.Zero(P)
    assert_close(model.elbo((X, Y)), other.elbo((X, Y)))


@pytest.mark.parametrize("name", OURS)
def test_new_parts_of_the_layer_are_the_model_s(name: str) -> None:
    model = _make(name)
    model.kernel.lengthscales.prior = tfp.distributions.Gamma(*np.array([2.0, 3.0]))
    model.layers[0].kernel = kernel = gpflow.kernels.Matern52()
    assert model.kernel is kernel
    assert model.log_prior_density() == 0.0
    assert len(model.trainable_variables) == len(_make(name).trainable_variables)
    assert gpflow.utilities.parameter_dict(model)[".kernel.variance"] is kernel.variance


class _Container(tf.Module):
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model


def _part_by_its_owner(model: Any, part: str) -> Callable[[Any], None]:
    """Ways to put in another part without the model's own names."""
    layer = model.layers[0]
    return {
        "kernel": lambda new: setattr(layer, "kernel", new),
        "inducing_variable": lambda new: layer.replace("inducing_variable", new),
        "mean_function": lambda new: setattr(layer, "mean_function", new),
        "q_mu": lambda new: setattr(model.inducing_posterior, "q_mu", [new]),
        "layers": lambda new: setattr(model, "layers", [new]),
        "inducing_posterior": lambda new: setattr(model, "inducing_posterior", new),
    }[part]


def _new_parts() -> dict[str, Any]:
    zero = gpflow.functions.Constant(np.zeros(P))
    kernel = gpflow.kernels.Matern52(lengthscales=[9.0, 9.0])
    layer = _layer(kernel, X[-M:].copy(), P, mean_function=zero)
    return {
        "kernel": gpflow.kernels.RBF(lengthscales=[9.0, 9.0]),
        "inducing_variable": InducingPoints(X[-M:].copy()),
        "mean_function": gpflow.functions.Constant(np.ones(P)),
        "q_mu": gpflow.Parameter(np.ones((M, P))),
        "layers": layer,
        "inducing_posterior": gd.posteriors.MeanField([layer]),
    }


@pytest.mark.parametrize("part", _new_parts())
def test_new_parts_have_svgp_s_names_whoever_looks_first(part: str) -> None:
    def model() -> Any:
        model = _make("mean-field", mean_function=gpflow.functions.Constant(np.zeros(P)))
        _part_by_its_owner(model, part)(_new_parts()[part])
        return model

    svgp, other = _make("SVGP", mean_function=gpflow.functions.Constant(np.ones(P))), model()
    gpflow.utilities.multiple_assign(other, gpflow.utilities.parameter_dict(svgp))
    assert_close(other.layers[0].kernel.lengthscales, svgp.kernel.lengthscales)
    assert_close(other.q_mu, svgp.q_mu)
    other = model()
    paths = gpflow.utilities.parameter_dict(other)
    alive = {
        id(x) for owner in (other.layers[0], other.inducing_posterior) for x in owner.parameters
    }
    assert {id(x) for x in paths.values()} == alive | {id(other.likelihood.variance)}
    assert paths[".kernel.lengthscales"] is other.layers[0].kernel.lengthscales
    assert paths[".inducing_variable.Z"] is other.layers[0].inducing_variable.Z
    assert paths[".q_mu"] is other.inducing_posterior.q_mu[0]
    assert paths[".q_sqrt"] is other.inducing_posterior.q_sqrt[0]
    for contained in (_Container, lambda model: model.posterior()):
        assert len(contained(model()).variables) == len(alive) + 1


def test_a_kernel_that_was_replaced_is_given_back_to_an_svgp() -> None:
    model, svgp = _make("mean-field"), _make("SVGP")
    model.layers[0].kernel = gpflow.kernels.Matern32(lengthscales=[7.0, 9.0])
    values = {
        path: value
        for path, value in gpflow.utilities.read_values(model).items()
        if not path.startswith((".layers[", ".inducing_posterior"))
    }
    gpflow.utilities.multiple_assign(svgp, values)
    assert_close(svgp.kernel.lengthscales, np.array([7.0, 9.0]))
    assert_close(svgp.predict_f(XNEW), model.predict_f(XNEW), rtol=1e-6)


@pytest.mark.parametrize("kind", [_Container, lambda model: gd.models.StackedDeepGP([model])])
def test_containers_train_the_parts_that_there_are(kind: Callable[[Any], Any]) -> None:
    model = _make("mean-field")
    container = kind(model)
    count = len(container.trainable_variables)
    model.layers[0].kernel = gpflow.kernels.Matern32(lengthscales=[7.0, 9.0])
    model.inducing_posterior = gd.posteriors.MeanField(model.layers)
    variables = container.trainable_variables
    assert len(variables) == count
    loss = model.training_loss_closure((X, Y), compile=False)
    options = {"maxiter": 2}
    assert gpflow.optimizers.Scipy().minimize(loss, variables, options=options).nit > 0


def test_a_layer_of_two_models_is_that_of_both() -> None:
    layer, likelihood = _layer(gpflow.kernels.RBF(), Z.copy(), P), gpflow.likelihoods.Gaussian()
    first = gd.models.DeepGP([layer], likelihood)
    with pytest.warns(UserWarning, match="is built on layers of"):
        second = gd.models.DeepGP([layer], likelihood)
    layer.kernel = gpflow.kernels.RBF(lengthscales=[9.0, 9.0])
    for model in (first, second):
        path = gpflow.utilities.parameter_dict(model)[".kernel.lengthscales"]
        assert path is layer.kernel.lengthscales


_COPIES = {
    "copy": copy.deepcopy,
    "gpflow's": gpflow.utilities.deepcopy,
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
}


@pytest.mark.parametrize("copied", _COPIES.values(), ids=_COPIES)
def test_copies_have_the_new_parts_and_parts_of_their_own(copied: Callable[[Any], Any]) -> None:
    model = _make("mean-field")
    model.layers[0].kernel = gpflow.kernels.Matern32(lengthscales=[7.0, 9.0])
    for twin in (copied(model), copied(copied(model))):
        paths = gpflow.utilities.parameter_dict(twin)
        assert_close(paths[".kernel.lengthscales"], np.array([7.0, 9.0]))
        assert paths[".kernel.lengthscales"] is not model.kernel.lengthscales
        twin.layers[0].kernel = gpflow.kernels.Matern32(lengthscales=[3.0, 4.0])
        assert_close(
            gpflow.utilities.parameter_dict(twin)[".kernel.lengthscales"], np.array([3.0, 4.0])
        )
    assert_close(
        gpflow.utilities.parameter_dict(model)[".kernel.lengthscales"], np.array([7.0, 9.0])
    )
    frozen = gpflow.utilities.freeze(model)
    assert not frozen.variables
    assert_close(frozen.predict_f(XNEW), model.predict_f(XNEW))


def test_a_user_s_class_with_a_mixin_has_the_names_too() -> None:
    class Mixin:
        pass

    class Own(Mixin, gd.models.DeepGP):
        pass

    model = Own([_layer(gpflow.kernels.RBF(), Z.copy(), P)], gpflow.likelihoods.Gaussian())
    model.layers[0].kernel = kernel = gpflow.kernels.RBF(lengthscales=[9.0, 9.0])
    assert gpflow.utilities.parameter_dict(model)[".kernel.variance"] is kernel.variance


def test_names_of_a_gaussian_posterior_of_global_inducing_points() -> None:
    layer = _layer(gpflow.kernels.Matern32(), Z.copy(), P)
    model = gd.models.GlobalInducingDeepGP(
        [layer], gpflow.likelihoods.Gaussian(), posterior=gd.posteriors.IndependentGaussian
    )
    (q,) = model.inducing_posteriors
    assert model.q_mu is q.q_mu and model.q_sqrt is q.q_sqrt
    model.q_mu = gpflow.Parameter(np.ones((M, P)))
    assert q.q_mu is model.q_mu
    pseudo = _make("global-inducing")
    with pytest.raises(AttributeError, match="posterior of GlobalInducingDeepGP has no q_mu"):
        pseudo.q_mu = model.q_mu


@pytest.mark.parametrize("name", ["mean-field", "sigma-points"])
def test_values_of_an_svgp_of_independent_inducing_outputs_are_refused(name: str) -> None:
    diagonal = _make("SVGP", q_diag=True)
    with pytest.raises(ValueError, match=r"q_sqrt \[M, T\] of an SVGP with q_diag=True"):
        gpflow.utilities.multiple_assign(_make(name), gpflow.utilities.read_values(diagonal))


def test_values_of_several_outputs_alone_are_refused_where_they_are_coupled() -> None:
    X, likelihood = np.linspace(0.0, 1.0, 5)[:, None], gpflow.likelihoods.Gaussian
    kernel = gpflow.kernels.SquaredExponential()
    alone = gpflow.models.SVGP(kernel, likelihood(), X, num_latent_gps=2)
    coupled, mean_field = (
        gd.models.DeepGP([gd.layers.GPLayer(kernel, X, 2)], likelihood(), **posterior)
        for posterior in ({}, {"posterior": gd.posteriors.MeanField})
    )
    values = gpflow.utilities.read_values(alone)
    with pytest.raises(ValueError, match=r"got shape \(2, 5, 5\); .* what posterior=MeanField has"):
        gpflow.utilities.multiple_assign(coupled, values)
    gpflow.utilities.multiple_assign(mean_field, values)


@pytest.mark.parametrize("name", SVGPS)
def test_parts_are_fixed_by_their_names(name: str) -> None:
    model = _make(name)
    count = len(model.trainable_variables)
    for number, part in enumerate((model.q_sqrt, model.q_mu, model.inducing_variable), start=1):
        gpflow.set_trainable(part, False)
        assert len(model.trainable_variables) == count - number


# ---------------------------------------------------------------- posteriors, copies, export


@pytest.mark.parametrize("cache", [PrecomputeCacheType.TENSOR, PrecomputeCacheType.VARIABLE])
def test_posterior(model: Any, cache: PrecomputeCacheType) -> None:
    posterior = model.posterior(cache)
    for full_cov in (False, True):
        assert_close(
            posterior.predict_f(XNEW, full_cov=full_cov),
            model.predict_f(XNEW, full_cov=full_cov),
            rtol=1e-6,
        )
        assert_close(
            posterior.fused_predict_f(XNEW, full_cov=full_cov),
            model.predict_f(XNEW, full_cov=full_cov),
            rtol=1e-6,
        )


def test_copies(model: Any) -> None:
    expected = model.predict_y(XNEW)
    for twin in (copy.deepcopy(model), gpflow.utilities.deepcopy(model)):
        assert_close(twin.predict_y(XNEW), expected)
        twin.kernel.variance.assign(3.0)
        assert not np.allclose(twin.predict_y(XNEW)[1], expected[1])
        assert_close(model.predict_y(XNEW), expected)


def test_pickles(model: Any) -> None:
    dill = pytest.importorskip("dill")
    expected = model.predict_y(XNEW)
    assert_close(dill.loads(dill.dumps(model)).predict_y(XNEW), expected)
    assert_close(pickle.loads(pickle.dumps(model)).predict_y(XNEW), expected)


_CLIENT = """
import sys
import numpy as np, tensorflow as tf
for line in sys.stdin:
    folder = line.strip()
    loaded, X = tf.saved_model.load(folder + "/model"), np.load(folder + "/X.npy")
    np.save(folder + "/out.npy", np.stack([loaded.predict(X[:n])[1][0] for n in (1, len(X))]))
    assert not any(name.startswith("gpflow") for name in sys.modules)
    print("served", flush=True)
"""


@pytest.fixture(scope="module")
def client() -> Iterator[subprocess.Popen[str]]:
    """A process that knows TensorFlow alone, and serves what is in the folders that it is told."""
    command = [sys.executable, "-c", _CLIENT]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process


def test_frozen_and_served_without_this_package(
    model: Any, client: subprocess.Popen[str], tmp_path: Path
) -> None:
    frozen = gpflow.utilities.freeze(model)
    module = tf.Module()
    signature = [tf.TensorSpec(shape=[None, D], dtype=tf.float64)]
    module.predict = tf.function(frozen.predict_y, input_signature=signature, autograph=False)
    tf.saved_model.save(module, str(tmp_path / "model"))
    np.save(tmp_path / "X.npy", XNEW)
    client.stdin.write(f"{tmp_path}\n")
    client.stdin.flush()
    assert client.stdout.readline() == "served\n"
    expected = model.predict_y(XNEW)[1][0]
    assert_close(np.load(tmp_path / "out.npy"), np.stack([expected, expected]), rtol=1e-6)


def test_monitor(model: Any, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    task = gpflow.monitor.ModelToTensorBoard(str(tmp_path), model)
    gpflow.monitor.Monitor(gpflow.monitor.MonitorTaskGroup(task))(0)
    assert list(tmp_path.iterdir())


def test_checkpoint(name: str, tmp_path: Path) -> None:
    model, other = _make(name), _make(name)
    other.kernel.variance.assign(5.0)
    path = tf.train.Checkpoint(model=model).write(str(tmp_path / "saved"))
    tf.train.Checkpoint(model=other).read(path).assert_consumed()
    assert_close(other.predict_y(XNEW), model.predict_y(XNEW))

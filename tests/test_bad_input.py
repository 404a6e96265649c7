"""Whatever users hand over: a clear error that names the argument, or a correct result."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import gpflow
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from check_shapes.exceptions import ShapeMismatchError
from gpflow.inducing_variables import InducingPoints, SeparateIndependentInducingVariables
from gpflow.keras import tf_keras
from gpflow.likelihoods import Gaussian

import gpflow_deep as gd
from tests.models.contract import XNEW, YNEW, X, Y, assert_close, differ, gradients, make_model

NAN_X, NAN_Y = X.copy(), Y.copy()
NAN_X[3, 1] = np.nan
NAN_Y[5, 0] = np.inf
Call = Callable[[gd.models.DeepGP], Any]


@pytest.fixture(scope="module")
def model() -> gd.models.DeepGP:
    """For reading only."""
    return make_model("stripes-and-arrow")


def _layers(hidden_dims: tuple[int, ...] = (2,), output_dim: int = 1) -> list[gd.layers.GPLayer]:
    return gd.layers.build_layers(X, hidden_dims, output_dim, num_inducing=5)


# ---------------------------------------------------------------- data

DATA: dict[str, tuple[type[Exception], str, Any]] = {
    "nan in X": (ValueError, r"data\[0\].*NaN", (NAN_X, Y)),
    "infinity in Y": (ValueError, r"data\[1\].*infinity", (X, NAN_Y)),
    "X a vector": (ValueError, r"data\[0\].*matrix.*\(20,\)", (X[:, 0], Y)),
    "Y a vector": (ValueError, r"data\[1\].*matrix.*\(20,\)", (X, Y[:, 0])),
    "X of three axes": (ValueError, r"data\[0\].*matrix.*\(1, 20, 2\)", (X[None], Y)),
    "other lengths": (ValueError, "data.*20 and 19", (X, Y[:-1])),
    "other inputs": (ValueError, r"data\[0\].*2\].*inducing inputs.*\(20, 3\)", (np.c_[X, Y], Y)),
    "too many targets": (ValueError, r"data\[1\].*\[N, 1\].*Gaussian.*\(20, 2\)", (X, X)),
    "no points": (ValueError, r"data\[0\].*non-empty.*\(0, 2\)", (X[:0], Y[:0])),
    "text": (TypeError, r"data\[1\].*real numbers.*string", (X, Y.astype(str))),
    "complex": (TypeError, r"data\[0\].*real numbers.*complex", (X + 1j, Y)),
    "objects": (TypeError, r"data\[1\].*real numbers", (X, Y.astype(str).astype(object))),
    "a table with text": (
        TypeError,
        r"data\[0\].*real numbers, got DataFrame: it holds text, such as 'red'",
        (pd.DataFrame({"a": ["red"] * 20, "b": X[:, 1]}), Y),
    ),
    "ragged": (TypeError, r"data\[1\].*real numbers.*list", (X, [[1.0]] * 19 + [[1.0, 2.0]])),
    "none": (TypeError, r"data\[1\].*real numbers.*None", (X, None)),
    "X alone": (TypeError, r"data.*pair \(X, Y\).*ndarray", X),
    "three": (TypeError, r"data.*pair \(X, Y\).*tuple of 3", (X, Y, Y)),
}


@pytest.mark.parametrize("name", DATA)
def test_bad_data_is_refused(model: gd.models.DeepGP, name: str) -> None:
    error, match, data = DATA[name]
    with pytest.raises(error, match=match):
        model.elbo(data)
    # Here GPflow's check of ranks comes first; compiled, TensorFlow may wrap the error in its own.
    with pytest.raises((error, ShapeMismatchError), match=f"{match}|Argument: data"):
        model.training_loss(data)
    with pytest.raises(Exception, match=f"{match}|Argument: data"):
        model.training_loss_closure(data)()


def test_data_of_a_closure_is_a_pair_or_an_iterator(model: gd.models.DeepGP) -> None:
    dataset = tf.data.Dataset.from_tensors((X, Y))
    with pytest.raises(TypeError, match=r"data: expected a pair \(X, Y\), or an iterator"):
        model.training_loss_closure(dataset)
    for compile in (False, True):
        ours = model.training_loss_closure(iter([(X, Y)] * 2), compile=compile)
        tf.random.set_seed(0)
        losses = [float(ours()) for _ in range(2)]
        numbers = model.training_loss_closure(dataset.as_numpy_iterator(), compile=compile)
        assert np.isfinite([*losses, float(numbers())]).all()
        with pytest.raises(StopIteration):
            ours()


@pytest.mark.parametrize("bad", ["X", "Y"])
def test_values_known_only_in_a_compiled_step(model: gd.models.DeepGP, bad: str) -> None:
    """Of minibatches: TensorFlow's error with this package's words, in place of a loss that is NaN."""
    data = (NAN_X, Y) if bad == "X" else (X, NAN_Y)
    batches = iter(tf.data.Dataset.from_tensor_slices(data).batch(20))
    index = "XY".index(bad)
    with pytest.raises(tf.errors.InvalidArgumentError, match=rf"data\[{index}\]: expected finite"):
        model.training_loss_closure(batches)()


@pytest.mark.parametrize("likelihood", [gpflow.likelihoods.Softmax, gpflow.likelihoods.MultiClass])
def test_targets_that_are_no_classes(likelihood: type) -> None:
    model = make_model("mean-field", likelihood=likelihood(3), output_dim=3)
    for wrong in (3.0, -1.0, 0.5):
        targets = np.where(np.arange(20)[:, None] == 7, wrong, 1.0)
        for act in (model.elbo, model.predict_log_density):
            with pytest.raises(ValueError, match=rf"data\[1\].*classes 0 to 2.*{wrong:g}"):
                act((X, targets))
        batches = iter(tf.data.Dataset.from_tensor_slices((X, targets)).batch(20))
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"data\[1\].*classes 0 to 2"):
            model.training_loss_closure(batches)()
    with pytest.raises(ValueError, match=r"data\[1\].*\[N, 1\].*\(20, 3\)"):
        model.elbo((X, np.eye(3)[np.arange(20) % 3]))
    for dtype in (np.int32, np.int64, np.uint8, np.float32, np.float64):
        assert np.isfinite(model.elbo((X, (np.arange(20)[:, None] % 3).astype(dtype))))


# ---------------------------------------------------------------- predictions

PREDICTIONS: dict[str, tuple[type[Exception], str, Call]] = {
    "other inputs": (
        ValueError,
        r"Xnew.*2\].*\(6, 3\)",
        lambda model: model.predict_f(np.c_[XNEW, YNEW]),
    ),
    "vector": (ShapeMismatchError, "Xnew", lambda model: model.predict_y(XNEW[:, 0])),
    "vector for components": (
        ValueError,
        r"Xnew.*\(6,\)",
        lambda model: model.predict_f_mixture(XNEW[:, 0]),
    ),
    "text": (TypeError, "Xnew.*string", lambda model: model.predict_f(XNEW.astype(str))),
    "no draws": (ValueError, "num_samples.*0", lambda model: model.predict_f_samples(XNEW, 0)),
    "half a draw": (
        ValueError,
        "num_samples.*0.5",
        lambda model: model.predict_f_mixture(XNEW, num_samples=0.5),
    ),
    "targets of another width": (
        ValueError,
        r"data\[1\].*\[N, 1\].*\(6, 2\)",
        lambda model: model.predict_log_density((XNEW, np.c_[YNEW, YNEW])),
    ),
    "targets of another length": (
        ShapeMismatchError,
        "data",
        lambda model: model.predict_log_density((XNEW, YNEW[:5])),
    ),
    "targets a vector": (
        ValueError,
        r"data\[1\].*\[..., N, P\].*\(6,\)\. One column is x\[:, None\]",
        lambda model: model.predict_log_density((XNEW, YNEW[:, 0])),
    ),
    "no pair": (
        ShapeMismatchError,
        "data",
        lambda model: model.predict_log_density(XNEW),
    ),
}


@pytest.mark.parametrize("name", PREDICTIONS)
def test_bad_test_inputs_are_refused(model: gd.models.DeepGP, name: str) -> None:
    error, match, act = PREDICTIONS[name]
    for predictor in (model, model.posterior()):
        with pytest.raises(error, match=match):
            act(predictor)


def test_data_that_are_no_matrix_are_refused_with_advice(model: gd.models.DeepGP) -> None:
    with pytest.raises(ValueError, match=r"data\[1\].*matrix.*One column is x\[:, None\]"):
        model.elbo((XNEW, YNEW[:, 0]))
    with pytest.raises(ValueError, match=r"data\[0\].*matrix.*reshape them to \[5, 16\]"):
        model.elbo((np.zeros([5, 4, 4, 1]), YNEW[:5]))


def test_unknown_dimensions_are_checked_when_they_are_known(model: gd.models.DeepGP) -> None:
    signature = [tf.TensorSpec([None, None], tf.float64)]
    predict = tf.function(model.predict_y, input_signature=signature)
    assert_close(predict(XNEW), model.predict_y(XNEW))
    with pytest.raises(tf.errors.InvalidArgumentError):
        predict(np.c_[XNEW, YNEW])


def test_a_point_without_a_value_spoils_no_other(model: gd.models.DeepGP) -> None:
    bad = XNEW.copy()
    bad[2, 0] = np.nan
    for actual, expected in zip(model.predict_y(bad), model.predict_y(XNEW), strict=True):
        assert np.isnan(actual[2])
        np.testing.assert_array_equal(np.delete(actual, 2, 0), np.delete(expected, 2, 0))


@pytest.mark.parametrize(
    "family", ["amortized-samples", "amortized-sites", "stripes-and-arrow", "fully-coupled"]
)
def test_a_point_that_would_spoil_others_is_named(family: str) -> None:
    """Not a factorisation that fails of it."""
    bad = XNEW.copy()
    bad[2, 0] = np.nan
    model = make_model(family)
    calls: list[Callable[[], Any]] = [lambda: model.propagate(bad)]
    calls.append(lambda: model.predict_f_samples(bad, 3, full_cov=False))
    if family != "stripes-and-arrow":
        for predictor in (model, model.posterior()):
            calls.append(partial(predictor.predict_f, bad))
            calls.append(partial(predictor.predict_log_density, (bad, YNEW)))
    for call in calls:
        with pytest.raises(ValueError, match="Xn?e?w?: expected finite values"):
            call()


def test_objects_that_are_numbers(model: gd.models.DeepGP) -> None:
    """Of NumPy, and what a table of numbers and truth values is to it."""
    table = pd.DataFrame({"a": XNEW[:, 0], "b": XNEW[:, 1] > 0})
    expected = model.predict_f(table.to_numpy(float))
    for inputs in (table, table.to_numpy(float).astype(object)):
        assert_close(model.predict_f(inputs), expected)
    with pytest.raises(TypeError, match="Xnew: expected an array of real numbers"):
        model.predict_f(table.assign(a="1.0"))
    objects = X.astype(object), Y.astype(object)
    assert np.isfinite(model.elbo(objects))
    gd.training.fit(make_model("mean-field"), objects, steps=1, progress=False)


@pytest.mark.parametrize("seed", [3, np.int64(3), 2**40])
def test_a_seed_is_one_integer_or_two(model: gd.models.DeepGP, seed: int) -> None:
    pair = np.array([seed, 0])
    for draw in (
        lambda seed: model.draw_noise(5, seed=seed),
        lambda seed: model.sample_prior(XNEW, 2, seed=seed),
        lambda seed: model.sample_functions(2, seed=seed)(XNEW),
    ):
        assert_close(draw(seed), draw(pair))
        assert differ(draw(seed), draw(seed + 1))
    drawn = tf.function(lambda first: model.draw_noise(5, seed=[first, 0]))(tf.constant(pair[0]))
    assert_close(drawn, model.draw_noise(5, seed=pair))
    for wrong in (1.0, -1, True, "one", 10**30, [1, 2, 3]):
        with pytest.raises(
            ValueError, match="seed: expected None, an integer from 0 on, or two integers"
        ):
            model.draw_noise(5, seed=wrong)


@pytest.mark.parametrize(
    "family", ["amortized-sites", "fitc-ep", "sampled", "bayesian-network", "stripes-and-arrow"]
)
def test_other_posteriors_have_no_pairs_for_natural_gradients(family: str) -> None:
    model = make_model(family)
    with pytest.raises(NotImplementedError, match="gpflow.optimizers.NaturalGradient updates"):
        _ = model.variational_params
    if family in ("amortized-sites", "bayesian-network"):
        with pytest.raises(ValueError, match=f"got {type(model).__name__}. Other models train"):
            gd.optimizers.NaturalGradient(0.1).minimize(lambda: tf.zeros([]), model)


def test_types_of_numbers(model: gd.models.DeepGP) -> None:
    """Integers, single precision, lists and tensors are the same data."""
    integers, targets = np.round(2 * X).astype(int), np.round(Y).astype(int)
    noise = model.draw_noise(20, seed=[1, 2])
    loss = model.elbo((integers.astype(float), targets.astype(float)), noise=noise)
    predicted = model.predict_y(integers.astype(float))
    for convert in (
        np.asarray,
        np.ndarray.tolist,
        tf.constant,
        tf.Variable,
        lambda x: x.astype(np.float32),
        lambda x: x.astype(np.int8),
    ):
        assert_close(model.elbo((convert(integers), convert(targets)), noise=noise), loss)
        assert_close(model.predict_y(convert(integers)), predicted)
    assert model.predict_y(integers.astype(np.float32))[0].dtype == tf.float64


# ---------------------------------------------------------------- draws

NOISE: dict[str, Callable[[list[tf.Tensor]], list[tf.Tensor]]] = {
    "too many": lambda noise: noise * 3,
    "of other points": lambda noise: [z[:, :-1] for z in noise],
    "of another width": lambda noise: [z[..., :1] for z in noise],
    "without samples": lambda noise: [z[0] for z in noise],
}


@pytest.mark.parametrize("name", NOISE)
def test_bad_draws_are_refused(model: gd.models.DeepGP, name: str) -> None:
    """Above all those that would broadcast: one draw for all GPs is another model."""
    noise = NOISE[name](model.draw_noise(20))
    with pytest.raises(ValueError, match=r"noise.*\[S, 20, 2\].*, got"):
        model.elbo((X, Y), noise=noise)
    with pytest.raises(ValueError, match=r"noise.*\[S, 20, 2\].*, got"):
        model.propagate(X, noise=noise)


def test_draws_of_inducing_outputs_are_checked_too() -> None:
    model = make_model("mean-field", marginalisation="monte_carlo")
    noise = model.draw_noise(20)
    assert np.isfinite(model.elbo((X, Y), noise=noise))
    assert np.isfinite(
        model.elbo((X, Y), noise=noise[:1])
    )  # those of the points: the others are drawn
    for wrong in (noise[:-1], [*noise[:-1], noise[-1][..., :3]], noise * 2):
        with pytest.raises(ValueError, match=r"noise.*\[S, 20, 2\].*, got"):
            model.elbo((X, Y), noise=wrong)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_samples", 0),
        ("num_samples", 2.5),
        ("num_prediction_samples", 0),
        ("num_data", -3),
        ("seed", -1),
        ("covariance_jitter", -1e-6),
    ],
)
def test_bad_numbers_are_refused_when_they_are_assigned(name: str, value: float) -> None:
    model = make_model("stripes-and-arrow")
    before = getattr(model, name)
    with pytest.raises(ValueError, match=f"{name}: expected .*got {value}"):
        setattr(model, name, value)
    assert getattr(model, name) == before


@pytest.mark.parametrize("seed", [3.0, [1], [1, 2, 3], [[1, 2]]])
def test_bad_seeds_of_draws_are_refused(model: gd.models.DeepGP, seed: Any) -> None:
    with pytest.raises(ValueError, match="seed.*two integers"):
        model.draw_noise(20, seed=seed)


# ---------------------------------------------------------------- models

MODELS: dict[str, tuple[type[Exception], str, Callable[[], Any]]] = {
    "no layers": (TypeError, r"layers.*non-empty", lambda: gd.models.DeepGP([], Gaussian())),
    "one layer": (
        TypeError,
        "layers.*sequence of GPLayer",
        lambda: gd.models.DeepGP(_layers()[0], Gaussian()),
    ),
    "other layers": (
        TypeError,
        "layers.*GPLayer.*'layer'",
        lambda: gd.models.DeepGP(["layer"], Gaussian()),
    ),
    "layers of other widths": (
        ValueError,
        "layers.*layer 1.*dimension 3, expected 2",
        lambda: gd.models.DeepGP([_layers()[0], _layers((3,))[1]], Gaussian()),
    ),
    "no likelihood": (TypeError, "likelihood.*None", lambda: gd.models.DeepGP(_layers(), None)),
    "a class of likelihoods": (
        TypeError,
        "likelihood.*class.*Gaussian",
        lambda: gd.models.DeepGP(_layers(), Gaussian),
    ),
    "a likelihood of more functions": (
        ValueError,
        "likelihood.*Softmax.*3.*1",
        lambda: gd.models.DeepGP(_layers(), gpflow.likelihoods.Softmax(3)),
    ),
    "a likelihood of two functions": (
        ValueError,
        "likelihood.*HeteroskedasticTFPConditional.*2.*3",
        lambda: gd.models.DeepGP(
            _layers(output_dim=3), gpflow.likelihoods.HeteroskedasticTFPConditional()
        ),
    ),
    "a typing error": (
        ValueError,
        "marginalisation.*'analytic' or 'monte_carlo'.*'analytical'",
        lambda: gd.models.DeepGP(_layers(), Gaussian(), marginalisation="analytical"),
    ),
    "negative jitter": (
        ValueError,
        "covariance_jitter.*-1e-06",
        lambda: gd.models.DeepGP(_layers(), Gaussian(), covariance_jitter=-1e-6),
    ),
    "a posterior by name": (
        TypeError,
        "posterior.*MeanField.*'mean_field'",
        lambda: gd.models.DeepGP(_layers(), Gaussian(), "mean_field"),
    ),
    "a posterior without its pattern": (
        TypeError,
        "pattern",
        lambda: gd.models.DeepGP(_layers(), Gaussian(), gd.posteriors.BlockStructured),
    ),
    "a posterior of other layers": (
        ValueError,
        r"posterior.*\[\(2, 5\), \(1, 5\)\].*\[\(3, 5\), \(1, 5\)\]",
        lambda: gd.models.DeepGP(_layers(), Gaussian(), gd.posteriors.MeanField(_layers((3,)))),
    ),
    "one kernel of separate inducing variables": (
        ValueError,
        "kernel.*SharedIndependent.*got SquaredExponential",
        lambda: gd.layers.GPLayer(
            gpflow.kernels.SquaredExponential(),
            SeparateIndependentInducingVariables([InducingPoints(np.eye(2)) for _ in range(2)]),
            2,
        ),
    ),
    "a mean that is not finite": (
        ValueError,
        "mean.*NaN",
        lambda: gd.posteriors.MeanField(_layers()).assign_dense(np.full(15, np.nan), np.eye(15)),
    ),
    "a hidden scale of zero": (
        ValueError,
        "hidden_scale.*positive.*0",
        lambda: gd.posteriors.StripesAndArrow(_layers(), hidden_scale=0.0),
    ),
    "a posterior of no layers": (TypeError, "layers", lambda: gd.posteriors.MeanField([])),
    "a pattern above the diagonal": (
        ValueError,
        r"pattern.*lower-triangular.*\(0, 1\)",
        lambda: gd.posteriors.BlockStructured(_layers(), np.ones((3, 3))),
    ),
    "a pattern of other GPs": (
        ValueError,
        r"pattern.*\[3, 3\].*\[2, 2\]",
        lambda: gd.posteriors.BlockStructured(_layers(), np.tri(2)),
    ),
    "a pattern of weights": (
        ValueError,
        "pattern.*boolean",
        lambda: gd.posteriors.BlockStructured(_layers(), 0.5 * np.tri(3)),
    ),
    "no samples": (
        ValueError,
        "num_samples.*0",
        lambda: gd.models.DeepGP(_layers(), Gaussian(), num_samples=0),
    ),
    "no components": (
        ValueError,
        "num_prediction_samples.*-5",
        lambda: gd.models.DeepGP(_layers(), Gaussian(), num_prediction_samples=-5),
    ),
    "no data": (
        ValueError,
        "num_data.*0",
        lambda: gd.models.DeepGP(_layers(), Gaussian(), num_data=0),
    ),
    "the data in place of their number": (
        ValueError,
        "num_data.*positive integer",
        lambda: gd.models.DeepGP(_layers(), Gaussian(), num_data=X),
    ),
    "a seed that is none": (
        ValueError,
        "seed.*None",
        lambda: gd.models.DeepGP(_layers(), Gaussian(), seed=None),
    ),
    "a negative seed": (
        ValueError,
        "seed.*-1",
        lambda: gd.models.DeepGP(_layers(), Gaussian(), seed=-1),
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_models_that_cannot_be_are_refused(name: str) -> None:
    error, match, act = MODELS[name]
    with pytest.raises(error, match=match):
        act()


def test_patterns_of_ones_and_zeros() -> None:
    for convert in (np.asarray, np.ndarray.tolist, tf.constant, lambda x: x.astype(bool)):
        posterior = gd.posteriors.BlockStructured(_layers(), convert(np.tri(3)))
        np.testing.assert_array_equal(posterior.pattern, np.tri(3, dtype=bool))


# ---------------------------------------------------------------- difficult data

CONSTANT = np.c_[X[:, :1], np.full(20, 3.0)]
DIFFICULT: dict[str, tuple[np.ndarray, np.ndarray]] = {
    "one point": (X[:1], Y[:1]),
    "two points": (X[:2], Y[:2]),
    "fewer points than inducing points": (X[:7], Y[:7]),
    "duplicate rows": (np.repeat(X[:6], 3, axis=0), np.repeat(Y[:6], 3, axis=0)),
    "nearly duplicate rows": (np.r_[X, X + 1e-9], np.r_[Y, Y]),
    "one point many times": (np.repeat(X[:1], 20, axis=0), Y),
    "a constant column": (CONSTANT, Y),
    "constant inputs and targets": (np.ones((20, 2)), np.zeros((20, 1))),
    "constant targets": (X, np.ones((20, 1))),
    "a column in other units": (X * [1.0, 1e3], Y),
    "targets far from zero": (X, Y + 1e6),
}


@pytest.mark.parametrize("family", [gd.posteriors.MeanField, gd.posteriors.FullyCoupled])
@pytest.mark.parametrize("name", DIFFICULT)
def test_difficult_data_train(name: str, family: type) -> None:
    X, Y = DIFFICULT[name]
    layers = gd.layers.build_layers(X, hidden_dims=(3, 1), num_inducing=10)
    model = gd.models.DeepGP(layers, Gaussian(0.1), family, num_samples=2, num_data=len(X))
    adam = tf_keras.optimizers.Adam(0.01)
    for _ in range(3):
        loss, slopes = gradients(lambda: model.training_loss((X, Y)), model.trainable_variables)
        assert np.isfinite(loss)
        assert all(np.isfinite(slope).all() for slope in slopes)
        adam.apply_gradients(zip(slopes, model.trainable_variables, strict=True))
    for prediction in (*model.predict_y(X), model.predict_log_density((X, Y))):
        assert np.isfinite(prediction).all()
    assert np.isfinite(model.predict_f_samples(X, 2, full_cov=True)).all()


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("family", ["fully-coupled", "stripes-and-arrow"])
def test_covariances_at_a_point_that_cannot_be_factorised(family: str, compiled: bool) -> None:
    """The recursion's own factorisations say so too."""
    model = make_model(family, hidden_dims=(2,), output_dim=2)
    vars(model)["covariance_jitter"] = -10.0  # no user can: what rounding does in bad cases
    noise = [np.zeros((1, 6, 2)), np.zeros((1, 6, 2))]

    def propagate() -> list[Any]:
        return model.propagate(XNEW, noise)

    with pytest.raises(
        (ValueError, tf.errors.InvalidArgumentError),
        match="covariance of .*GPs.* at a point failed",
    ):
        (tf.function(propagate, autograph=False) if compiled else propagate)()

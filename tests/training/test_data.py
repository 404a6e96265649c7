"""Minibatches, the validation split, and what is refused at the door."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.keras import tf_keras
from gpflow.likelihoods import Gaussian, Likelihood, MultiClass, Softmax, SwitchedLikelihood
from gpflow.utilities import set_trainable
from hypothesis import given
from hypothesis import strategies as st

from gpflow_deep.likelihoods import MissingOutputs
from gpflow_deep.training import checks, fit, minibatches
from gpflow_deep.training.data import hold_out, split_validation
from tests.training.models import (
    CountingSVGP,
    Line,
    N,
    assert_same,
    make_data,
    make_svgp,
    quiet_fit,
)


@given(
    num_rows=st.integers(1, 30),
    batch_size=st.integers(1, 40),
    seed=st.integers(0, 2**63 - 1),
    start=st.integers(0, 50),
)
def test_batch_depends_on_seed_and_number_only(
    num_rows: int, batch_size: int, seed: int, start: int
) -> None:
    X = np.arange(num_rows, dtype=float)[:, None]
    data = (X, -X)
    whole = list(minibatches(data, batch_size, seed).take(start + 3).as_numpy_iterator())
    part = list(minibatches(data, batch_size, seed, start).take(3).as_numpy_iterator())
    for (X_whole, Y_whole), (X_part, Y_part) in zip(whole[start:], part, strict=True):
        assert X_part.shape == (min(batch_size, num_rows), 1)
        np.testing.assert_array_equal(X_whole, X_part)
        np.testing.assert_array_equal(Y_whole, Y_part)
        np.testing.assert_array_equal(Y_part, -X_part)


@given(num_rows=st.integers(1, 30), batch_size=st.integers(1, 30))
def test_an_epoch_has_no_row_twice(num_rows: int, batch_size: int) -> None:
    X = np.arange(num_rows, dtype=float)[:, None]
    num_batches = max(1, num_rows // batch_size)
    batches = minibatches((X, X), batch_size).take(num_batches).as_numpy_iterator()
    rows = np.concatenate([batch for batch, _ in batches])
    assert len(np.unique(rows)) == len(rows) == min(num_rows, num_batches * batch_size)


def test_epochs_and_seeds_have_permutations_of_their_own() -> None:
    X = np.arange(50.0)[:, None]
    first, second = (x for x, _ in minibatches((X, X), 25, 0).batch(2).take(2).as_numpy_iterator())
    other, _ = next(minibatches((X, X), 25, 1).batch(2).as_numpy_iterator())
    assert sorted(first.ravel()) == sorted(second.ravel()) == sorted(other.ravel())
    assert not np.array_equal(first, second)
    assert not np.array_equal(first, other)


def test_full_batch_is_the_data_in_order() -> None:
    X, Y = make_data()
    for batch_size in (None, N, 10 * N):
        X_batch, Y_batch = next(minibatches((X, Y), batch_size, 3, 7).as_numpy_iterator())
        np.testing.assert_array_equal(X_batch, X)
        np.testing.assert_array_equal(Y_batch, Y)


@given(
    num_rows=st.integers(2, 40),
    fraction=st.floats(0.01, 0.6),
    seed=st.integers(0, 2**32),
)
def test_split_is_a_partition(num_rows: int, fraction: float, seed: int) -> None:
    X = np.arange(num_rows, dtype=float)[:, None]
    if max(1, round(fraction * num_rows)) == num_rows:
        with pytest.raises(ValueError, match="validation_fraction"):
            split_validation((X, -X), fraction, seed)
        return
    parts = split_validation((X, -X), fraction, seed)
    again = split_validation((X, -X), fraction, seed)
    for (X_part, Y_part), (X_again, _) in zip(parts, again, strict=True):
        np.testing.assert_array_equal(Y_part, -X_part)
        np.testing.assert_array_equal(X_part, X_again)
        assert len(X_part) > 0
    np.testing.assert_array_equal(np.sort(np.concatenate([part for part, _ in parts]), axis=0), X)
    assert abs(len(parts[1][0]) - max(1.0, fraction * num_rows)) <= 0.5


def test_rows_held_out_are_those_of_recorded_results() -> None:
    """Each of the three that hold rows out: by `fit`, by the estimators, by the studies."""
    left, drawn = hold_out(10, 0.25, 3)
    assert (left.tolist(), drawn.tolist()) == ([0, 2, 1, 4, 7, 5, 3, 8], [9, 6])
    order = np.random.default_rng(5).permutation(3000)
    left, drawn = hold_out(3000, 0.9, 5, at_least=0, at_most=2000)
    np.testing.assert_array_equal(np.concatenate([drawn, left]), order)
    assert len(drawn) == 2000
    assert len(hold_out(12, 0.01, 5, at_least=0)[1]) == 0
    rows = np.array([5, 90, 7, 30, 41, 6])
    left, drawn = hold_out(len(rows), 0.3, [0, 1])
    shuffled = np.random.default_rng([0, 1]).permutation(rows)
    np.testing.assert_array_equal(rows[np.concatenate([drawn, left])], shuffled)


def with_bad_rows(bad: float) -> np.ndarray:
    X = make_data()[0]
    X[[3, 7]] = bad
    return X


@pytest.mark.parametrize(
    "data,error,named",
    [
        (lambda X, Y: X, TypeError, r"data: expected a pair \(X, Y\)"),
        (lambda X, Y: (X,), TypeError, r"data: expected a pair \(X, Y\)"),
        (lambda X, Y: (X, Y[:-1]), ValueError, "data: .* 60 and 59 rows"),
        (lambda X, Y: (X[:, 0], Y), ValueError, r"X of data: .* got shape \(60,\)"),
        (
            lambda X, Y: (np.ma.masked_less(X, -1.0), Y),
            ValueError,
            "X of data: expected values, got [0-9]+ that are masked",
        ),
        (lambda X, Y: (X[:0], Y[:0]), ValueError, r"X of data: .* got shape \(0, 2\)"),
        (lambda X, Y: (X.astype(str), Y), TypeError, "X of data: expected real numbers"),
        (lambda X, Y: (X, Y + 1j), TypeError, "Y of data: expected real numbers"),
        (lambda X, Y: (with_bad_rows(np.nan), Y), ValueError, "X of data: .* 2 of 60 rows"),
        (lambda X, Y: (with_bad_rows(np.inf), Y), ValueError, "X of data: .* 2 of 60 rows"),
        (lambda X, Y: (X[:, :1], Y), ValueError, "X of data: .* 1 columns"),
        (
            lambda X, Y: (X, np.hstack([Y, Y])),
            ValueError,
            r"Y of data: expected \[N, 1\] .* \(60, 2\)",
        ),
    ],
)
@pytest.mark.parametrize("argument", ["data", "validation_data"])
def test_bad_data_is_refused(
    argument: str, data: Callable[..., Any], error: type[Exception], named: str
) -> None:
    model = make_svgp(CountingSVGP)
    good, bad = make_data(), data(*make_data())
    kwargs = {"data": bad} if argument == "data" else {"data": good, "validation_data": bad}
    with pytest.raises(error, match=named.replace("data", argument)):
        quiet_fit(model, **kwargs)
    assert model.num_traces == 0


@pytest.mark.parametrize("likelihood", [MultiClass(3), Softmax(3)], ids=["MultiClass", "Softmax"])
@pytest.mark.parametrize("wrong", [1.5, 3.0, -1.0])
@pytest.mark.parametrize("argument", ["data", "validation_data"])
def test_what_is_no_class_is_refused(argument: str, wrong: float, likelihood: Likelihood) -> None:
    X = make_data()[0]
    Y = np.arange(N, dtype=float)[:, None] % 3
    bad = np.where(np.arange(N)[:, None] == 50, wrong, Y)
    model = make_svgp(CountingSVGP, likelihood=likelihood, num_latent_gps=3)
    kwargs = {"data": (X, bad)} if argument == "data" else {"data": (X, Y)}
    if argument != "data":
        kwargs["validation_data"] = (X, bad)
    with pytest.raises(
        ValueError, match=f"Y of {argument}: expected classes 0 to 2.*got {wrong:g}"
    ):
        quiet_fit(model, **kwargs)
    assert model.num_traces == 0
    # GPflow's own models too are given the classes in the type that the likelihood takes.
    quiet_fit(model, (X, Y), steps=2, validation_fraction=0.2)
    assert model.num_traces > 0


def test_targets_with_their_likelihood_beside_them() -> None:
    X, Y = make_data()
    likelihood = SwitchedLikelihood([Gaussian(0.1), Gaussian(1.0)])
    model = make_svgp(likelihood=likelihood)
    switched = np.hstack([Y, np.arange(N)[:, None] % 2])
    before = model.elbo((X, switched)).numpy()
    quiet_fit(model, (X, switched), steps=30, learning_rate=0.05, batch_size=None)
    assert model.elbo((X, switched)) > before + 10.0
    with pytest.raises(ValueError, match=r"Y of data: expected \[N, 2\] .* \(60, 1\)"):
        quiet_fit(model, (X, Y))
    switched[3, 1] = 7.0
    with pytest.raises(
        ValueError, match="index of a likelihood, 0 to 1, in the last column, got 7"
    ):
        quiet_fit(model, (X, switched))


@pytest.mark.parametrize(
    "kwargs,named",
    [
        ({"steps": 0}, "steps: .* got 0"),
        ({"steps": 10.5}, "steps"),
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": True}, "batch_size"),
        ({"seed": -1}, "seed"),
        ({"seed": 1.0}, "seed"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"learning_rate": float("nan")}, "learning_rate"),
        ({"learning_rate": "fast"}, "learning_rate: .* got 'fast'"),
        ({"decay_rate": 1.5}, "decay_rate"),
        ({"decay_steps": 0}, "decay_steps"),
        ({"natural_gradient": 2.0}, "natural_gradient"),
        ({"natural_gradient": 0.0}, "natural_gradient"),
        (
            {"natural_gradient": gpflow.optimizers.NaturalGradient(0.1)},
            "natural_gradient: expected .*gpflow_deep.optimizers.NaturalGradient, got gpflow.",
        ),
        ({"validation_fraction": 1.5}, "validation_fraction"),
        ({"validation_fraction": 1.0}, "validation_fraction"),
        ({"validation_fraction": 0.1, "validation_data": make_data()}, "validation_data"),
        ({"validate_every": 0}, "validate_every"),
        ({"patience": 0}, "patience"),
        ({"checkpoint_every": 0}, "checkpoint_every"),
        ({"optimizer": "adam"}, "optimizer: expected a Keras optimiser, got 'adam'"),
        (
            {"optimizer": tf_keras.optimizers.Adam},
            "optimizer: expected a Keras optimiser, got <class",
        ),
        (
            {"optimizer": tf_keras.optimizers.legacy.SGD()},
            "optimizer: expected a Keras optimiser, got .*of optimizers.legacy are not supported",
        ),
        ({"checkpoint_dir": ""}, "checkpoint_dir: expected the path of a folder, got an empty one"),
        ({"checkpoint_dir": 3}, "checkpoint_dir: expected the path of a folder, got int"),
        ({"callback": 1}, "callback"),
        ({"monitor": 1}, "monitor"),
    ],
)
def test_bad_arguments_are_refused(kwargs: dict[str, Any], named: str) -> None:
    model = make_svgp(CountingSVGP)
    with pytest.raises((ValueError, TypeError), match=named):
        quiet_fit(model, **kwargs)
    assert model.num_traces == 0


def test_models_that_cannot_be_fitted_are_refused() -> None:
    data = make_data()
    with pytest.raises(TypeError, match="model: expected one with training_loss"):
        quiet_fit(gpflow.models.GPR(data, gpflow.kernels.RBF()), data)
    fixed = make_svgp()
    set_trainable(fixed, False)
    with pytest.raises(ValueError, match="trainable parameters"):
        quiet_fit(fixed, data)


def test_integers_and_narrow_floats_are_widened_exactly() -> None:
    X, Y = make_data()
    X, Y = np.round(10.0 * X), np.round(Y)
    expected = Line()
    quiet_fit(expected, (X, Y))
    for dtype in (np.int64, np.int8, np.float32, np.float16):
        model = Line()
        quiet_fit(model, (X.astype(dtype), tf.constant(Y.astype(dtype))))
        assert_same(model, expected)


def test_float32_model() -> None:
    X, Y = make_data()
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        wide, narrow = Line(), Line()
        quiet_fit(wide, (X, Y), validation_fraction=0.2)
        quiet_fit(narrow, (X.astype(np.float32), Y.astype(np.float32)), validation_fraction=0.2)
        assert wide.slope.dtype == tf.float32
        assert_same(wide, narrow)
        X[4] = 1e39
        with pytest.raises(ValueError, match="X of data: .* finite in float32, .* 1 of 60 rows"):
            quiet_fit(wide, (X, Y))


def test_one_column_of_targets_may_be_flat() -> None:
    X, Y = make_data()
    expected, model = Line(), Line()
    quiet_fit(expected, (X, Y), validation_data=(X, Y))
    quiet_fit(model, (X, Y[:, 0]), validation_data=(X, Y[:, 0]))
    assert_same(model, expected)


def generated(signature: Any) -> tf.data.Dataset:
    def rows() -> Any:
        X, Y = make_data()
        yield from zip(np.split(X, [7, 20]), np.split(Y, [7, 20]), strict=True)

    return tf.data.Dataset.from_generator(rows, output_signature=signature)


UNKNOWN = tf.TensorSpec(None, tf.float64)
DATASETS = {
    "batches": lambda X, Y: tf.data.Dataset.from_tensor_slices((X, Y)).batch(16),
    "rows": lambda X, Y: tf.data.Dataset.from_tensor_slices((X, Y)),
    "scalar targets": lambda X, Y: tf.data.Dataset.from_tensor_slices((X, Y[:, 0])),
    "flat targets": lambda X, Y: tf.data.Dataset.from_tensor_slices((X, Y[:, 0])).batch(16),
    "unknown shapes": lambda X, Y: generated((UNKNOWN, UNKNOWN)),
}


@pytest.mark.parametrize("name", DATASETS)
def test_dataset_is_its_rows(name: str) -> None:
    X, Y = make_data()
    expected, model = Line(), Line()
    quiet_fit(expected, (X, Y), validation_data=(X, Y))
    quiet_fit(model, DATASETS[name](X, Y), validation_data=DATASETS[name](X, Y))
    assert_same(model, expected)


def failing() -> Any:
    yield np.zeros((3, 2)), np.zeros((3, 1))
    raise RuntimeError("the disk is gone")


def uneven() -> Any:
    yield np.zeros((3, 2)), np.zeros((3, 1))
    yield np.zeros((3, 1)), np.zeros((3, 1))


@pytest.mark.parametrize(
    "make,error,named",
    [
        (lambda whole: whole.repeat(), ValueError, "with an end"),
        (lambda whole: whole.map(lambda X, Y: X), TypeError, "a dataset of pairs"),
        (lambda whole: whole.map(lambda X, Y: (X, Y, Y)), TypeError, "a dataset of pairs"),
        (lambda whole: whole.take(0), ValueError, "with rows, got none"),
        (lambda whole: whole.map(lambda X, Y: (X * np.nan, Y)), ValueError, "60 of 60 rows"),
        (
            lambda whole: tf.data.Dataset.from_generator(
                failing, output_signature=(UNKNOWN, UNKNOWN)
            ),
            ValueError,
            "could not be read: .*the disk is gone",
        ),
        (
            lambda whole: tf.data.Dataset.from_generator(
                uneven, output_signature=(UNKNOWN, UNKNOWN)
            ),
            ValueError,
            r"the same number of columns, got shapes \(3, 1\), \(3, 2\)",
        ),
        (
            lambda whole: whole.repeat().filter(lambda X, Y: True),
            ValueError,
            "fits into memory, got more than",
        ),
    ],
    ids=["endless", "no pairs", "triples", "empty", "nan", "failing", "uneven", "too large"],
)
def test_datasets_that_cannot_be_read(
    make: Callable[..., Any], error: type[Exception], named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "_MAX_DATASET_BYTES", 10_000)
    whole = tf.data.Dataset.from_tensor_slices(make_data()).batch(20)
    with pytest.raises(error, match=f"(?s)data: .*{named}|of data: .*{named}"):
        quiet_fit(Line(), make(whole))


def test_values_that_a_narrow_float_merges_are_refused() -> None:
    X, Y = make_data()
    X[:, 1] = 1.7e9 + np.arange(N)  # seconds since 1970, which float32 has every 128 of
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        with pytest.raises(ValueError, match="X of data: .*float32 tells apart, .* column 1"):
            quiet_fit(Line(), (X, Y))
        X[:, 1] = 0.1  # rounded, but nothing is lost
        quiet_fit(Line(), (X, Y), steps=1)


def _noisy(X: tf.Tensor, Y: tf.Tensor, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    return X + tf.random.stateless_normal(tf.shape(X), seed, dtype=X.dtype), Y


@pytest.mark.parametrize("batch_size", [None, 10])
def test_augmentation(batch_size: int | None) -> None:
    """Each batch has draws of its own, the same whenever it comes; targets and rows stay together."""
    X = np.arange(60.0).reshape(30, 2)
    data = X, X[:, :1]
    changed = list(minibatches(data, batch_size, 1, 0, _noisy).take(5).as_numpy_iterator())
    plain = list(minibatches(data, batch_size, 1).take(5).as_numpy_iterator())
    later = list(minibatches(data, batch_size, 1, 3, _noisy).take(2).as_numpy_iterator())
    draws = []
    for (X_changed, Y_changed), (X_plain, Y_plain) in zip(changed, plain, strict=True):
        np.testing.assert_array_equal(Y_changed, Y_plain)
        draws.append(X_changed - X_plain)
    assert 0.7 < np.std(draws) < 1.3 and np.abs(draws[0] - draws[1]).max() > 0.1
    for (actual, _), (expected, _) in zip(later, changed[3:], strict=True):
        np.testing.assert_array_equal(actual, expected)


def test_augmentations_that_are_none() -> None:
    X = np.ones([4, 2])
    with pytest.raises(TypeError, match="augmentation: expected a function, got 3"):
        minibatches((X, X), 2, 0, 0, 3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"augmentation: expected rows .*float64 \(2,\).*got"):
        minibatches((X, X), 2, 0, 0, lambda X, Y, seed: (X[:, :1], Y))
    with pytest.raises(ValueError, match=r"augmentation: expected the rows as a pair \(X, Y\)"):
        minibatches((X, X), 2, 0, 0, lambda X, Y, seed: X)  # type: ignore[arg-type, return-value]
    with pytest.raises(ValueError, match=r"augmentation: expected .* pair \(X, Y\), got None"):
        minibatches((X, X), 2, 0, 0, lambda X, Y, seed: None)  # type: ignore[arg-type, return-value]


def test_missing_outputs_are_trained_around() -> None:
    """NaN in Y, where the likelihood knows what it means: the same as any other number in its place."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 1))
    Y = np.hstack([np.sin(X), np.cos(X)])
    Y[::3, 1] = np.nan

    def trained(Y: np.ndarray, likelihood: gpflow.likelihoods.Likelihood) -> np.ndarray:
        kernel = gpflow.kernels.SquaredExponential()
        model = gpflow.models.SVGP(kernel, likelihood, X[:5].copy(), num_latent_gps=2)
        fit(model, (X, Y), steps=3, validation_fraction=0.2, validate_every=2, progress=False)
        return model.predict_f(X)[0].numpy()

    gaussian = gpflow.likelihoods.Gaussian(0.1)
    means = trained(Y, MissingOutputs(gpflow.likelihoods.Gaussian(0.1)))
    assert np.isfinite(means).all() and np.abs(means).max() > 1e-4
    with pytest.raises(ValueError, match="10 of 30 rows.*MissingOutputs"):
        trained(Y, gaussian)
    Y[4, 0] = np.inf
    with pytest.raises(ValueError, match=r"Y of data: .*infinity in 1 of 30 rows\.$"):
        trained(Y, MissingOutputs(gaussian))

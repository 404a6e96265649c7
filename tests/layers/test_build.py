"""The initial values of layers, from data."""

from __future__ import annotations

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_diabetes
from sklearn.decomposition import PCA
from sklearn.preprocessing import scale

from gpflow_deep.initialisation import (
    greedy_inducing_inputs,
    kmeans_inducing_inputs,
    linear_mean_function,
)
from gpflow_deep.layers import build_amortized_layers, build_layers, build_separate_layers

X = np.random.default_rng(0).standard_normal((60, 3)) * [2.0, 1.0, 0.5]


def test_papers_defaults() -> None:
    first, second, last = build_layers(X, hidden_dims=(5, 2), output_dim=4, num_inducing=10)
    assert [layer.num_latent_gps for layer in (first, second, last)] == [5, 2, 4]
    assert [layer.input_dim for layer in (first, second, last)] == [3, 5, 2]
    for layer in (first, second, last):
        assert layer.whiten
        assert layer.num_inducing == 10
        assert type(layer.kernel) is gpflow.kernels.SquaredExponential
        np.testing.assert_array_equal(layer.kernel.variance, 1.0)
        expected = np.full(layer.input_dim, np.sqrt(layer.input_dim))
        np.testing.assert_allclose(layer.kernel.lengthscales, expected)
        assert layer.kernel.lengthscales.trainable
        assert layer.inducing_variable.Z.trainable
        # Nothing of the mean functions is trained, and the variances of the last layer only.
        assert layer.kernel.variance.trainable is (layer is last)
        assert not layer.mean_function.trainable_variables
    assert type(last.mean_function) is gpflow.mean_functions.Zero
    # Deeper inducing inputs are the first ones mapped through the means.
    Z = first.inducing_variable.Z
    for below, above in ((first, second), (second, last)):
        Z = below.mean_function(Z)
        np.testing.assert_allclose(above.inducing_variable.Z, Z, rtol=1e-12)


def test_no_hidden_layers() -> None:
    (layer,) = build_layers(X, hidden_dims=(), output_dim=2, num_inducing=7)
    assert layer.num_latent_gps == 2
    assert layer.kernel.variance.trainable
    assert type(layer.mean_function) is gpflow.mean_functions.Zero


def test_names_tell_the_layers_apart() -> None:
    assert [layer.name for layer in build_layers(X, (2, 2))] == ["layer_0", "layer_1", "layer_2"]


def test_kernels_of_a_factory() -> None:
    asked: list[tuple[int, int]] = []

    def factory(input_dim: int, layer: int) -> gpflow.kernels.Kernel:
        asked.append((input_dim, layer))
        return gpflow.kernels.Matern52(lengthscales=np.ones(input_dim))

    layers = build_layers(X, (2, 4), kernel_factory=factory, white_noise=0.01, whiten=False)
    assert asked == [(3, 0), (2, 1), (4, 2)]
    for hidden in layers[:2]:
        matern, white = hidden.kernel.kernels
        assert type(matern) is gpflow.kernels.Matern52
        assert matern.variance.trainable  # a factory says for itself what is trained
        np.testing.assert_allclose(white.variance, 0.01)
    assert type(layers[-1].kernel) is gpflow.kernels.Matern52
    assert not any(layer.whiten for layer in layers)


def test_copies_of_one_kernel() -> None:
    kernel = gpflow.kernels.Matern52(lengthscales=0.7)
    gpflow.set_trainable(kernel.variance, False)
    for layers in (
        build_layers(X, (2,), num_inducing=4, kernel_factory=kernel),
        build_amortized_layers(3, (2,), num_inducing=4, kernel_factory=kernel),
        build_separate_layers(X, (2,), num_inducing=4, kernel_factory=kernel),
    ):
        kernels = [k for layer in layers for k in getattr(layer.kernel, "kernels", [layer.kernel])]
        assert len({id(k) for k in [*kernels, kernel]}) == len(kernels) + 1
        for copy in kernels:
            assert type(copy) is gpflow.kernels.Matern52
            np.testing.assert_allclose(copy.lengthscales, 0.7)
            assert copy.lengthscales.trainable and not copy.variance.trainable
        kernels[0].lengthscales.assign(2.0)
        for other in (kernels[-1], kernel):
            np.testing.assert_allclose(other.lengthscales, 0.7)


def test_layers_share_no_parameters() -> None:
    layers = build_layers(X, (3, 3), num_inducing=4)
    parameters = [id(parameter) for layer in layers for parameter in layer.parameters]
    assert len(parameters) == len(set(parameters)) == 9
    layers[0].inducing_variable.Z.assign(np.zeros((4, 3)))
    assert np.any(layers[1].inducing_variable.Z.numpy())


# ---------------------------------------------------------------- mean functions


def test_mean_where_widths_agree_is_the_identity() -> None:
    np.testing.assert_array_equal(linear_mean_function(X, 3)(X), X)


@pytest.mark.parametrize("width", [1, 2])
def test_mean_of_a_narrower_layer_is_the_principal_components(width: int) -> None:
    # Of the centred data, though the mean function has no offset to subtract their mean.
    shifted = X + [10.0, -20.0, 30.0]
    mapped = np.asarray(linear_mean_function(shifted, width)(shifted))
    components = PCA(width).fit_transform(shifted)
    centred = mapped - mapped.mean(axis=0)
    signs = np.sign((centred * components).sum(axis=0))
    np.testing.assert_allclose(centred * signs, components, rtol=1e-8, atol=1e-10)


def test_mean_of_a_wider_layer_pads_with_zeros() -> None:
    np.testing.assert_array_equal(linear_mean_function(X, 5)(X), np.c_[X, np.zeros((60, 2))])


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_mean_of_few_points_is_finite(width: int) -> None:
    for points in (X[:1], X[:2], np.repeat(X[:1], 4, axis=0)):
        assert np.isfinite(linear_mean_function(points, width)(X)).all()


# ---------------------------------------------------------------- inducing inputs


@given(
    num_points=st.integers(1, 30),
    num_distinct=st.integers(1, 10),
    num_inducing=st.integers(1, 12),
    seed=st.integers(0, 100),
)
def test_inducing_inputs_are_distinct_and_among_the_data(
    num_points: int, num_distinct: int, num_inducing: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    points = rng.standard_normal((num_distinct, 2))[rng.integers(num_distinct, size=num_points)]
    Z = kmeans_inducing_inputs(points, num_inducing, seed=seed)
    distinct = np.unique(points, axis=0)
    assert 1 <= len(Z) <= min(num_inducing, len(distinct))
    assert len(np.unique(Z, axis=0)) == len(Z)
    assert np.all(Z >= points.min(axis=0) - 1e-9) and np.all(Z <= points.max(axis=0) + 1e-9)
    if num_inducing >= len(distinct):
        np.testing.assert_array_equal(Z, distinct)
    np.testing.assert_array_equal(Z, kmeans_inducing_inputs(points, num_inducing, seed=seed))


def test_inducing_inputs_lie_where_the_data_do() -> None:
    rng = np.random.default_rng(1)
    clusters = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]])
    points = np.repeat(clusters, 50, axis=0) + 0.1 * rng.standard_normal((150, 2))
    Z = kmeans_inducing_inputs(points, 3, seed=0)
    order = np.lexsort(np.round(Z, -1).T)
    expected = clusters[np.lexsort(clusters.T)]
    np.testing.assert_allclose(Z[order], expected, rtol=0, atol=0.1)


def test_inducing_inputs_of_much_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpflow_deep.initialisation._MINIBATCH_ABOVE", 100)
    points = np.random.default_rng(2).uniform(size=(2000, 2))
    Z = kmeans_inducing_inputs(points, 16, seed=0)
    assert Z.shape == (16, 2)
    nearest = np.sqrt(((points[:, None] - Z) ** 2).sum(-1).min(1))
    assert nearest.max() < 0.4
    np.testing.assert_array_equal(Z, kmeans_inducing_inputs(points, 16, seed=0))


# ---------------------------------------------------------------- greedy inducing inputs


@given(
    num_points=st.integers(2, 25),
    num_inducing=st.integers(1, 12),
    seed=st.integers(0, 100),
    lengthscale=st.sampled_from([0.1, 1.0, 3.0]),
)
def test_every_greedy_input_is_the_least_certain_one(
    num_points: int, num_inducing: int, seed: int, lengthscale: float
) -> None:
    """Conditional variances by dense solves; repeated rows and a variance that is not stationary."""
    rng = np.random.default_rng(seed)
    points = rng.standard_normal((num_points, 2))
    points = np.concatenate([points, points[: num_points // 2]])
    kernel = gpflow.kernels.Matern32(lengthscales=lengthscale) * gpflow.kernels.Polynomial(2)
    Z = greedy_inducing_inputs(points, num_inducing, kernel, seed=seed)
    distinct = np.unique(points, axis=0)
    assert len(Z) == len(np.unique(Z, axis=0)) == min(num_inducing, len(distinct))
    assert {tuple(row) for row in Z} <= {tuple(row) for row in distinct}
    K = kernel(distinct).numpy()
    variance = kernel(distinct, full_cov=False).numpy()
    for m, row in enumerate(Z):
        if m:
            Kz = kernel(Z[:m], distinct).numpy()
            dense = np.linalg.solve(kernel(Z[:m]).numpy(), Kz)
            variance = np.diag(K) - np.sum(Kz * dense, axis=0)
        own = variance[np.all(distinct == row, axis=1)]
        assert own >= variance.max() - 1e-5 * K.max()


def test_greedy_inputs_of_a_kernel_without_variance_are_distinct() -> None:
    X = np.column_stack([np.zeros(6), np.arange(6.0)])
    Z = greedy_inducing_inputs(X, 4, gpflow.kernels.Linear(active_dims=[0]))
    assert len(np.unique(Z, axis=0)) == len(Z) == 4


def test_greedy_inputs_of_a_kernel_that_is_certain_soon() -> None:
    """A linear kernel knows all after as many rows as inputs: the others are any rows, and distinct."""
    Z = greedy_inducing_inputs(X, 20, gpflow.kernels.Linear())
    assert len(np.unique(Z, axis=0)) == 20
    assert np.linalg.matrix_rank(Z[:3]) == 3
    assert np.any(greedy_inducing_inputs(X, 20, gpflow.kernels.Linear(), seed=1)[3:] != Z[3:])


def test_greedy_inputs_of_much_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpflow_deep.initialisation._GREEDY_ROWS", 100)
    points = np.random.default_rng(2).uniform(size=(2000, 2))
    kernel = gpflow.kernels.Matern52(lengthscales=0.2)
    Z = greedy_inducing_inputs(points, 16, kernel)
    assert Z.shape == (16, 2) and not np.all(
        Z == greedy_inducing_inputs(points, 16, kernel, seed=1)
    )


def test_greedy_inputs_leave_less_of_real_data_out() -> None:
    """
    The bound of a sparse GP is nearer to the evidence than by k-means where the kernel knows that most inputs
    do not matter, which k-means does not.
    """
    X, y = load_diabetes(return_X_y=True)
    X, Y = scale(X), scale(y)[:, None]
    kernel = gpflow.kernels.Matern52(lengthscales=[1.0] * 3 + [50.0] * 7)
    exact = gpflow.models.GPR((X, Y), kernel, noise_variance=0.5).log_marginal_likelihood()

    def gap(Z: np.ndarray) -> float:
        return float(exact - gpflow.models.SGPR((X, Y), kernel, Z, noise_variance=0.5).elbo())

    for M in (30, 100, 200):
        others = gap(kmeans_inducing_inputs(X, M))
        assert 0.0 < gap(greedy_inducing_inputs(X, M, kernel)) < 0.95 * others


def test_layers_with_greedy_inputs() -> None:
    layers = build_layers(X, (2,), 1, (8, 5), inducing_init="greedy", white_noise=1e-3)
    kernel = gpflow.kernels.SquaredExponential(lengthscales=np.full(3, 3**0.5))
    for layer, size in zip(layers, (8, 5), strict=True):
        Z = greedy_inducing_inputs(X, size, kernel)
        if layer is layers[1]:
            Z = np.asarray(layers[0].mean_function(Z))
        np.testing.assert_array_equal(layer.inducing_variable.Z, Z)


def test_columns_that_count_outputs_have_whole_numbers() -> None:
    """By averages a third of the centres would count 0.999..., which ``Coregion`` takes for 0, or a half."""
    rng = np.random.default_rng(0)
    numbers = rng.integers(0, 3, 200)
    kernel = gpflow.kernels.Matern52(active_dims=[0]) * gpflow.kernels.Coregion(
        3, 1, active_dims=[1]
    )
    copies = [kernel, gpflow.kernels.Matern52()]
    for width in (1.0, 30.0):
        data = np.column_stack([rng.uniform(-width, width, 200), numbers]).astype(float)
        first, _ = build_layers(data, (2,), 1, 30, kernel_factory=lambda d, layer: copies[layer])
        Z = first.inducing_variable.Z.numpy()
        assert len(Z) == 30
        np.testing.assert_array_equal(Z[:, 1].astype(int), Z[:, 1])
        assert set(Z[:, 1]) == {0.0, 1.0, 2.0}
        (layer,) = build_separate_layers(data, (), 1, 30, kernel_factory=kernel)
        for points in layer.inducing_variable.inducing_variable_list:
            assert set(points.Z.numpy()[:, 1]) == {0.0, 1.0, 2.0}


def test_kernels_that_want_other_columns_are_named() -> None:
    kernel = gpflow.kernels.Coregion(2, 1, active_dims=[5])
    with pytest.raises(ValueError, match="active_dims: expected some of 3 inputs"):
        kmeans_inducing_inputs(X, 4, kernel=kernel)
    with pytest.raises(TypeError, match="kernel: expected a GPflow kernel"):
        kmeans_inducing_inputs(X, 4, kernel=3)


def test_greedy_inputs_want_a_kernel_of_one_output() -> None:
    shared = gpflow.kernels.SharedIndependent(gpflow.kernels.Matern52(), 2)
    for wrong in (shared, None, gpflow.kernels.Matern52):
        with pytest.raises(TypeError, match="kernel: expected a GPflow kernel of one output"):
            greedy_inducing_inputs(X, 5, wrong)
    with pytest.raises(TypeError, match="kernel: expected a GPflow kernel of one output"):
        build_layers(X, (2,), kernel_factory=lambda *_: shared, inducing_init="greedy")
    with pytest.raises(ValueError, match="inducing_init: expected 'kmeans' or 'greedy', got 'k'"):
        build_layers(X, (2,), inducing_init="k")


# ---------------------------------------------------------------- what X may be


def test_kinds_of_inputs() -> None:
    """Lists, tensors, integers, single precision: the same layers, in the default float."""
    integers = np.random.default_rng(3).integers(0, 5, size=(20, 2))
    expected = build_layers(integers.astype(float), (1,), num_inducing=6)
    for same in (integers, integers.tolist(), tf.constant(integers), integers.astype(np.float32)):
        for one, other in zip(build_layers(same, (1,), num_inducing=6), expected, strict=True):
            assert one.inducing_variable.Z.dtype == tf.float64
            np.testing.assert_array_equal(one.inducing_variable.Z, other.inducing_variable.Z)
    gpflow.config.set_default_float(np.float32)
    for layer in build_layers(integers, (1,), num_inducing=6):
        assert {parameter.dtype for parameter in layer.parameters} == {tf.float32}


def test_fewer_points_than_inducing_points() -> None:
    layers = build_layers(X[:4], (2,), num_inducing=128)
    assert [layer.num_inducing for layer in layers] == [4, 4]
    (layer,) = build_layers(X[:1], (), num_inducing=128)
    assert layer.num_inducing == 1


def test_constant_columns_and_duplicates() -> None:
    constant = np.c_[np.repeat(X[:5, :1], 3, axis=0), np.ones(15)]
    for layer in build_layers(constant, (2, 1, 3), num_inducing=10):
        assert layer.num_inducing == 5
        assert np.isfinite(layer.factorise()).all()


BAD: dict[str, tuple[type[Exception], str, Any]] = {
    "nan": (ValueError, "X.*NaN.*1 of 60 rows.*row 7", {"X": np.where(X == X[7, 1], np.nan, X)}),
    "infinity": (ValueError, "X.*infinity", {"X": np.where(X == X[7, 1], np.inf, X)}),
    "vector": (ValueError, r"X.*matrix.*\(60,\)", {"X": X[:, 0]}),
    "empty": (ValueError, r"X.*non-empty.*\(0, 3\)", {"X": X[:0]}),
    "no columns": (ValueError, r"X.*non-empty.*\(60, 0\)", {"X": X[:, :0]}),
    "text": (TypeError, "X.*real numbers", {"X": np.array([["a", "b"]])}),
    "complex": (TypeError, "X.*real numbers.*complex", {"X": X + 1j}),
    "one width": (TypeError, "hidden_dims.*sequence.*got 5", {"hidden_dims": 5}),
    "text width": (TypeError, "hidden_dims.*'55'", {"hidden_dims": "55"}),
    "zero width": (ValueError, "hidden_dims.*positive integer.*0", {"hidden_dims": (2, 0)}),
    "negative width": (ValueError, "hidden_dims.*-1", {"hidden_dims": (-1,)}),
    "fractional width": (ValueError, "hidden_dims.*2.5", {"hidden_dims": (2.5,)}),
    "no outputs": (ValueError, "output_dim.*0", {"output_dim": 0}),
    "no inducing points": (ValueError, "num_inducing.*0", {"num_inducing": 0}),
    "no kernel": (TypeError, "kernel.*None", {"kernel_factory": lambda *_: None}),
    "a class": (
        TypeError,
        "kernel_factory.*lambda.*Matern52",
        {"kernel_factory": gpflow.kernels.RBF},
    ),
    "a name": (TypeError, "kernel_factory.*'rbf'", {"kernel_factory": "rbf"}),
    "copies of too many lengthscales": (
        ValueError,
        "kernel.*lengthscales",
        {"kernel_factory": gpflow.kernels.RBF(lengthscales=np.ones(3))},
    ),
    "negative noise": (ValueError, "white_noise.*-0.1", {"white_noise": -0.1}),
    "noise of several": (
        ValueError,
        "white_noise.*SharedIndependent.*layer 0",
        {
            "white_noise": 0.1,
            "kernel_factory": lambda *_: gpflow.kernels.SharedIndependent(gpflow.kernels.RBF(), 5),
        },
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused(name: str) -> None:
    error, match, arguments = BAD[name]
    with pytest.raises(error, match=match):
        build_layers(**{"X": X, "num_inducing": 5, **arguments})


def test_separate_layers() -> None:
    first, second = build_separate_layers(X, hidden_dims=(2,), output_dim=3, num_inducing=10)
    for layer, D, T in ((first, 3, 2), (second, 2, 3)):
        assert layer.num_latent_gps == len(layer.kernel.kernels) == T
        assert layer.num_inducing == 10
        assert type(layer.mean_function) is gpflow.mean_functions.Zero
        Zs = [each.Z.numpy() for each in layer.inducing_variable.inducing_variables]
        assert all(Z.shape == (10, D) for Z in Zs)
        assert np.abs(Zs[0] - Zs[1]).max() > 0.1
    assert max(np.abs(Z).max() for Z in Zs) <= 1.0
    one = build_separate_layers(
        X, hidden_dims=(1,), num_inducing=5, kernel_factory=lambda D, i: gpflow.kernels.Matern52()
    )[1]
    np.testing.assert_allclose(
        one.inducing_variable.inducing_variables[0].Z[:, 0], np.linspace(-1, 1, 5)
    )
    assert type(one.kernel.kernels[0]) is gpflow.kernels.Matern52
    again = build_separate_layers(X, hidden_dims=(2,), output_dim=3, num_inducing=10)[1]
    np.testing.assert_array_equal(again.inducing_variable.inducing_variables[0].Z, Zs[0])
    for hidden_dims, error in ((2, TypeError), ((0,), ValueError)):
        with pytest.raises(error, match="hidden_dims"):
            build_separate_layers(X, hidden_dims=hidden_dims)

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from check_shapes.exceptions import ShapeMismatchError
from hypothesis import given
from hypothesis import strategies as st
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from gpflow_deep import metrics
from gpflow_deep.layers import build_layers
from gpflow_deep.plotting import (
    binned_errors,
    inducing_correlation,
    plot_calibration,
    plot_inducing_covariance,
    plot_reliability,
    plot_trace,
    plot_variance_vs_error,
)
from gpflow_deep.posteriors import MeanField, StripesAndArrow


def _posterior(kind: Any, rng: np.random.Generator) -> Any:
    layers = build_layers(rng.normal(size=(20, 3)), hidden_dims=(2, 2), num_inducing=4)
    q = kind(layers)
    mean, scale_tril = q.dense()
    stored = np.asarray(scale_tril) != 0.0
    # The arrow starts at zero: fill the whole pattern.
    stored |= np.kron(q.pattern, np.ones((4, 4), bool)) & np.tri(len(stored), dtype=bool)
    L = np.where(stored, rng.normal(size=stored.shape), 0.0)
    np.fill_diagonal(L, rng.uniform(1e-6, 2.0, size=len(L)))
    q.assign_dense(rng.normal(size=len(mean)), L)
    return q


@pytest.mark.parametrize("kind", [MeanField, StripesAndArrow])
def test_correlation_is_that_of_the_dense_covariance(kind: Any) -> None:
    q = _posterior(kind, np.random.default_rng(1))
    L = np.asarray(q.dense()[1])
    covariance = L @ L.T
    sd = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose(inducing_correlation(q), covariance / np.outer(sd, sd), atol=1e-12)


def test_heat_map_shows_the_correlation_and_where_layers_and_gps_begin() -> None:
    q = _posterior(StripesAndArrow, np.random.default_rng(2))
    ax = plot_inducing_covariance(q)
    (image,) = ax.get_images()
    np.testing.assert_array_equal(image.get_array(), inducing_correlation(q))
    vertical = {line.get_xdata()[0]: line.get_linewidth() for line in ax.lines[::2]}
    widest = max(vertical.values())
    assert sorted(vertical) == [3.5, 7.5, 11.5, 15.5]
    assert [x for x in sorted(vertical) if vertical[x] == widest] == [7.5, 15.5]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["layer 1", "layer 2", "layer 3"]


def test_colours_end_where_few_correlations_are_larger() -> None:
    q = _posterior(MeanField, np.random.default_rng(9))
    low, high = plot_inducing_covariance(q).get_images()[0].get_clim()
    correlation = inducing_correlation(q)
    off_diagonal = np.abs(correlation - np.eye(len(correlation)))
    assert low == -high and 0.0 < np.mean(off_diagonal > high) < 0.02
    assert plot_inducing_covariance(q, limit=0.5).get_images()[0].get_clim() == (-0.5, 0.5)
    untrained = MeanField(build_layers(np.eye(3), hidden_dims=(2,), num_inducing=3))
    assert plot_inducing_covariance(untrained).get_images()[0].get_clim() == (-1.0, 1.0)


def test_heat_map_needs_a_posterior() -> None:
    with pytest.raises(TypeError, match="model_or_q: expected a deep GP.*got int"):
        plot_inducing_covariance(3)


@given(st.integers(1, 40), st.integers(1, 12), st.integers(0, 1000))
def test_groups_of_errors_hold_every_point_once(num: int, num_bins: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    variance, squared_error = rng.exponential(size=(2, num))
    mean_variance, mean_error = binned_errors(variance, squared_error, num_bins)
    assert np.all(np.diff(mean_variance) > 0.0)
    sizes = [len(part) for part in np.array_split(np.arange(num), min(num, num_bins))]
    np.testing.assert_allclose(np.average(mean_variance, weights=sizes), variance.mean())
    np.testing.assert_allclose(np.average(mean_error, weights=sizes), squared_error.mean())


def test_variances_against_errors_of_several_models_share_the_axes() -> None:
    rng = np.random.default_rng(3)
    _, given_axes = plt.subplots()
    for label in ("first", "second"):
        # Far from 1, so that axes stretched to any fixed point would be seen.
        variance, squared_error = 1000.0 * rng.uniform(1.0, 2.0, size=(2, 30))
        squared_error[0] = 0.0
        ax = plot_variance_vs_error(variance, squared_error, given_axes, label=label, num_bins=5)
        assert ax is given_axes
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["first", "second"]
    groups = [line for line in ax.lines if line.get_label() in ("first", "second")]
    assert groups[0].get_color() != groups[1].get_color()
    np.testing.assert_array_equal(
        groups[1].get_xydata().T, binned_errors(variance, squared_error, 5)
    )
    ax.figure.canvas.draw()
    assert 800.0 < ax.get_xlim()[0] < ax.get_xlim()[1] < 2500.0


def test_errors_that_are_no_squares_are_refused() -> None:
    with pytest.raises(ValueError, match="squared_error: expected squares.*got -2"):
        plot_variance_vs_error(np.ones(2), np.array([1.0, -2.0]))


@pytest.mark.parametrize("shape", [(30, 1), (15, 2)])
def test_moments_of_predictions_are_drawn_as_they_are(shape: tuple[int, int]) -> None:
    variance, squared_error = np.random.default_rng(5).uniform(1.0, 2.0, size=(2, 30))
    matrices = variance.reshape(shape), squared_error.reshape(shape)
    np.testing.assert_array_equal(
        binned_errors(*matrices, 5), binned_errors(variance, squared_error, 5)
    )
    lines = [
        plot_variance_vs_error(*arrays, plt.figure().add_subplot()).lines
        for arrays in (matrices, (variance, squared_error))
    ]
    for of_matrices, of_vectors in zip(*lines, strict=True):
        np.testing.assert_array_equal(of_matrices.get_xydata(), of_vectors.get_xydata())
    with pytest.raises(ShapeMismatchError):
        plot_variance_vs_error(matrices[0], matrices[1].T)


def test_nothing_is_not_drawn() -> None:
    with pytest.raises(ValueError, match="variance: expected at least one point, got none"):
        plot_variance_vs_error(np.zeros(0), np.zeros(0))
    with pytest.raises(ValueError, match="variance: expected at least one point, got none"):
        binned_errors(np.zeros(0), np.zeros(0))
    with pytest.raises(ValueError, match="num_bins: expected a positive integer, got 0"):
        binned_errors(np.ones(3), np.ones(3), num_bins=0)
    with pytest.raises(ValueError, match=r"trace: expected states .* shape \(0, 4\)"):
        plot_trace(np.zeros([0, 4]))


def test_groups_of_lists_and_tensors_but_not_of_nan() -> None:
    expected = [1.5, 3.5], [1.0, 3.0]
    for kind in (list, np.array, tf.constant):
        groups = binned_errors(kind([1.0, 2.0, 3.0, 4.0]), kind([1.0, 1.0, 3.0, 3.0]), 2)
        np.testing.assert_array_equal(groups, expected)
    with pytest.raises(ValueError, match="variance: expected finite values, got 1 NaN"):
        binned_errors(np.array([1.0, np.nan]), np.ones(2))
    with pytest.raises(ValueError, match="squared_error: expected finite values, got 1 NaN"):
        binned_errors(np.ones(2), np.array([np.inf, 1.0]))


def test_variances_must_be_positive() -> None:
    with pytest.raises(ValueError, match="variance: expected positive numbers, got 0"):
        plot_variance_vs_error(np.array([1.0, 0.0]), np.array([1.0, 1.0]))


def test_calibration_is_that_of_the_metrics() -> None:
    rng = np.random.default_rng(4)
    Y, means = rng.normal(size=(50, 1)), rng.normal(size=(3, 50, 1))
    variances, log_weights = rng.uniform(0.5, 2.0, size=(3, 50, 1)), np.full(3, -np.log(3.0))
    ax = plot_calibration(Y, means, variances, log_weights, label="model")
    curve = ax.lines[0].get_xydata()
    nominal, observed = metrics.calibration_curve(Y, means, variances, log_weights)
    np.testing.assert_array_equal(curve[1:-1], np.stack([nominal, observed], axis=1))
    np.testing.assert_array_equal(curve[[0, -1]], [[0.0, 0.0], [1.0, 1.0]])
    assert isinstance(ax, Axes) and ax.get_legend() is not None
    ax.figure.canvas.draw()


def test_reliability_plot_shows_the_curve() -> None:
    rng = np.random.default_rng(4)
    probabilities, Y = rng.dirichlet(np.ones(3), size=80), rng.integers(0, 3, size=80)
    ax = plot_reliability(Y, probabilities, label="model", num_bins=7)
    confidence, accuracy, count = metrics.reliability_curve(Y, probabilities, 7)
    curve = np.stack([confidence, accuracy], axis=1)
    np.testing.assert_array_equal(ax.lines[0].get_xydata(), curve)
    np.testing.assert_array_equal(ax.collections[0].get_offsets(), curve)
    assert np.array_equal(np.argsort(ax.collections[0].get_sizes()), np.argsort(count))
    assert plot_reliability(Y[:, None], probabilities, ax) is ax and len(ax.collections) == 2
    ax.figure.canvas.draw()


def test_trace_has_a_line_for_every_chain() -> None:
    trace = np.random.default_rng(0).normal(size=(7, 3))
    ax = plot_trace(trace, label="f(0)")
    assert [line.get_ydata().tolist() for line in ax.lines] == trace.T.tolist()
    assert ax.get_ylabel() == "f(0)"
    again = plot_trace(trace[:, :1], ax)
    assert again is ax and len(ax.lines) == 4

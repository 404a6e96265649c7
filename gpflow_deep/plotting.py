"""
Pictures of what a posterior has learnt and of how far its predictions can be trusted.

Every function draws on the axes given, or on those of a new figure, and returns them. None of them
shows or saves anything, so they work wherever matplotlib does.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from check_shapes import check_shapes
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from gpflow_deep import metrics
from gpflow_deep.metrics.arrays import finite_array
from gpflow_deep.validation import check_positive_integer

__all__ = [
    "binned_errors",
    "inducing_correlation",
    "plot_calibration",
    "plot_inducing_covariance",
    "plot_reliability",
    "plot_trace",
    "plot_variance_vs_error",
]


@check_shapes("return: [size, size]")
def inducing_correlation(model_or_q: Any) -> np.ndarray:
    """
    Correlation matrix of the inducing outputs of all layers, [T M, T M].

    >>> layers = gd.layers.build_layers(X, hidden_dims=(2,), num_inducing=5)
    >>> gd.plotting.inducing_correlation(gd.posteriors.MeanField(layers)).shape
    (15, 15)

    :param model_or_q: a deep GP, or its `inducing_posterior`.
    :raises TypeError: for anything that is neither.
    """
    _, scale_tril = _posterior(model_or_q).dense()
    L = np.asarray(scale_tril, dtype=np.float64)
    # Rows of unit length make a covariance of unit variances: no division by tiny numbers.
    L = L / np.linalg.norm(L, axis=1, keepdims=True)
    return L @ L.T


def plot_inducing_covariance(
    model_or_q: Any, ax: Axes | None = None, *, limit: float | None = None
) -> Axes:
    """
    Heat map of how the approximate posterior correlates the inducing outputs of all layers.

    The covariance of Figure 1 of Lindinger, Reeb, Lippert and Rakitsch, *Beyond the Mean-Field:
    Structured Deep Gaussian Processes*, NeurIPS 2020, scaled to correlations: variances of hidden
    and output layers differ by orders of magnitude. The inducing outputs are whitened ones where the
    layers' are. Thin lines separate GPs, thick ones layers.

    >>> layers = gd.layers.build_layers(X, hidden_dims=(2,), num_inducing=5)
    >>> model = gd.models.DeepGP(layers, gpflow.likelihoods.Gaussian(0.01))
    >>> axes = gd.plotting.plot_inducing_covariance(model)

    :param model_or_q: a deep GP, or its `inducing_posterior`.
    :param ax: where to draw.
    :param limit: the correlation at which the colours end; by default one that few correlations but
        those of outputs with themselves exceed.
    :raises TypeError: for anything that is neither.
    """
    q = _posterior(model_or_q)
    correlation = inducing_correlation(q)
    ax = _axes(ax)
    if limit is None:
        limit = _typical_largest(correlation)
    image = ax.imshow(correlation, cmap="RdBu_r", vmin=-limit, vmax=limit, interpolation="nearest")
    extend = "both" if limit < 1.0 else "neither"
    ax.figure.colorbar(image, ax=ax, label="correlation", shrink=0.8, extend=extend)
    start = 0
    centres = []
    for num_gps, num_inducing in zip(q.num_latent_gps, map(int, q.num_inducing), strict=True):
        stop = start + num_gps * num_inducing
        for boundary in range(start, stop, num_inducing):
            _cross(ax, boundary, linewidth=1.5 if boundary == start else 0.3)
        centres.append((start + stop) / 2.0 - 0.5)
        start = stop
    ax.set_xticks(centres, [f"layer {number}" for number in range(1, len(centres) + 1)])
    ax.set_yticks(centres, [f"layer {number}" for number in range(1, len(centres) + 1)])
    ax.tick_params(length=0)
    return ax


@check_shapes(
    "variance: [points...]",
    "squared_error: [points...]",
    "return[0]: [B]",
    "return[1]: [B]",
)
def binned_errors(
    variance: np.ndarray, squared_error: np.ndarray, num_bins: int = 10
) -> tuple[np.ndarray, np.ndarray]:
    """
    Mean predictive variance and mean squared error of points with similar predictive variance.

    >>> variance, error = gd.plotting.binned_errors(np.arange(1.0, 5.0), np.ones(4), num_bins=2)
    >>> variance, error
    (array([1.5, 3.5]), array([1., 1.]))

    :param variance: predictive variances with the noise, [N] or [N, P]; each of them is a point.
    :param squared_error: of the predictive means, of the same shape.
    :param num_bins: groups of points, of equal size but for one; at most as many as points.
    :return: mean variance and mean squared error of each group.
    :raises ValueError: without points, or groups, or where a number is not finite.
    """
    check_positive_integer(num_bins, "num_bins")
    if not np.size(variance):
        raise ValueError("variance: expected at least one point, got none.")
    variance = finite_array(variance, "variance").ravel()
    squared_error = finite_array(squared_error, "squared_error").ravel()
    groups = np.array_split(np.argsort(variance, kind="stable"), min(num_bins, len(variance)))
    means = np.array(
        [[values[group].mean() for group in groups] for values in (variance, squared_error)]
    )
    return means[0], means[1]


@check_shapes(
    "variance: [points...]",
    "squared_error: [points...]",
)
def plot_variance_vs_error(
    variance: np.ndarray,
    squared_error: np.ndarray,
    ax: Axes | None = None,
    *,
    label: str | None = None,
    num_bins: int = 10,
) -> Axes:
    """
    Squared error against predictive variance: Figure 3 of Lindinger et al. 2020.

    Small dots are test points, the line joins the means of groups of points with similar variances,
    on logarithmic axes. Where the variances are right, it lies on the diagonal; above it the model
    is too sure of itself.

    >>> rng = np.random.default_rng(0)
    >>> variance = rng.uniform(0.1, 2.0, 200)
    >>> axes = gd.plotting.plot_variance_vs_error(variance, variance * rng.normal(size=200) ** 2)
    >>> axes.get_xscale()
    'log'

    :param variance: predictive variances with the noise, positive, [N] or [N, P]; each of them is a point.
    :param squared_error: of the predictive means, of the same shape.
    :param ax: where to draw; call again on the same axes to compare models.
    :param label: for the legend.
    :param num_bins: groups of points.
    :raises ValueError: for variances that are not positive, and errors that are no squares.
    """
    variance = np.asarray(variance, np.float64).ravel()
    squared_error = np.asarray(squared_error, np.float64).ravel()
    if not len(variance):
        raise ValueError("variance: expected at least one point, got none.")
    if not np.all(variance > 0.0):
        raise ValueError(f"variance: expected positive numbers, got {np.min(variance):g}.")
    if np.any(squared_error < 0.0):
        raise ValueError(
            f"squared_error: expected squares, none negative, got {np.min(squared_error):g}."
        )
    ax = _axes(ax)
    (line,) = ax.plot(*binned_errors(variance, squared_error, num_bins), "o-", label=label)
    # An error of exactly zero has no place on a logarithmic axis.
    seen = squared_error > 0.0
    ax.plot(variance[seen], squared_error[seen], ".", alpha=0.25, color=line.get_color(), zorder=1)
    # Through points that are on the plot anyway, or the axes would be stretched to show them.
    middle = float(np.median(variance))
    ax.axline(
        (middle, middle),
        (1.01 * middle, 1.01 * middle),
        color="grey",
        linestyle="--",
        linewidth=1.0,
        zorder=0,
    )
    ax.set(xscale="log", yscale="log", xlabel="predictive variance", ylabel="squared error")
    if label is not None:
        ax.legend()
    return ax


@check_shapes(
    "Y: [N, P]",
    "means: [S, N, P]",
    "variances: [S, N, P]",
    "log_weights: [S]",
)
def plot_calibration(
    Y: np.ndarray,
    means: np.ndarray,
    variances: np.ndarray,
    log_weights: np.ndarray,
    ax: Axes | None = None,
    *,
    label: str | None = None,
) -> Axes:
    """
    Share of the targets inside central intervals, against the intervals' nominal probability.

    On the diagonal the intervals hold what they promise; below it the model is too sure of itself.

    >>> means, variances = np.zeros([1, 20, 1]), np.ones([1, 20, 1])
    >>> axes = gd.plotting.plot_calibration(Y, means, variances, np.zeros(1), label="too wide")
    >>> axes.get_xlabel() != ""
    True

    :param Y: targets.
    :param means: means of the predictive mixture, as `predict_y_mixture` returns them.
    :param variances: variances of the components.
    :param log_weights: logarithms of the components' weights.
    :param ax: where to draw; call again on the same axes to compare models.
    :param label: for the legend.
    """
    nominal, observed = metrics.calibration_curve(Y, means, variances, log_weights)
    ax = _axes(ax)
    ax.plot([0.0, *nominal, 1.0], [0.0, *observed, 1.0], ".-", label=label)
    return _promised_and_kept(ax, "probability of the interval", "share of targets inside", label)


@check_shapes("probabilities: [N, C]")
def plot_reliability(
    Y: Any,
    probabilities: Any,
    ax: Axes | None = None,
    *,
    label: str | None = None,
    num_bins: int = 15,
) -> Axes:
    """
    Share of the points whose most probable class is the true one, against its probability (Guo, Pleiss, Sun &
    Weinberger 2017); the areas of markers grow with the numbers of points.

    On the diagonal the probabilities hold what they promise; below it the model is too sure of itself.

    >>> probabilities = np.array([[0.9, 0.1], [0.7, 0.3], [0.2, 0.8]])
    >>> axes = gd.plotting.plot_reliability([0, 1, 1], probabilities, label="network")
    >>> axes.get_xlabel()
    'probability of the predicted class'

    :param Y: true classes, [N] or [N, 1].
    :param probabilities: predicted.
    :param ax: where to draw; call again on the same axes to compare models.
    :param label: for the legend.
    :param num_bins: of equal width, from 0 to 1.
    """
    confidence, accuracy, count = metrics.reliability_curve(Y, probabilities, num_bins)
    ax = _axes(ax)
    (line,) = ax.plot(confidence, accuracy, "-", label=label)
    ax.scatter(confidence, accuracy, 10.0 + 190.0 * count / count.sum(), color=line.get_color())
    xlabel, ylabel = "probability of the predicted class", "share of predictions that are right"
    return _promised_and_kept(ax, xlabel, ylabel, label)


@check_shapes("trace: [R, C]")
def plot_trace(trace: np.ndarray, ax: Axes | None = None, *, label: str = "prediction") -> Axes:
    """
    A prediction at the kept states of each chain: chains that have converged lie on top of each other.

    >>> axes = gd.plotting.plot_trace(np.zeros([10, 4]), label="at x = 0")
    >>> len(axes.lines)
    4

    :param trace: R states of C chains, such as `model.predict_f_trace(Xnew)[:, :, 0, 0]`.
    :param ax: where to draw.
    :param label: of the vertical axis.
    :raises ValueError: without states.
    """
    trace = np.asarray(trace)
    if not trace.size:
        raise ValueError(f"trace: expected states of chains, got an array of shape {trace.shape}.")
    ax = _axes(ax)
    for chain, values in enumerate(trace.T, start=1):
        ax.plot(np.arange(1, len(values) + 1), values, linewidth=1.0, label=f"chain {chain}")
    ax.set(xlabel="kept state", ylabel=label)
    if trace.shape[1] > 1:
        ax.legend()
    return ax


def _posterior(model_or_q: Any) -> Any:
    q = getattr(model_or_q, "inducing_posterior", model_or_q)
    if not hasattr(q, "dense"):
        raise TypeError(
            "model_or_q: expected a deep GP or its inducing posterior, "
            f"got {type(model_or_q).__name__}."
        )
    return q


def _typical_largest(correlation: np.ndarray) -> float:
    """The size that one in a hundred of the correlations off the diagonal exceeds; 1 without any."""
    sizes = np.abs(correlation[np.tril_indices(len(correlation), -1)])
    sizes = sizes[sizes > 1e-12]
    return float(np.quantile(sizes, 0.99)) if len(sizes) else 1.0


def _axes(ax: Axes | None) -> Axes:
    return plt.subplots(layout="constrained")[1] if ax is None else ax


def _promised_and_kept(ax: Axes, xlabel: str, ylabel: str, label: str | None) -> Axes:
    """Axes of probabilities and shares, with the diagonal, and a legend where there is a label."""
    ax.axline((0.0, 0.0), slope=1.0, color="grey", linestyle="--", linewidth=1.0, zorder=0)
    ax.set(xlim=(0.0, 1.0), ylim=(0.0, 1.0), xlabel=xlabel, ylabel=ylabel, aspect="equal")
    if label is not None:
        ax.legend()
    return ax


def _cross(ax: Axes, boundary: int, linewidth: float) -> None:
    """A vertical and a horizontal line before the given row of a heat map."""
    if boundary > 0:
        ax.axvline(boundary - 0.5, color="black", linewidth=linewidth)
        ax.axhline(boundary - 0.5, color="black", linewidth=linewidth)

"""
The main job on real data: does a second layer pay, and can the uncertainty be trusted?

The data come with scikit-learn: a photograph. Regression predicts the brightness along one line of it from
the place, in the smooth sky and across the edges of a roof; classification tells from the place whether a
pixel is brighter than most. Both functions change fast in one part and slowly in another, which one
stationary GP cannot.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from sklearn.calibration import CalibrationDisplay
from sklearn.datasets import load_sample_image

from gpflow_deep import metrics
from gpflow_deep.estimators import DeepGPClassifier, DeepGPRegressor
from gpflow_deep.plotting import plot_calibration
from gpflow_deep.validation.files import check_writable

__all__ = ["run_demo"]

_LINE = 150  # of the photograph's 427: sky, roof, sky
_STEPS, _QUICK_STEPS = 1000, 200
_REGRESSORS = {"one layer (exact GP)": ("gp", 1), "two layers (deep sigma points)": ("dspp", 2)}
_CLASSIFIERS = {"one layer (sparse GP)": ("svgp", 1), "two layers": ("mean-field", 2)}
_PIXELS = 1500


def run_demo(
    output: Path | str,
    *,
    quick: bool = False,
    seed: int = 0,
    progress: bool = True,
    echo: Callable[[str], None] = print,
) -> list[dict[str, Any]]:
    """
    Train and test the models, print a table, and write figures and the table's numbers.

    :param output: folder for results.json, regression.png and classification.png.
    :param quick: train a fifth as long: to see that it runs.
    :param seed: of the draw of training rows and of everything else random.
    :param progress: whether to show a progress bar for each fit.
    :param echo: takes the lines to print.
    :return: a row of the table for each model.
    :raises OSError: where `output` cannot be written to: before any training.
    """
    output = Path(output)
    check_writable(output)
    output.mkdir(parents=True, exist_ok=True)
    options = dict(
        steps=_QUICK_STEPS if quick else _STEPS,
        validation_fraction=0.0,
        random_state=seed,
        verbose=2 if progress else 0,
        settings={"hidden_dim": 2, "num_inducing": 60},
    )
    grey = load_sample_image("china.jpg").mean(axis=2)
    echo("Data: a photograph of 427 x 640 pixels that comes with scikit-learn.")
    rows = _regression(grey, options, seed, output, echo) + _classification(
        grey, options, seed, output, echo
    )
    echo("\n" + _table(rows))
    echo(
        "What to look at: regression.png, where one layer takes the sky for as rough as the roof; and the"
        " test log densities (higher is better). Errors, which are the RMSE of brightness and the share of"
        " wrong classes, are of the means alone: a better density may come with larger ones. The estimators'"
        " default, DeepGPRegressor(), mixes shallow and deep models."
    )
    echo(
        "Your own table: gpflow-deep fit DATA.csv --target COLUMN --output FIT, then gpflow-deep predict FIT"
        " NEW.csv"
    )
    (output / "results.json").write_text(json.dumps(rows, indent=2) + "\n")
    for name in ("results.json", "regression.png", "classification.png"):
        echo(f"Written: {output / name}")
    return rows


def _regression(
    grey: np.ndarray, options: dict[str, Any], seed: int, output: Path, echo: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Brightness along a line, half of the pixels to train on."""
    X, y = np.arange(grey.shape[1], dtype=float)[:, None], grey[_LINE]
    train = np.random.default_rng(seed).permutation(len(X)) < len(X) // 2
    figure, axes = plt.subplots(
        1, 3, figsize=(17, 4.5), layout="constrained", width_ratios=(2, 2, 1)
    )
    rows = []
    for ax, (label, (model, num_layers)) in zip(axes, _REGRESSORS.items(), strict=False):
        echo(f"Brightness along a line: {label}")
        started = time.perf_counter()
        regressor = DeepGPRegressor(model, num_layers, **options).fit(X[train], y[train])
        mixture = regressor.predict_mixture(X[~train])
        Y = y[~train, None]
        rows.append(
            {
                "task": "brightness",
                "model": label,
                "error": float(metrics.rmse(Y, metrics.mixture_moments(*mixture)[0])),
                "log density": float(np.mean(regressor.log_density(X[~train], y[~train]))),
                "in 95%": float(metrics.coverage(Y, *mixture, level=0.95)),
                "seconds": time.perf_counter() - started,
            }
        )
        low, middle, high = regressor.predict_quantiles(X, (0.025, 0.5, 0.975)).T
        ax.fill_between(X[:, 0], low, high, alpha=0.3, label="95% interval")
        ax.plot(X[:, 0], middle, label="median")
        ax.plot(X[~train, 0], y[~train], "k.", markersize=3, label="test pixels")
        ax.set(
            title=f"{label}: test log density {rows[-1]['log density']:.2f}",
            xlabel="place along the line, pixels",
            ylabel="brightness",
        )
        plot_calibration(Y, *mixture, ax=axes[-1], label=label)
    axes[0].legend()
    _save(figure, output / "regression.png")
    return rows


def _classification(
    grey: np.ndarray, options: dict[str, Any], seed: int, output: Path, echo: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Bright or dark at a place, for pixels drawn at random."""
    rng = np.random.default_rng(seed)
    pixels = np.stack([rng.integers(0, size, 2 * _PIXELS) for size in grey.shape], axis=1)
    bright = np.where(grey[tuple(pixels.T)] > np.median(grey), "bright", "dark")
    X, train = pixels[:, ::-1].astype(float), np.arange(2 * _PIXELS) < _PIXELS
    figure, axes = plt.subplots(1, 3, figsize=(17, 4.5), layout="constrained")
    rows = []
    for ax, (label, (model, num_layers)) in zip(axes, _CLASSIFIERS.items(), strict=False):
        echo(f"Bright or dark: {label}")
        started = time.perf_counter()
        classifier = DeepGPClassifier(model, num_layers, **options).fit(X[train], bright[train])
        probability = classifier.predict_proba(X[~train])[:, 0]
        right = bright[~train] == "bright"
        rows.append(
            {
                "task": "bright or dark",
                "model": label,
                "error": float(np.mean((probability > 0.5) != right)),
                "log density": float(np.mean(classifier.log_density(X[~train], bright[~train]))),
                "in 95%": None,
                "seconds": time.perf_counter() - started,
            }
        )
        _map(classifier, grey.shape, ax)
        ax.set_title(f"{label}: test log density {rows[-1]['log density']:.3f}")
        CalibrationDisplay.from_predictions(right, probability, n_bins=10, name=label, ax=axes[-1])
    _save(figure, output / "classification.png")
    return rows


def _map(classifier: DeepGPClassifier, shape: tuple[int, ...], ax: Axes) -> None:
    """The probability of bright all over the photograph."""
    down, across = (np.linspace(0, size - 1, size // 6) for size in shape)
    places = np.stack(np.meshgrid(across, down), axis=-1).reshape(-1, 2)
    probability = classifier.predict_proba(places)[:, 0].reshape(len(down), len(across))
    ax.imshow(probability, extent=(0, shape[1], shape[0], 0), cmap="gray", vmin=0.0, vmax=1.0)
    ax.set(xlabel="pixels across", ylabel="pixels down")


def _table(rows: list[dict[str, Any]]) -> str:
    head = f"{'task':<15} {'model':<30} {'error':>8} {'log density':>12} {'in 95%':>7} {'s':>5}"
    lines = [head, "-" * len(head)]
    for row in rows:
        inside = "" if row["in 95%"] is None else f"{row['in 95%']:.1%}"
        lines.append(
            f"{row['task']:<15} {row['model']:<30} {row['error']:8.3g} {row['log density']:12.3f}"
            f" {inside:>7} {row['seconds']:5.0f}"
        )
    return "\n".join(lines)


def _save(figure: plt.Figure, path: Path) -> None:
    figure.savefig(path, dpi=120)
    plt.close(figure)

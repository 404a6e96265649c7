"""
The main job on real data: is the uncertainty right, near the training data and away from it?

Trains a sparse GP, a mean-field and a stripes-and-arrow deep GP on the regression set that comes
with scikit-learn, on the interpolation and the extrapolation split of Lindinger, Reeb, Lippert and
Rakitsch, *Beyond the Mean-Field: Structured Deep Gaussian Processes*, NeurIPS 2020.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from matplotlib import pyplot as plt

from gpflow_deep import metrics
from gpflow_deep.estimators.regression import Mixture, Regression, fit_regression
from gpflow_deep.experiments.datasets import Dataset, load
from gpflow_deep.experiments.splits import STUDIES
from gpflow_deep.plotting import plot_calibration, plot_inducing_covariance, plot_variance_vs_error
from gpflow_deep.presets import Settings

__all__ = ["DemoResult", "run_demo"]

_DATASET = "diabetes"
_MODELS = {
    "svgp": "SVGP",
    "mean-field": "DGP, mean-field",
    "stripes-and-arrow": "DGP, stripes-and-arrow",
}

# The set has 442 rows and is mostly noise: fewer layers, inducing points and steps than in the paper, half of
# the variance noise at the start, and no rows held out: so few of them would stop the training at random.
_SETTINGS = Settings(
    num_layers=2,
    num_inducing=32,
    likelihood_variance=0.5,
    learning_rate=0.01,
    steps=1000,
    validation_fraction=0.0,
)
_QUICK = replace(_SETTINGS, steps=200)


@dataclass(frozen=True)
class DemoResult:
    """
    What one model came to on one split, in original units.

    :param study: name of the split.
    :param model: registered name of the model.
    :param regression: the fit.
    :param Y: test targets [N, 1].
    :param mixture: their predictive mixture.
    :param scores: test scores, and `seconds` of training and testing.
    """

    study: str
    model: str
    regression: Regression
    Y: np.ndarray
    mixture: Mixture
    scores: dict[str, float]


def run_demo(
    output: Path | str,
    *,
    quick: bool = False,
    seed: int = 0,
    progress: bool = True,
    echo: Callable[[str], None] = print,
) -> list[DemoResult]:
    """
    Train and test the models, print a table, and write figures and the table's numbers.

    :param output: folder for results.json, inducing_covariance.png, variance_vs_error.png and
        calibration.png.
    :param quick: train a fifth as long: to see that it runs.
    :param seed: of the splits and of everything random.
    :param progress: whether to show a progress bar for each fit.
    :param echo: takes the lines to print.
    """
    output = Path(output)
    output.mkdir(parents=True, exist_ok=True)
    dataset = load(_DATASET)
    settings = _QUICK if quick else _SETTINGS
    jobs = [(study, model) for study in STUDIES for model in _MODELS]
    echo(
        f"Data: {_DATASET}, {len(dataset.X)} rows, {dataset.X.shape[1]} inputs. "
        f"{len(jobs)} fits of {settings.steps} steps; the deep GPs have "
        f"{settings.num_layers} layers."
    )
    results = []
    for number, (study, model) in enumerate(jobs, start=1):
        echo(f"[{number}/{len(jobs)}] {study}: {_MODELS[model]}")
        results.append(_run(dataset, study, model, settings, seed, progress))

    echo("\n" + _table(results))
    echo(
        "What to look at: extrapolation. There the test points lie outside the training data, and "
        "a model whose 95% intervals hold fewer than 95% of them is too sure of itself. This set is small "
        "and nearly linear, so that one layer is enough for it; `gpflow-deep benchmark` has data where "
        "depth pays."
    )
    for path in [_save_scores(results, output), *_save_figures(results, output)]:
        echo(f"Written: {path}")
    return results


def _run(
    dataset: Dataset, study: str, model: str, settings: Settings, seed: int, progress: bool
) -> DemoResult:
    split = STUDIES[study](dataset, seed)
    if model == "svgp":
        settings = replace(settings, num_layers=1)
    started = time.perf_counter()
    regression = fit_regression(
        dataset.X[split.train],
        dataset.Y[split.train],
        model,
        settings,
        seed=seed,
        progress=progress,
    )
    Y = dataset.Y[split.test]
    mixture = regression.predict_y_mixture(dataset.X[split.test])
    mean, _ = metrics.mixture_moments(*mixture)
    scores = {
        "rmse": metrics.rmse(Y, mean),
        "test_log_likelihood": -metrics.negative_log_likelihood(Y, *mixture),
        "crps": np.mean(metrics.crps(Y, *mixture)),
        "coverage95": metrics.coverage(Y, *mixture, level=0.95),
        "seconds": time.perf_counter() - started,
    }
    return DemoResult(
        study, model, regression, Y, mixture, {name: float(x) for name, x in scores.items()}
    )


def _table(results: list[DemoResult]) -> str:
    head = (
        f"{'split':<14} {'model':<23} {'RMSE':>7} {'test LL':>8} {'CRPS':>7} {'in 95%':>7} {'s':>5}"
    )
    lines = [head, "-" * len(head)]
    for result in results:
        s = result.scores
        lines.append(
            f"{result.study:<14} {_MODELS[result.model]:<23} {s['rmse']:7.2f} "
            f"{s['test_log_likelihood']:8.3f} {s['crps']:7.2f} {s['coverage95']:7.1%} "
            f"{s['seconds']:5.0f}"
        )
    return "\n".join(lines)


def _save_scores(results: list[DemoResult], output: Path) -> Path:
    path = output / "results.json"
    records = [
        {"dataset": _DATASET, "study": r.study, "model": r.model, **r.scores} for r in results
    ]
    path.write_text(json.dumps(records, indent=2) + "\n")
    return path


def _save_figures(results: list[DemoResult], output: Path) -> list[Path]:
    by_study = {study: [r for r in results if r.study == study] for study in STUDIES}
    paths = []

    deep = [r for r in by_study["extrapolation"] if r.model != "svgp"]
    figure, axes = plt.subplots(1, len(deep), figsize=(6 * len(deep), 5), layout="constrained")
    for ax, result in zip(axes, deep, strict=True):
        plot_inducing_covariance(result.regression.model, ax=ax)
        ax.set_title(_MODELS[result.model])
    paths.append(_save(figure, output / "inducing_covariance.png"))

    figure, axes = plt.subplots(1, len(by_study), figsize=(11, 5), layout="constrained")
    for ax, (study, group) in zip(axes, by_study.items(), strict=True):
        for result in group:
            mean, variance = metrics.mixture_moments(*result.mixture)
            errors = np.square(result.Y - mean)
            plot_variance_vs_error(variance[:, 0], errors[:, 0], ax, label=_MODELS[result.model])
        ax.set_title(study)
    paths.append(_save(figure, output / "variance_vs_error.png"))

    figure, axes = plt.subplots(1, len(by_study), figsize=(11, 5), layout="constrained")
    for ax, (study, group) in zip(axes, by_study.items(), strict=True):
        for result in group:
            plot_calibration(result.Y, *result.mixture, ax=ax, label=_MODELS[result.model])
        ax.set_title(study)
    paths.append(_save(figure, output / "calibration.png"))
    return paths


def _save(figure: plt.Figure, path: Path) -> Path:
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return path

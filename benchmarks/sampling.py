"""
Sampled deep GPs on the data sets of Table 1 of Lindinger et al. 2020, *Beyond the Mean-Field: Structured Deep
Gaussian Processes*: test scores, how far the chains have converged, and what they cost.

    python benchmarks/sampling.py --dataset energy --split 0 --output sghmc.jsonl
    python benchmarks/sampling.py --report sghmc.jsonl

The model is the preset `sghmc`. Every run adds one JSON line to the output; runs that are there are not
repeated. With --held-out an eighth of the training points is scored in place of the test points, and only the
rest trained on: for choices of settings, which are not to see the test points. --drift has ways to keep the
hyperparameters from fitting the states too closely.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from runs import Line, fit_by, hold_out, mean_and_error, read_split, run_or_report

import gpflow_deep as gd
from gpflow_deep.experiments.published import find

DATASETS = ("energy", "boston", "concrete", "wine_red", "kin8nm", "power")
DRIFTS = ("free", "prior", "floor", "stopped", "averaged")
NOISE_FLOOR = 3e-3
_TYPICAL, _WORST = 50, 95  # percentiles over the scored points


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).strip().split("\n\n")[0])
    parser.add_argument("--dataset", nargs="+", default=list(DATASETS))
    parser.add_argument("--split", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--layers", type=int, nargs="+", default=[3])
    parser.add_argument("--steps", type=int, default=6000)
    parser.add_argument("--held-out", action="store_true", help="score training points, see above")
    parser.add_argument("--drift", nargs="+", choices=DRIFTS, default=[None])
    parser.add_argument("--output", type=Path, default=Path("sghmc.jsonl"))
    parser.add_argument("--report", type=Path, help="print a table of these runs and make none")
    return parser.parse_args()


def execute(settings: Line) -> Line:
    """Sample one model's posterior; its scores in the targets' unit."""
    split = read_split(settings["dataset"], settings["split"])
    if settings["held_out"]:
        split = hold_out(split, settings["split"])
    chosen = gd.presets.recommended("sghmc", *split.X.shape, num_layers=settings["layers"])
    chosen = replace(
        gd.presets.scheduled(chosen, settings["steps"]), num_inducing=100, test_samples=100
    )
    drift = settings.get("drift")
    if drift == "floor":
        chosen = replace(chosen, noise_floor=NOISE_FLOOR)
    tf.random.set_seed(0)
    model = gd.presets.build("sghmc", split.X, split.Y, chosen)
    if drift == "prior":
        about, width = np.array([np.log(0.05), 1.0])
        model.likelihood.variance.prior = tfp.distributions.LogNormal(about, width)
    callback, settle = averaging(model, chosen.steps) if drift == "averaged" else (None, None)
    stopping = dict(validation_fraction=0.1, patience=None) if drift == "stopped" else {}
    started = time.process_time()
    fit_by(
        chosen,
        model,
        (split.X, split.Y),
        callback=callback,
        **stopping,
    )
    if settle is not None:
        settle()
    seconds = time.process_time() - started
    mixture = model.predict_y_mixture(split.Xtest, num_samples=chosen.test_samples)
    parts = [np.asarray(part) for part in mixture]
    mean, _ = gd.metrics.mixture_moments(*parts)
    densities = gd.metrics.log_density(split.Ytest, *parts)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what they say is in the line
        try:
            r_hat, sizes = map(np.asarray, model.convergence(split.Xtest))
        except ValueError:  # training that was stopped early has kept too few states to tell
            r_hat = sizes = np.full(1, np.nan)
    return dict(
        log_density=float(np.mean(densities) - np.log(split.scale)),
        rmse=split.scale * float(gd.metrics.rmse(split.Ytest, mean)),
        coverage95=float(gd.metrics.coverage(split.Ytest, *parts, level=0.95)),
        noise_variance=float(model.likelihood.variance.numpy()),
        seconds=seconds,
        r_hat=[float(np.percentile(r_hat, share)) for share in (_TYPICAL, _WORST)],
        effective_states=float(np.percentile(sizes, _TYPICAL)),
        num_train=len(split.X),
    )


def averaging(
    model: gd.models.SampledDeepGP, steps: int
) -> tuple[Callable[[int, float], None], Callable[[], None]]:
    """A callback of training, and what sets hyperparameters to their averages over its last quarter."""
    chains = {id(v) for v in model.inducing_posterior.variables_of_chains}
    variables = [v for v in model.trainable_variables if id(v) not in chains]
    sums, first = [np.zeros(v.shape) for v in variables], 3 * steps // 4

    def watch(step: int, loss: float) -> None:
        del loss
        if step > first:
            for total, variable in zip(sums, variables, strict=True):
                total += variable.numpy()

    def settle() -> None:
        for total, variable in zip(sums, variables, strict=True):
            variable.assign(total / (steps - first))

    return watch, settle


def published(dataset: str) -> str:
    """Of three layers, in that table."""
    found = find(dataset, "interpolation", "test_log_likelihood")
    return ", ".join(f"{entry.value:.2f}" for entry in found if entry.model == "sghmc")


def report(lines: list[Line]) -> None:
    """Means over splits, with their standard errors."""
    print(
        "| data set | layers | steps | splits | log density | RMSE | in 95% intervals |"
        " noise variance | R-hat, typical and worst | CPU s | CPU s an effective state | published |"
    )
    print("|" + "---|" * 12)
    groups: dict[tuple[Any, ...], list[Line]] = defaultdict(list)
    for line in lines:
        held_out = " (held-out training points)" if line["held_out"] else ""
        drift = f", {line['drift']}" if "drift" in line else ""
        what = line["dataset"] + held_out + drift
        groups[what, line["dataset"], line["layers"], line["steps"]].append(line)
    for (what, dataset, layers, steps), runs in groups.items():

        def shown(column: str, digits: int, runs: list[Line] = runs) -> str:
            return mean_and_error([run[column] for run in runs], digits)

        typical, worst = np.mean([run["r_hat"] for run in runs], axis=0)
        price = np.mean([run["seconds"] / run["effective_states"] for run in runs])
        noise = np.mean([run["noise_variance"] for run in runs])
        print(
            f"| {what} | {layers} | {steps} | {len(runs)} | {shown('log_density', 2)} |"
            f" {shown('rmse', 3)} | {shown('coverage95', 2)} | {noise:.1g} | {typical:.2f}, {worst:.2f} |"
            f" {np.mean([run['seconds'] for run in runs]):.0f} | {price:.1f} | {published(dataset)} |"
        )


def all_settings(o: argparse.Namespace) -> Iterator[Line]:
    for layers in o.layers:
        for split in o.split:
            for dataset in o.dataset:
                for drift in o.drift:
                    names = dict(dataset=dataset, split=split, layers=layers, steps=o.steps)
                    settings: Line = {**names, "held_out": o.held_out}
                    if drift is not None:
                        settings["drift"] = drift
                    yield settings


def main() -> None:
    o = parse_arguments()
    run_or_report(o, report, all_settings(o), execute)


if __name__ == "__main__":
    main()

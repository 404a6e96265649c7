"""
Deep GPs with and without a latent variable beside the inputs, and by how many importance samples: test
scores and costs.

    python benchmarks/latent_variables.py --dataset made-two-branches wine_red --output latents.jsonl
    python benchmarks/latent_variables.py --report latents.jsonl

Models are the presets `mean-field` and `latent-variable` with their recommended settings, the second with
each of the given numbers of importance samples. Sets named made-... are those of the panel, which need no
data folder. Every run adds one JSON line to the output; runs that are there are not repeated. With
--held-out an eighth of the training points is scored in place of the test points, and only the rest trained
on: for choices of settings, which are not to see the test points.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import made_sets
import numpy as np
import tensorflow as tf
from runs import Line, Split, fit_by, hold_out, mean_and_error, read_split, run_or_report

import gpflow_deep as gd
from gpflow_deep.estimators.scaling import Scaling

MADE = ("made-two-branches", "made-varying-noise", "made-skewed", "made-wild-errors", "made-counts")
UCI = ("boston", "concrete", "energy", "power", "wine_red", "yacht")
WITHOUT = "mean-field"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).strip().split("\n\n")[0])
    parser.add_argument("--dataset", nargs="+", default=[*MADE, *UCI])
    parser.add_argument("--split", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--samples", type=int, nargs="+", default=[0, 1, 5, 20], help="0: without")
    parser.add_argument("--layers", type=int, nargs="+", default=[2])
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--held-out", action="store_true", help="score training points, see above")
    parser.add_argument("--output", type=Path, default=Path("latents.jsonl"))
    parser.add_argument("--report", type=Path, help="print a table of these runs and make none")
    return parser.parse_args()


def read(dataset: str, index: int) -> Split:
    if not dataset.startswith("made-"):
        return read_split(dataset, index)
    X, y, Xtest, ytest = made_sets.split(dataset, index)
    scaling = Scaling.fit(X, y[:, None])
    inputs, targets = map(scaling.inputs, (X, Xtest)), map(scaling.targets, (y, ytest))
    (X, Xtest), (Y, Ytest) = inputs, (y.reshape(-1, 1) for y in targets)
    return Split(X, Y, Xtest, Ytest, float(scaling.Y_scale[0]))


def execute(settings: Line) -> Line:
    """Train one model; its scores in the targets' unit."""
    split = read(settings["dataset"], settings["split"])
    if settings["held_out"]:
        split = hold_out(split, settings["split"])
    K = settings["samples"]
    name = "latent-variable" if K else WITHOUT
    chosen = gd.presets.recommended(name, *split.X.shape, num_layers=settings["layers"])
    chosen = replace(gd.presets.scheduled(chosen, settings["steps"]), num_samples=K or 1)
    tf.random.set_seed(settings["split"])
    model = gd.presets.build(name, split.X, split.Y, chosen, seed=settings["split"])
    started = time.process_time()
    fit_by(chosen, model, (split.X, split.Y), validation_fraction=0.1, patience=None)
    seconds = time.process_time() - started
    parts = [np.asarray(part) for part in model.predict_y_mixture(split.Xtest)]
    mean, _ = gd.metrics.mixture_moments(*parts)
    return dict(
        log_density=float(
            np.mean(gd.metrics.log_density(split.Ytest, *parts)) - np.log(split.scale)
        ),
        rmse=split.scale * float(gd.metrics.rmse(split.Ytest, mean)),
        crps=split.scale * float(np.mean(gd.metrics.crps(split.Ytest, *parts))),
        coverage95=float(gd.metrics.coverage(split.Ytest, *parts, level=0.95)),
        noise_variance=float(model.likelihood.variance.numpy()),
        seconds=seconds,
        num_train=len(split.X),
    )


def report(lines: list[Line]) -> None:
    """Means over splits with their standard errors, and what a latent variable adds to each."""
    print(
        "| data set | layers | importance samples | splits | log density | more than without | CRPS | RMSE |"
        " in 95% intervals | CPU s |"
    )
    print("|" + "---|" * 10)
    groups: dict[tuple[Any, ...], dict[int, Line]] = defaultdict(dict)
    for line in lines:
        held_out = " (held-out training points)" if line["held_out"] else ""
        groups[line["dataset"] + held_out, line["layers"], line["samples"]][line["split"]] = line
    for (dataset, layers, samples), runs in groups.items():
        without = groups.get((dataset, layers, 0), {})
        gains = [
            run["log_density"] - without[split]["log_density"]
            for split, run in runs.items()
            if samples and split in without
        ]

        def shown(column: str, digits: int, runs: dict[int, Line] = runs) -> str:
            return mean_and_error([run[column] for run in runs.values()], digits)

        print(
            f"| {dataset} | {layers} | {samples or 'without'} | {len(runs)} | {shown('log_density', 3)} |"
            f" {mean_and_error(gains, 3) if gains else ''} | {shown('crps', 4)} | {shown('rmse', 3)} |"
            f" {shown('coverage95', 2)} | {np.mean([run['seconds'] for run in runs.values()]):.0f} |"
        )


def all_settings(o: argparse.Namespace) -> Iterator[Line]:
    for layers in o.layers:
        for split in o.split:
            for dataset in o.dataset:
                for samples in o.samples:
                    yield dict(
                        dataset=dataset,
                        split=split,
                        layers=layers,
                        samples=samples,
                        steps=o.steps,
                        held_out=o.held_out,
                    )


def main() -> None:
    o = parse_arguments()
    run_or_report(o, report, all_settings(o), execute)


if __name__ == "__main__":
    main()

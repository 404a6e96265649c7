"""
How many components a prediction needs: errors of mixtures of S components against one of 4096.

    python benchmarks/prediction_components.py --output components.jsonl
    python benchmarks/prediction_components.py --report components.jsonl
    python benchmarks/prediction_components.py --time

A mixture's components come from draws through the hidden layers: random ones, the quasi-random ones that
predictions use, or those that `condense` learns of the training points. Errors are of held-out points: the
root mean square of the difference of log densities, and of the means in units of the predicted standard
deviation. --time tells what predictions cost: three layers, five hidden GPs, 128 inducing points, 8 inputs.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from runs import Line, fit_by, mean_and_error, read_split, run_or_report, use_one_thread

import gpflow_deep as gd
from gpflow_deep.numerics.draws import quasi_normals

MANY = 4096
SIZES = (4, 8, 16, 32, 64, 128)
WAYS = ("random", "quasi-random", "learned")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).strip().split("\n\n")[0])
    parser.add_argument("--dataset", nargs="+", default=["boston", "concrete"])
    parser.add_argument("--split", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--layers", type=int, nargs="+", default=[2, 3])
    parser.add_argument("--output", type=Path, default=Path("components.jsonl"))
    parser.add_argument("--report", type=Path, help="print a table of these runs and make none")
    parser.add_argument("--time", action="store_true", help="time predictions, and nothing else")
    return parser.parse_args()


def trained(X: np.ndarray, Y: np.ndarray, layers: int) -> gd.models.DeepGP:
    """The preset's mean-field model, in float64."""
    s = gd.presets.recommended("mean-field", *X.shape, num_layers=layers)
    tf.random.set_seed(0)
    model = gd.presets.build("mean-field", X, Y, s)
    fit_by(s, model, (X, Y))
    model.num_prediction_samples = MANY
    return model


def execute(settings: Line) -> Line:
    """Errors [ways, sizes], and what learning cost."""
    split = read_split(settings["dataset"], settings["split"])
    model = trained(split.X, split.Y, settings["layers"])
    widths, test = [layer.num_latent_gps for layer in model.layers[:-1]], (split.Xtest, split.Ytest)
    mean, variance = model.predict_y(split.Xtest)
    density, sd = model.predict_log_density(test), tf.sqrt(variance)
    errors: dict[str, list[tuple[float, float]]] = defaultdict(list)
    seconds = []
    for size in SIZES:
        quasi = [z[:, None] for z in quasi_normals(size, widths, seed=1)]
        random = np.random.default_rng(1)
        ways: dict[str, Any] = {
            "random": [random.standard_normal(z.shape) for z in quasi],
            "quasi-random": quasi,
        }
        posterior = model.posterior()
        started = time.process_time()
        posterior.condense((split.X, split.Y), size)
        seconds.append(time.process_time() - started)
        for way in WAYS:
            given = dict(noise=ways[way]) if way in ways else {}
            found_mean, _ = posterior.predict_y(split.Xtest, **given)
            found = posterior.predict_log_density(test, **given)
            differences = (found - density, (found_mean - mean) / sd)
            errors[way].append(tuple(float(np.sqrt(np.mean(np.square(d)))) for d in differences))
    return dict(sizes=SIZES, errors=errors, seconds=seconds, log_density=float(np.mean(density)))


def report(lines: list[Line]) -> None:
    """Errors of log densities and means over the runs, with standard errors."""
    print("| layers | components | " + " | ".join(WAYS) + " | learning, CPU s |")
    print("|" + "---|" * (3 + len(WAYS)))
    for layers in sorted({line["layers"] for line in lines}):
        runs = [line for line in lines if line["layers"] == layers]
        for index, size in enumerate(SIZES):
            cells = [
                " / ".join(
                    mean_and_error([run["errors"][way][index][part] for run in runs], 3)
                    for part in (0, 1)
                )
                for way in WAYS
            ]
            cost = np.mean([run["seconds"][index] for run in runs])
            print(f"| {layers} | {size} | {' | '.join(cells)} | {cost:.0f} |")


def seconds_of(predict: Callable[[np.ndarray], Any], X: np.ndarray, repeats: int) -> float:
    """Of processor time, the least of some calls after two that trace and compile."""
    times = []
    for _ in range(2 + repeats):
        started = time.process_time()
        predict(X)
        times.append(time.process_time() - started)
    return min(times[2:])


def time_predictions() -> None:
    """A table: by the model, by its posterior, and condensed."""
    rng = np.random.default_rng(0)
    X, many = rng.normal(size=(1000, 8)), rng.normal(size=(10_000, 8))
    layers = gd.layers.build_layers(X, hidden_dims=(5, 5), num_inducing=128)
    model = gd.models.DeepGP(layers, gpflow.likelihoods.Gaussian(0.1), gd.posteriors.MeanField)
    ways = {"model": model, "posterior": model.posterior()}
    for size in (8, 4):
        ways[f"condensed to {size}"] = model.posterior()
        ways[f"condensed to {size}"].condense((X, np.sin(X[:, :1])), size, steps=10)
    print("| predict_y | CPU ms, one point | CPU s, 10,000 points |\n|---|---|---|")
    for name, predictor in ways.items():
        one = 1e3 * seconds_of(predictor.predict_y, many[:1], 5)
        print(
            f"| {name} | {one:.1f} | {seconds_of(predictor.predict_y, many, 2):.2f} |", flush=True
        )


def all_settings(o: argparse.Namespace) -> Iterator[Line]:
    for layers in o.layers:
        for dataset in o.dataset:
            for split in o.split:
                yield dict(dataset=dataset, split=split, layers=layers)


def main() -> None:
    o = parse_arguments()
    if o.time:
        use_one_thread()
        time_predictions()
        return
    run_or_report(o, report, all_settings(o), execute)


if __name__ == "__main__":
    main()

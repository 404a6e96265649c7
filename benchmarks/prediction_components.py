"""
How many components a prediction needs: errors of mixtures of S components against one of 4096.

    python benchmarks/prediction_components.py --output components.jsonl
    python benchmarks/prediction_components.py --report components.jsonl

A mixture's components come from draws through the hidden layers: random ones, the quasi-random ones that
predictions use, or those that `condense` learns of the training points. Errors are of held-out points: the
root mean square of the difference of log densities, and of the means in units of the predicted standard
deviation.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from runs import Line, Results, mean_and_error, read_split, use_one_thread

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
    return parser.parse_args()


def trained(X: np.ndarray, Y: np.ndarray, layers: int) -> gd.models.DeepGP:
    """The preset's mean-field model, in float64."""
    s = gd.presets.recommended("mean-field", *X.shape, num_layers=layers)
    tf.random.set_seed(0)
    model = gd.presets.build("mean-field", X, Y, s)
    gd.training.fit(
        model,
        (X, Y),
        steps=s.steps,
        batch_size=s.batch_size,
        learning_rate=s.learning_rate,
        decay_rate=s.decay_rate,
        decay_steps=s.decay_steps,
        progress=False,
    )
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


def main() -> None:
    o = parse_arguments()
    if o.report:
        report(Results(o.report).read())
        return
    use_one_thread()
    for layers in o.layers:
        for dataset in o.dataset:
            for split in o.split:
                settings: Line = dict(dataset=dataset, split=split, layers=layers)
                Results(o.output).run(settings, partial(execute, settings))


if __name__ == "__main__":
    main()

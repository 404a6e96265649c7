"""
What natural gradients are worth: CPU-seconds to a bound and test scores of deep GPs, against Adam alone and
L-BFGS with frozen draws.

    python benchmarks/natural_gradients.py --dataset boston --split 0 --output natural_gradients.jsonl
    python benchmarks/natural_gradients.py --report natural_gradients.jsonl

Every run starts from the same model (noise variance 0.3) and adds one JSON line to the output; runs that are
there are not repeated. GPflux's model, where it is installed, is mean-field's twin: its layers, its start,
its minibatches, Adam 0.05. Natural gradients go with Adam for all other parameters, from one gradient a step.
The clock stands still while bounds and scores are computed, and starts after the first step, which compiles.
The bound is that of the whole training set, with the same draws at every time (GPflux's: with new ones).
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import peers
import tensorflow as tf
from gpflow.keras import tf_keras
from harness import adam_step
from runs import (
    STRUCTURES,
    Line,
    Recorder,
    Split,
    argument_parser,
    build,
    mean_and_error,
    read_split,
    run_or_report,
    sizes,
    spread_steps,
)

import gpflow_deep as gd

# Falling: to a hundredth over the run, in a hundred stairs.
FALLING = dict(learning_rate=0.05, last_rate=0.01)
METHODS: dict[str, dict[str, float] | None] = {
    "Adam 0.02": dict(learning_rate=0.02),
    "Adam 0.05": dict(learning_rate=0.05),
    "Adam 0.05 falling": FALLING,
    "Adam 0.05, natural 0.1": dict(learning_rate=0.05, natural_gradient=0.1),
    "Adam 0.05, natural 1": dict(learning_rate=0.05, natural_gradient=1.0),
    "Adam 0.05 falling, natural 1": dict(FALLING, natural_gradient=1.0),
    "L-BFGS": None,
    "GPflux": None,
}
STAIRS = 100
BATCH = 512  # as many points as `fit` takes by default
COLUMNS = ("step", "seconds", "bound", "log_density", "rmse")
REFERENCE = "Adam 0.05"


def parse_arguments() -> argparse.Namespace:
    parser = argument_parser(
        str(__doc__),
        "natural_gradients.jsonl",
        **dict(layers=2, hidden_dim=5, num_inducing=32, steps=1000),
    )
    parser.add_argument("--dataset", nargs="+", default=["boston", "concrete", "energy", "yacht"])
    parser.add_argument("--split", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--structure", nargs="+", choices=STRUCTURES, default=list(STRUCTURES))
    parser.add_argument(
        "--method",
        nargs="+",
        choices=METHODS,
        default=[name for name in METHODS if name != "GPflux"],
    )
    parser.add_argument("--evaluations", type=int, default=25)
    parser.add_argument("--report", type=Path, help="print tables of these runs and make none")
    return parser.parse_args()


def execute(settings: Line, evaluations: int) -> Line:
    """Train one model; its scores along the way."""
    split, steps = read_split(settings["dataset"], settings["split"]), settings["steps"]
    model = build(split, settings, likelihood_variance=0.3)
    if settings["method"] == "GPflux":
        return dict(columns=COLUMNS, curve=gpflux_curve(model, split, steps, evaluations))
    recorder = Recorder(scorer(model, split), spread_steps(steps, evaluations))
    method, data = METHODS[settings["method"]], (split.X, split.Y)
    if method is None:
        minimise_frozen(model, data, steps, recorder)
    else:
        gd.training.fit(
            model, data, steps=steps, progress=False, callback=recorder, **schedule(steps, **method)
        )
    return dict(columns=COLUMNS, curve=recorder.curve)


def scorer(model: gd.models.DeepGP, split: Split) -> Callable[[], tuple[float, ...]]:
    """Bound, test log density and RMSE, the latter two in the targets' unit."""
    data, test = (split.X, split.Y), (split.Xtest, split.Ytest)
    noise = model.draw_noise(len(split.X), seed=[0, 0])

    def tensors() -> tuple[tf.Tensor, ...]:
        mean, _ = model.predict_f(split.Xtest)
        return model.elbo(data, noise), model.predict_log_density(test), mean

    compiled = tf.function(tensors, autograph=False)

    def score() -> tuple[float, ...]:
        bound, log_density, mean = map(np.asarray, compiled())
        rmse = split.scale * np.sqrt(np.mean(np.square(mean - split.Ytest)))
        return float(bound), float(log_density.mean() - np.log(split.scale)), float(rmse)

    return score


def schedule(steps: int, last_rate: float = 1.0, **settings: float) -> dict[str, Any]:
    """What `fit` takes for a rate of Adam that falls to a share of its start."""
    stairs = dict(decay_rate=last_rate ** (1 / STAIRS), decay_steps=max(1, steps // STAIRS))
    return {**stairs, **settings}


def minimise_frozen(
    model: gd.models.DeepGP, data: Any, steps: int, recorder: Callable[[int], None]
) -> None:
    """L-BFGS on all data, with the same draws in every evaluation; its own, not the recorder's."""

    def after_step(step: int, variables: Any, values: Any) -> None:
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)
        recorder(step + 1)

    gpflow.optimizers.Scipy().minimize(
        model.training_loss_closure(data, seed=1),
        model.trainable_variables,
        options=dict(maxiter=steps),
        step_callback=after_step,
    )


def gpflux_curve(
    model: gd.models.DeepGP, split: Split, steps: int, evaluations: int
) -> list[tuple[float, ...]]:
    """What the recorder has of GPflux's twin of a mean-field model that is not trained yet."""
    twin = peers.gpflux_twin(model, len(split.X))
    training, prediction = twin.as_training_model(), twin.as_prediction_model()
    batches = iter(gd.training.minibatches((split.X, split.Y), BATCH, seed=0))
    # GPflux draws one sample a point: S samples are S copies of the data.
    many_X, many_Y = (tf.constant(np.tile(a, [20, 1])) for a in (split.X, split.Y))
    test_X = tf.constant(np.tile(split.Xtest, [model.num_prediction_samples, 1]))

    def loss(X: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        training({"inputs": X, "targets": Y}, training=True)
        return tf.add_n(training.losses)

    def batch_loss() -> tf.Tensor:
        return loss(*(tf.tile(a, [model.num_samples, 1]) for a in batches.get_next()))

    step = adam_step(
        batch_loss, training.trainable_variables, optimizer=tf_keras.optimizers.Adam(0.05)
    )

    @tf.function(autograph=False)
    def tensors() -> tuple[tf.Tensor, ...]:
        found = prediction(test_X)
        return -len(split.X) * loss(many_X, many_Y), found.y_mean, found.y_var

    def score() -> tuple[float, ...]:
        bound, means, variances = (np.asarray(x) for x in tensors())
        shape = (model.num_prediction_samples, *split.Ytest.shape)
        means, variances = means.reshape(shape), variances.reshape(shape)
        weights = np.full(len(means), -np.log(len(means)))
        density = gd.metrics.log_density(split.Ytest, means, variances, weights)
        rmse = split.scale * np.sqrt(np.mean(np.square(means.mean(0) - split.Ytest)))
        return float(bound), float(np.mean(density) - np.log(split.scale)), float(rmse)

    recorder = Recorder(score, spread_steps(steps, evaluations))
    for number in range(1, steps + 1):
        step()
        recorder(number)
    return recorder.curve


def all_settings(o: argparse.Namespace) -> Iterator[Line]:
    for dataset in o.dataset:
        for split in o.split:
            for structure in o.structure:
                for method in o.method:
                    if method == "GPflux" and structure != "mean-field":
                        continue
                    names = dict(dataset=dataset, split=split, structure=structure, method=method)
                    yield {**names, **sizes(o)}


Scores = dict[str, float]


def scores(line: Line, target: float) -> Scores:
    """
    Of a run at its end, and the CPU-seconds until its bound reached the target, infinite where it has not.
    """
    curve = np.array(line["curve"])
    reached = curve[curve[:, 2] >= target, 1]
    ends = dict(zip(COLUMNS, curve[-1]))
    milliseconds = 1e3 * ends["seconds"] / max(ends["step"] - 1, 1)
    return {**ends, "to_bound": reached[0] if len(reached) else np.inf, "ms": milliseconds}


def report(lines: list[Line]) -> None:
    """Means over splits with their standard errors, then the differences from Adam alone split by split."""
    ends = {
        (line["structure"], line["dataset"], line["split"]): line["curve"][-1][2]
        for line in lines
        if line["method"] == REFERENCE
    }
    runs: dict[tuple[str, str, str], dict[int, Scores]] = defaultdict(dict)
    for line in lines:
        structure, dataset, split = line["structure"], line["dataset"], line["split"]
        target = ends.get((structure, dataset, split), np.inf)
        runs[structure, dataset, line["method"]][split] = scores(line, target)
    print_means(runs)
    print()
    print_differences(runs)


def print_means(runs: dict[tuple[str, str, str], dict[int, Scores]]) -> None:
    print(
        f"| structure | data set | method | splits | CPU ms a step | CPU s to the bound of {REFERENCE} |"
        " bound | test log density | RMSE |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for names, by_split in sorted(runs.items()):
        rows = list(by_split.values())

        def shown(column: str, digits: int, rows: list[Scores] = rows) -> str:
            return mean_and_error([row[column] for row in rows], digits)

        missed = sum(np.isinf(row["to_bound"]) for row in rows)
        seconds = f"missed by {missed} of {len(rows)}" if missed else shown("to_bound", 1)
        print(
            f"| {' | '.join(names)} | {len(rows)} | {shown('ms', 1)} | {seconds} | {shown('bound', 1)}"
            f" | {shown('log_density', 3)} | {shown('rmse', 3)} |"
        )


def print_differences(runs: dict[tuple[str, str, str], dict[int, Scores]]) -> None:
    """On the same split, from the reference; over all sets and splits."""
    print(
        f"| structure | method | splits | higher bound than {REFERENCE} | higher test density |"
        " difference of bounds, nats | of test log densities |"
    )
    print("|---|---|---|---|---|---|---|")
    pairs = defaultdict(list)
    for (structure, dataset, method), by_split in runs.items():
        others = runs.get((structure, dataset, REFERENCE), {})
        if method != REFERENCE:
            pairs[structure, method] += [
                (row, others[split]) for split, row in by_split.items() if split in others
            ]
    for names, rows in sorted(pairs.items()):
        bound, density = (
            [row[column] - other[column] for row, other in rows]
            for column in ("bound", "log_density")
        )
        won = " | ".join(f"{np.sum(np.greater(d, 0))} of {len(rows)}" for d in (bound, density))
        means = f"{mean_and_error(bound, 1)} | {mean_and_error(density, 3)}"
        print(f"| {' | '.join(names)} | {len(rows)} | {won} | {means} |")


def main() -> None:
    o = parse_arguments()
    run_or_report(o, report, all_settings(o), partial(execute, evaluations=o.evaluations))


if __name__ == "__main__":
    main()

"""
What natural gradients are worth: CPU-seconds to a bound and test scores of deep GPs, against Adam alone and
L-BFGS with frozen draws.

    python benchmarks/natural_gradients.py --dataset boston --split 0 --output natural_gradients.jsonl
    python benchmarks/natural_gradients.py --report natural_gradients.jsonl

Every run starts from the same model (noise variance 0.3) and adds one JSON line to the output; runs that are
there are not repeated. Natural gradients go with Adam for all other parameters, from one gradient a step. The
clock stands still while bounds and scores are computed, and starts after the first step, which compiles. The
bound is that of the whole training set, with the same draws at every time.
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
import tensorflow as tf
from runs import (
    STRUCTURES,
    Line,
    Recorder,
    Results,
    Split,
    argument_parser,
    build,
    mean_and_error,
    read_split,
    sizes,
    spread_steps,
    use_one_thread,
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
}
STAIRS = 100
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
    parser.add_argument("--method", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--evaluations", type=int, default=25)
    parser.add_argument("--report", type=Path, help="print tables of these runs and make none")
    return parser.parse_args()


def execute(settings: Line, evaluations: int) -> Line:
    """Train one model; its scores along the way."""
    split, steps = read_split(settings["dataset"], settings["split"]), settings["steps"]
    model = build(split, settings, likelihood_variance=0.3)
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


def all_settings(o: argparse.Namespace) -> Iterator[Line]:
    for dataset in o.dataset:
        for split in o.split:
            for structure in o.structure:
                for method in o.method:
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
    if o.report:
        report(Results(o.report).read())
        return
    use_one_thread()
    for settings in all_settings(o):
        Results(o.output).run(settings, partial(execute, settings, o.evaluations))


if __name__ == "__main__":
    main()

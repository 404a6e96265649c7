"""
Inducing outputs marginalised analytically (Theorem 1) against sampled: the comparison of Figure 2 of
Lindinger et al. 2020, *Beyond the Mean-Field: Structured Deep Gaussian Processes*.

    python benchmarks/marginalisation.py --output marginalisation.jsonl     # goes on where it was stopped

Both train the same model on the same minibatches. Along the way the bound of the whole training set is
evaluated, with the same draws for both, and the noise of their estimators of it: the standard deviation over
some evaluations, each with new draws. Seconds are the process's, on one thread, without what is recorded.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

import numpy as np
import tensorflow as tf
from gpflow.utilities import multiple_assign, parameter_dict
from runs import (
    STRUCTURES,
    Line,
    Recorder,
    Results,
    argument_parser,
    build,
    read_split,
    sizes,
    spread_steps,
    use_one_thread,
)

import gpflow_deep as gd

COLUMNS = ("step", "seconds", "bound", "noise")


def parse_arguments() -> argparse.Namespace:
    parser = argument_parser(
        str(__doc__),
        "marginalisation.jsonl",
        **dict(layers=3, hidden_dim=5, num_inducing=32, steps=1000),
    )
    parser.add_argument("--dataset", default="concrete")
    parser.add_argument("--split", type=int, nargs="+", default=[0, 1, 2])
    structures = ["stripes-and-arrow", "fully-coupled"]
    parser.add_argument("--structure", nargs="+", choices=STRUCTURES, default=structures)
    parser.add_argument("--learning-rate", type=float, default=0.02)
    parser.add_argument("--evaluations", type=int, default=15)
    parser.add_argument("--repeats", type=int, default=20, help="evaluations for the noise")
    return parser.parse_args()


def execute(settings: Line, evaluations: int, repeats: int) -> Line:
    split, steps = read_split(settings["dataset"], settings["split"]), settings["steps"]
    trained, analytic = (
        build(split, settings, marginalisation=marginalisation)
        for marginalisation in (settings["marginalisation"], "analytic")
    )
    data = (split.X, split.Y)
    recorder = Recorder(scorer(trained, analytic, data, repeats), spread_steps(steps, evaluations))
    gd.training.fit(
        trained,
        data,
        steps=steps,
        learning_rate=settings["learning_rate"],
        decay_rate=1.0,
        progress=False,
        callback=recorder,
    )
    return dict(columns=COLUMNS, curve=recorder.curve)


def scorer(
    trained: gd.models.DeepGP,
    analytic: gd.models.DeepGP,
    data: tuple[np.ndarray, np.ndarray],
    repeats: int,
) -> Callable[[], tuple[float, float]]:
    """The bound by a model that marginalises analytically, and the noise of the trained one's estimates."""
    noise = analytic.draw_noise(len(data[0]), seed=[0, 0])
    bound = tf.function(lambda: analytic.elbo(data, noise), autograph=False)
    estimate = tf.function(lambda: trained.elbo(data), autograph=False)

    def score() -> tuple[float, float]:
        multiple_assign(analytic, parameter_dict(trained))
        estimates = [float(estimate()) for _ in range(repeats)]
        return float(bound()), float(np.std(estimates, ddof=1))

    return score


def main() -> None:
    o = parse_arguments()
    use_one_thread()
    for split in o.split:
        for structure in o.structure:
            for marginalisation in ("analytic", "monte_carlo"):
                names = dict(dataset=o.dataset, split=split, structure=structure)
                settings = {
                    **names,
                    "marginalisation": marginalisation,
                    **sizes(o),
                    "learning_rate": o.learning_rate,
                }
                Results(o.output).run(
                    settings, partial(execute, settings, o.evaluations, o.repeats)
                )


if __name__ == "__main__":
    main()

"""
What a fully-coupled posterior learns, and what other structures could keep of it: the covariance of Figure 1
of Lindinger et al. 2020, *Beyond the Mean-Field: Structured Deep Gaussian Processes*.

    python benchmarks/learned_covariance.py --output learned_covariance.jsonl   # goes on where it was stopped

A Gaussian q(v) over the inducing outputs of all GPs has a total correlation, the sum of its GPs' entropies
less its own: what the nearest q that knows no coupling loses, in nats. It is the sum of three parts, with h_t
the GPs of index t in all hidden layers and o the output's,

    stripes   sum over t of the total correlation within h_t
    arrow     the mutual information of all h_t with o
    lost      the total correlation between the h_t

of which stripes-and-arrow keeps the first two. A structure on the precision in its place, h_1, h_2, ...
independent given o, loses the total correlation between them given o; one with layers that know of their
neighbours only loses the mutual information of each layer with those two or more below, given those between.
All are differences of log determinants.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
from runs import (
    Line,
    Results,
    Split,
    argument_parser,
    build,
    read_split,
    sizes,
    use_one_thread,
)

import gpflow_deep as gd


def parse_arguments() -> argparse.Namespace:
    parser = argument_parser(
        str(__doc__),
        "learned_covariance.jsonl",
        **dict(layers=3, hidden_dim=5, num_inducing=32, steps=2000),
    )
    parser.add_argument("--dataset", default="concrete")
    parser.add_argument("--split", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--learning-rate", type=float, default=0.02)
    parser.add_argument("--natural-gradient", type=float, default=0.1)
    return parser.parse_args()


def train(split: Split, settings: Line) -> gd.models.DeepGP:
    model = build(split, settings)
    gd.training.fit(
        model,
        (split.X, split.Y),
        steps=settings["steps"],
        learning_rate=settings["learning_rate"],
        decay_rate=1.0,
        natural_gradient=settings["natural_gradient"],
        progress=False,
    )
    return model


class Entropies:
    """
    Of some of the GPs, but for what cancels between sums in which every GP stands as often.

    :param factor: L of q(v), [T M, T M].
    :param num_gps: T.
    """

    def __init__(self, factor: np.ndarray, num_gps: int) -> None:
        num_inducing = len(factor) // num_gps
        # Rows of unit length change nothing that is asked for, and spare the determinants tiny numbers.
        rows = factor / np.linalg.norm(factor, axis=1, keepdims=True)
        self._rows = rows.reshape(num_gps, num_inducing, -1)

    def __call__(self, gps: Sequence[int]) -> float:
        rows = self._rows[list(gps)].reshape(-1, self._rows.shape[-1])
        return 0.5 * float(np.linalg.slogdet(rows @ rows.T)[1])


def parts(factor: np.ndarray, num_latent_gps: Sequence[int]) -> Line:
    """The nats of the module's description, with hidden layers of one width."""
    num_gps, width = sum(num_latent_gps), num_latent_gps[0]
    entropy = Entropies(factor, num_gps)
    hidden, output = range(num_gps - num_latent_gps[-1]), range(num_gps)[-num_latent_gps[-1] :]
    chains = [hidden[t::width] for t in range(width)]
    ends = np.cumsum([0, *num_latent_gps])
    layers = [range(start, stop) for start, stop in zip(ends[:-1], ends[1:])]
    alone = [entropy([gp]) for gp in range(num_gps)]
    whole, of_hidden = entropy(range(num_gps)), entropy(hidden)
    of_chains = sum(map(entropy, chains))
    given_output = sum(entropy([*chain, *output]) - entropy(output) for chain in chains)
    markov = entropy(layers[0]) + sum(
        entropy([*below, *layer]) - entropy(below) for below, layer in zip(layers, layers[1:])
    )
    return dict(
        total=sum(alone) - whole,
        stripes=sum(alone[gp] for gp in hidden) - of_chains,
        arrow=of_hidden + sum(alone[gp] for gp in output) - whole,
        lost=of_chains - of_hidden,
        lost_given_output=given_output - (whole - entropy(output)),
        lost_beyond_neighbours=markov - whole,
        pairs=[[alone[i] + alone[j] - entropy([i, j]) for j in range(i)] for i in range(num_gps)],
    )


def execute(settings: Line, factors: Path | None) -> Line:
    """
    :param factors: where to keep the factor of the correlations, [T M, T M] in half precision.
    """
    split = read_split(settings["dataset"], settings["split"])
    model = train(split, settings)
    q = model.inducing_posterior
    factor = np.asarray(q.dense()[1])
    if factors is not None:
        rows = factor / np.linalg.norm(factor, axis=1, keepdims=True)
        np.savez_compressed(factors, factor=rows.astype(np.float16))
    bound = float(model.elbo((split.X, split.Y), model.draw_noise(len(split.X), seed=[0, 0])))
    return dict(bound=bound, **parts(factor, q.num_latent_gps))


def main() -> None:
    o = parse_arguments()
    use_one_thread()
    rates = dict(learning_rate=o.learning_rate, natural_gradient=o.natural_gradient)
    for split in o.split:
        settings = dict(
            dataset=o.dataset, split=split, structure="fully-coupled", **sizes(o), **rates
        )
        factors = o.output.with_suffix(".npz") if split == o.split[0] else None
        Results(o.output).run(settings, partial(execute, settings, factors))


if __name__ == "__main__":
    main()

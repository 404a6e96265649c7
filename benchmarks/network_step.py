"""
Cost of one Adam step of Bayesian networks of two hidden layers of 50 units, M = 100, S = 10, by posterior and
dtype, beside the authors' own library; by default at the size of the yacht data, 277 points of 6 inputs.

    python benchmarks/network_step.py
    python benchmarks/network_step.py --num-data 7373 --input-dim 8 --dtypes float32
    python benchmarks/network_step.py --peer-python PYTHON --bayesfunc FOLDER

The peer is bayesfunc (https://github.com/LaurenceA/bayesfunc), of which FOLDER is a checkout, in a Python
that has PyTorch. Every model runs in a process of its own on one thread, several times in turn; the table has
medians over rounds of the least and the median CPU time of a step.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from harness import adam_step, argument_parser, child_command, measure, run_rounds

WIDTH, M, S = 50, 100, 10
POSTERIORS = ("separate", "shared", "local", "factorised")
DTYPES = ("float64", "float32")
#: Library, posterior, dtype.
PEER_CASES = [("bayesfunc", "separate", "float32"), ("bayesfunc", "shared", "float32")]


def data(dtype: str, o: argparse.Namespace) -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(0).normal(size=(o.num_data, o.input_dim)).astype(dtype)
    return X, np.sin(X.sum(axis=1, keepdims=True)).astype(dtype)


def our_step(posterior: str, dtype: str, o: argparse.Namespace) -> Callable[[], object]:
    import gpflow
    import tensorflow as tf

    import gpflow_deep as gd
    from gpflow_deep import posteriors as q

    gpflow.config.set_default_float(dtype)
    X, Y = data(dtype, o)
    layers = [gd.layers.BayesianDense(n) for n in (WIDTH, WIDTH, 1)]
    relu = gd.layers.bayesian.Activation
    kinds = {
        "separate": partial(q.GlobalInducingWeights, precision="separate"),
        "shared": q.GlobalInducingWeights,
        "local": partial(q.LocalInducingWeights, precision="separate"),
        "factorised": partial(q.FactorisedWeights, local_reparameterisation=True),
    }
    is_global = posterior in ("separate", "shared")
    model = gd.models.GlobalInducingBNN(
        [layers[0], relu(), layers[1], relu(), layers[2]],
        gpflow.likelihoods.Gaussian(0.05),
        X[:M] if is_global else None,
        input_shape=None if is_global else o.input_dim,
        posterior=kinds[posterior],
        pseudo_outputs=Y[:M] if is_global else None,
        num_samples=S,
        num_data=o.num_data,
    )
    batch = tf.constant(X), tf.constant(Y)
    return adam_step(lambda: model.training_loss(batch), model.trainable_variables, o.jit)


def peer_network(
    posterior: str, X: Any, Y: Any, o: argparse.Namespace, prior: str = "NealPrior"
) -> tuple[Any, Any]:
    """bayesfunc, and its network with inducing inputs at the first rows."""
    import torch

    torch.cholesky, torch.triangular_solve = torch.linalg.cholesky, _triangular_solve
    sys.path.insert(0, str(o.bayesfunc))
    import bayesfunc

    torch.set_num_threads(1)
    layer = partial(
        bayesfunc.GILinear,
        prior=getattr(bayesfunc.priors, prior),
        inducing_batch=M,
        neuron_prec=posterior == "separate",
        log_prec_lr=3.0,
    )
    relu = torch.nn.ReLU
    layers = torch.nn.Sequential(
        layer(X.shape[1], WIDTH),
        relu(),
        layer(WIDTH, WIDTH),
        relu(),
        layer(WIDTH, 1, inducing_targets=Y[:M], log_prec_init=0.0),
    )
    return bayesfunc, bayesfunc.InducingWrapper(layers, M, inducing_data=X[:M])


def _triangular_solve(
    b: Any, A: Any, upper: bool = True, transpose: bool = False
) -> tuple[Any, Any]:
    """What PyTorch had under this name."""
    import torch

    factor = A.transpose(-1, -2) if transpose else A
    return torch.linalg.solve_triangular(factor, b, upper=upper != transpose), A


def peer_step(posterior: str, o: argparse.Namespace) -> Callable[[], object]:
    import torch

    X, Y = (torch.tensor(part) for part in data("float32", o))
    bayesfunc, network = peer_network(posterior, X, Y, o)
    log_variance = torch.nn.Parameter(torch.tensor(-3.0))
    adam = torch.optim.Adam([*network.parameters(), log_variance], lr=0.01)

    def step() -> None:
        adam.zero_grad()
        output, log_ratio, _ = bayesfunc.propagate(network, X.expand(S, -1, -1))
        squares = torch.square(Y - output) / log_variance.exp() + log_variance
        loss = -(log_ratio - 0.5 * squares.sum((-1, -2))).mean()
        loss.backward()
        adam.step()

    return step


def main() -> None:
    parser = argument_parser(__doc__, steps=30)
    parser.add_argument("--num-data", type=int, default=277)
    parser.add_argument("--input-dim", type=int, default=6)
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, default=list(DTYPES))
    parser.add_argument("--peer-python", default=sys.executable)
    parser.add_argument("--bayesfunc", type=Path, help="folder of the peer's repository")
    o: argparse.Namespace = parser.parse_args()
    if o.child:
        library, posterior, dtype = o.child
        if library == "bayesfunc":
            step = peer_step(posterior, o)
        else:
            step = our_step(posterior, dtype, o)
        print(json.dumps(measure(step, o.steps)))
        return
    cases = [("gpflow_deep", posterior, dtype) for posterior in POSTERIORS for dtype in o.dtypes]
    commands = {case: child_command(__file__, case) for case in cases}
    if o.bayesfunc:
        for case in PEER_CASES:
            commands[case] = child_command(__file__, case, python=o.peer_python)
    print("| library | posterior | dtype | least CPU ms | median CPU ms |")
    print("|---|---|---|---|---|")
    for case, r in run_rounds(commands, o.rounds).items():
        print(f"| {' | '.join(case)} | {r['least_cpu']:.1f} | {r['cpu']:.1f} |")


if __name__ == "__main__":
    main()

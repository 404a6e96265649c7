"""
The authors' own library, bayesfunc, trained as the Bayesian networks of benchmarks/results are: two hidden
layers of 50 units, global inducing points, precisions of each unit's own.

    python benchmarks/network_peer.py --peer-python PYTHON --bayesfunc FOLDER --dataset yacht --prior standard

FOLDER is a checkout of https://github.com/LaurenceA/bayesfunc, PYTHON one that has PyTorch. One thread.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from network_step import S, peer_network

#: As in its code, where the standard prior has another name than in the paper.
PRIORS = {"neal": "NealPrior", "standard": "InsanePrior"}
TEST_DRAWS, REPORT_EVERY = 100, 500
NOISE_PACE = 10.0  # Appendix G


def write_split(dataset: str, split: int, path: Path) -> None:
    """Standardised rows of a split, and the targets' unit."""
    from gpflow_deep.estimators.scaling import Scaling
    from gpflow_deep.experiments.datasets import load
    from gpflow_deep.experiments.splits import interpolation_split

    data = load(dataset)
    rows = interpolation_split(data, split)
    train, test = np.sort(rows.train), rows.test
    scaling = Scaling.fit(data.X[train], data.Y[train])
    X, Xtest = scaling.inputs(data.X[train]), scaling.inputs(data.X[test])
    Y, Ytest = scaling.targets(data.Y[train]), scaling.targets(data.Y[test])
    np.savez(path, X=X, Y=Y, Xtest=Xtest, Ytest=Ytest, unit=scaling.Y_scale)


def train(path: Path, o: argparse.Namespace) -> None:
    """In the peer's Python."""
    import torch

    torch.manual_seed(o.seed)
    arrays = dict(np.load(path))
    X, Y, Xtest, Ytest = (
        torch.tensor(arrays[name], dtype=torch.float32) for name in ("X", "Y", "Xtest", "Ytest")
    )
    bayesfunc, network = peer_network("separate", X, Y, o, PRIORS[o.prior])
    log_variance = torch.nn.Parameter(torch.tensor(np.log(0.05) / NOISE_PACE).float())
    adam = torch.optim.Adam([*network.parameters(), log_variance], lr=o.learning_rate)

    def normal(output: torch.Tensor) -> torch.distributions.Normal:
        return torch.distributions.Normal(output, (0.5 * NOISE_PACE * log_variance).exp())

    bounds = []
    for step in range(1, o.steps + 1):
        weight = min(1.0, 0.1 + 0.9 * step / o.tempering_steps) if o.tempering_steps else 1.0
        output, log_ratio, _ = bayesfunc.propagate(network, X.expand(S, -1, -1))
        density = normal(output).log_prob(Y).sum((-1, -2))
        adam.zero_grad()
        (-(density + weight * log_ratio).mean() / len(X)).backward()
        adam.step()
        bounds.append((density + log_ratio).mean().item() / len(X))
        if step % REPORT_EVERY == 0:
            with torch.no_grad():
                output, _, _ = bayesfunc.propagate(network, Xtest.expand(TEST_DRAWS, -1, -1))
                densities = torch.logsumexp(normal(output).log_prob(Ytest), 0) - np.log(TEST_DRAWS)
            score = densities.mean().item() - np.log(arrays["unit"]).sum()
            line = {"step": step, "bound": np.mean(bounds[-50:]), "test_log_likelihood": score}
            print(
                json.dumps({name: round(float(value), 3) for name, value in line.items()}),
                flush=True,
            )


def main() -> None:
    """See the top of this file."""
    parser = argparse.ArgumentParser(description=__doc__.strip().partition("\n\n")[0])
    parser.add_argument("--peer-python", default=sys.executable)
    parser.add_argument("--bayesfunc", type=Path, required=True)
    parser.add_argument("--dataset", default="yacht")
    parser.add_argument("--split", type=int, default=0)
    parser.add_argument("--prior", choices=list(PRIORS), default="neal")
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--tempering-steps", type=int, default=2000)
    parser.add_argument("--learning-rate", type=float, default=0.01)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", type=Path, help=argparse.SUPPRESS)
    o = parser.parse_args()
    if o.data:
        train(o.data, o)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "split.npz")
        write_split(o.dataset, o.split, path)
        command = [o.peer_python, __file__, *sys.argv[1:], "--data", str(path)]
        subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})


if __name__ == "__main__":
    main()

"""
The authors' own library, bayesfunc, trained as the Bayesian networks of benchmarks/results are: two hidden
layers of 50 units, global inducing points, precisions of each unit's own.

    python benchmarks/network_peer.py --peer-python PYTHON --bayesfunc FOLDER --dataset yacht --prior standard

FOLDER is a checkout of https://github.com/LaurenceA/bayesfunc, PYTHON one that has PyTorch. One thread.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from harness import child_command
from network_step import S, peer_network

#: As in its code, where the standard prior has another name than in the paper.
PRIORS = {"neal": "NealPrior", "standard": "InsanePrior"}
TEST_DRAWS, REPORT_EVERY = 100, 500
NOISE_PACE = 10.0  # Appendix G


def train(path: str, o: argparse.Namespace) -> None:
    """On the arrays of a file, in the peer's Python."""
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
            score = densities.mean().item() - np.log(arrays["scale"])
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
    parser.add_argument("--child", type=json.loads, help=argparse.SUPPRESS)
    o = parser.parse_args()
    if o.child:
        train(o.child, o)
        return
    from runs import read_split  # by this package, which the peer's Python has not

    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "split.npz"))
        np.savez(path, **read_split(o.dataset, o.split)._asdict())
        subprocess.run(child_command(__file__, path, python=o.peer_python), check=True)


if __name__ == "__main__":
    main()

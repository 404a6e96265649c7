"""
Expectation propagation with a factor for every point, after training on the energy of a tied one.

    python benchmarks/expectation_propagation.py --dataset yacht --from-tied-factor --damping 0.2

A moment-matched deep GP of two layers is trained by Adam; its kernels then stay as they are, and sweeps
update the factors. Of every sixth sweep: rejected updates, the evidence of EP, the log density of test rows.
"""

from __future__ import annotations

import argparse

import gpflow
import numpy as np
from panel import split
from sklearn.preprocessing import StandardScaler

import gpflow_deep as gd


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--dataset", default="yacht")
    parser.add_argument("--split", type=int, default=0)
    parser.add_argument("--steps", type=int, default=3000, help="of Adam")
    parser.add_argument("--num-inducing", type=int, default=20)
    parser.add_argument("--sweeps", type=int, default=24)
    parser.add_argument("--damping", type=float, default=0.5)
    parser.add_argument("--from-tied-factor", action="store_true")
    return parser.parse_args()


def main() -> None:
    o = parse_arguments()
    X, y, test_X, test_y = split(o.dataset, o.split)
    inputs, targets = StandardScaler().fit(X), StandardScaler().fit(y[:, None])
    data = inputs.transform(X), targets.transform(y[:, None])
    test = inputs.transform(test_X), targets.transform(test_y[:, None])
    layers = gd.layers.build_separate_layers(data[0], hidden_dims=(2,), num_inducing=o.num_inducing)
    model = gd.models.FITCEPDeepGP(layers, gpflow.likelihoods.Gaussian(0.1), num_data=len(X))

    def report(what: str, evidence: float) -> None:
        density = float(np.mean(model.predict_log_density(test))) - float(np.log(targets.scale_[0]))
        print(f"{what}: evidence {evidence:.2f}, test log density {density:.4f}", flush=True)

    gd.training.fit(model, data, steps=o.steps, learning_rate=0.01, batch_size=50, progress=False)
    report("Adam", float(model.energy(data)))
    ep = gd.optimizers.ExpectationPropagation(
        model, data, o.damping, from_tied_factor=o.from_tied_factor
    )
    for number in range(1, o.sweeps + 1):
        rejected = ep.sweep()
        if number % 6 == 0:
            report(f"sweep {number}, {rejected} rejected", float(ep.log_evidence()))


if __name__ == "__main__":
    main()

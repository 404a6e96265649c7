"""
FITC-EP classifiers on scikit-learn's bundled sets: test log-likelihood and error rate, means over random
90:10 splits with their standard errors.

    python benchmarks/classification.py --splits 5
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import gpflow
import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_wine

import gpflow_deep as gd
from gpflow_deep.numerics.draws import quasi_normals

DATASETS = {
    "breast_cancer": lambda: load_breast_cancer(return_X_y=True),
    "wine": lambda: load_wine(return_X_y=True),
    # A third of the images, of all ten digits.
    "digits": lambda: tuple(a[:600] for a in load_digits(return_X_y=True)),
}
HIDDEN = {"fitc-gp": (), "fitc-ep-2": (2,), "fitc-ep-3": (3,)}


def run(
    X: np.ndarray, y: np.ndarray, hidden: tuple[int, ...], split: int, steps: int
) -> list[float]:
    order = np.random.default_rng(split).permutation(len(X))
    test, train = np.split(order, [len(X) // 10])
    deviation = X[train].std(axis=0)
    X = (X - X[train].mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)
    classes = int(y.max()) + 1
    likelihood = gpflow.likelihoods.Softmax(classes)
    outputs, targets = classes, y[:, None]
    if classes == 2:
        likelihood = gpflow.likelihoods.Bernoulli(invlink=gd.likelihoods.probit)
        outputs, targets = 1, y[:, None].astype(float)
    layers = gd.layers.build_layers(X[train], hidden, outputs, num_inducing=50)
    model = gd.models.FITCEPDeepGP(layers, likelihood, num_data=len(train))
    gd.training.fit(
        model,
        (X[train], targets[train]),
        steps=steps,
        batch_size=100,
        learning_rate=0.01,
        decay_rate=0.8,
        decay_steps=steps // 10,
        progress=False,
    )
    # log Z of every class is the predictive distribution, the same at every call.
    mean, variance = model.predict_f(X[test])
    noise = quasi_normals(1024, [outputs], 0)[0]

    def log_p(label: int) -> np.ndarray:
        Y = np.full([len(test), 1], label, dtype=targets.dtype)
        return np.asarray(
            gd.likelihoods.log_normaliser(likelihood, X[test], mean, variance, Y, noise=noise)
        )

    log_probabilities = np.stack([log_p(label) for label in range(classes)], axis=1)
    error = np.mean(log_probabilities.argmax(axis=1) != y[test])
    return [float(np.mean(log_probabilities[np.arange(len(test)), y[test]])), float(error)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--datasets", nargs="+", choices=list(DATASETS), default=list(DATASETS))
    o = parser.parse_args()
    print("| data set | model | test log-likelihood | error rate |")
    print("|---|---|---|---|")
    for name in o.datasets:
        for model, hidden in HIDDEN.items():
            scores = [run(*DATASETS[name](), hidden, split, o.steps) for split in range(o.splits)]
            mean = np.mean(scores, axis=0)
            error = np.std(scores, axis=0, ddof=1) / np.sqrt(o.splits) if o.splits > 1 else mean * 0
            cells = [f"{m:.3f} ({e:.3f})" for m, e in zip(mean, error)]
            print(f"| {name} | {model} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()

"""
Would natural gradients pay for FITC-EP's tied factors? Steps on their natural parameters, against Adam.

    python benchmarks/tied_factor_steps.py --dataset boston --split 0 --output tied_factor_steps.jsonl
    python benchmarks/tied_factor_steps.py --report tied_factor_steps.jsonl
    python benchmarks/tied_factor_steps.py --check

Every run starts from the same model and adds one JSON line to the output; runs that are there are not
repeated. Adam trains all other parameters by the same gradients. The clock stands still while energies and
scores are computed, and starts after the first step, which compiles. A check of the steps: for one layer,
Gaussian noise and a power near 0 one of size 1 finds the optimum, which is known.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.keras import tf_keras
from runs import (
    Line,
    Recorder,
    Split,
    argument_parser,
    mean_and_error,
    read_split,
    run_or_report,
    sizes,
    spread_steps,
)

import gpflow_deep as gd
from gpflow_deep.posteriors.tied_factor import Weights

# The rate of Adam, and the size of natural gradient steps with the nats, per inducing output, that one may
# change a posterior by: the best of 0.03, 0.1 and 0.5 with 0.1, 0.01 and 0.001 on boston's first split.
METHODS: dict[str, tuple[float, tuple[float, float] | None]] = {
    "Adam 0.02": (0.02, None),
    "Adam 0.05": (0.05, None),
    "Adam 0.02, natural 0.03": (0.02, (0.03, 0.01)),
    "Adam 0.05, natural 0.03": (0.05, (0.03, 0.01)),
}
REFERENCE = "Adam 0.02"
COLUMNS = ("step", "seconds", "energy", "log_density")


class WhitenedFactor(tf.Module):
    """
    A model's tied factors by their natural parameters S [T, M, M] and t [T, M] in the coordinates v with
    u = L_K v, in which the prior is standard normal: q has the precision I + S. In the place of
    :class:`gpflow_deep.posteriors.TiedFactor`, with what the energy and predictions ask of it.
    """

    def __init__(self, model: gd.models.FITCEPDeepGP) -> None:
        super().__init__()
        self.S, self.t = [], []
        for index, covariance in enumerate(model._prior_covariances()):
            precision, linear = model.inducing_posterior.natural_parameters(index)
            root = _root(covariance, precision)
            S = tf.matmul(root, tf.matmul(precision, root), transpose_a=True)
            self.S.append(tf.Variable(S, trainable=False))
            t = tf.linalg.matvec(root, linear, transpose_a=True)
            self.t.append(tf.Variable(t, trainable=False))

    def weights(self, layer: int, covariance: tf.Tensor, power: float) -> Weights:
        return self._solve(layer, covariance, power)[0]

    def cavity(
        self, layer: int, covariance: tf.Tensor, fraction: float
    ) -> tuple[Weights, tf.Tensor]:
        weights, of_cavity = self._solve(layer, covariance, 1.0 - fraction)
        _, of_all = self._solve(layer, covariance, 1.0)
        return weights, of_all + (of_cavity - of_all) / fraction

    def _solve(self, layer: int, covariance: tf.Tensor, power: float) -> tuple[Weights, tf.Tensor]:
        """Weights, and phi less the prior's."""
        S, t = tf.convert_to_tensor(self.S[layer]), tf.convert_to_tensor(self.t[layer])
        root = _root(covariance, S)
        factor = tf.linalg.cholesky(tf.eye(S.shape[-1], dtype=S.dtype) + power * S)
        mean = power * tf.linalg.cholesky_solve(factor, t[..., None])
        reduction = _symmetric(power * tf.linalg.cholesky_solve(factor, S))
        half = tf.linalg.triangular_solve(root, reduction, adjoint=True)
        weights = Weights(
            tf.linalg.triangular_solve(root, mean, adjoint=True)[..., 0],
            tf.linalg.triangular_solve(root, tf.linalg.matrix_transpose(half), adjoint=True),
        )
        phi = 0.5 * power * tf.reduce_sum(t * mean[..., 0])
        return weights, phi - tf.reduce_sum(tf.math.log(tf.linalg.diag_part(factor)))

    def step(self, gradients: Sequence[Sequence[tf.Tensor]], gamma: float, max_kl: float) -> None:
        """
        One along the natural gradient of a loss, in natural parameters, shortened to the trust region. Where
        S would have negative eigenvalues, which a tied factor cannot, they become 0.

        :param gradients: of the loss in S and in t, layer by layer.
        """
        for S, t, G_S, G_t in zip(self.S, self.t, *gradients):
            identity = tf.eye(S.shape[-1], dtype=S.dtype)
            precision = identity + S
            mean = tf.linalg.solve(precision, t[..., None])[..., 0]
            # The gradients in q's moments, by way of t = precision mean.
            inner = _symmetric(G_t[..., :, None] * mean[..., None, :]) + _symmetric(G_S)
            by_covariance = -tf.matmul(precision, tf.matmul(inner, precision))
            by_mean = tf.linalg.matvec(precision, G_t)
            factor = tf.linalg.cholesky(precision)
            change = tf.matmul(factor, tf.matmul(inner, factor), transpose_a=True)
            shift = tf.linalg.matvec(factor, G_t, transpose_a=True)
            kl = tf.reduce_sum(change**2, [-2, -1]) + 0.5 * tf.reduce_sum(shift**2, -1)
            limit = tf.sqrt(max_kl * S.shape[-1] / kl)
            size = tf.minimum(tf.constant(gamma, S.dtype), limit)[:, None]
            t.assign_sub(size * (by_mean - 2.0 * tf.linalg.matvec(by_covariance, mean)))
            moved = S + 2.0 * size[..., None] * by_covariance
            values, vectors = tf.linalg.eigh(_symmetric(moved))
            inside = vectors * tf.maximum(values, 0.0)[..., None, :]
            S.assign(tf.matmul(inside, vectors, transpose_b=True))


def _root(covariance: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
    return tf.linalg.cholesky(tf.broadcast_to(covariance, tf.shape(like)))


def _symmetric(x: tf.Tensor) -> tf.Tensor:
    return 0.5 * (x + tf.linalg.matrix_transpose(x))


def stepper(
    model: gd.models.FITCEPDeepGP,
    batches: Iterator[tuple[tf.Tensor, tf.Tensor]],
    rate: float,
    natural: tuple[float, float] | None,
) -> Callable[[], tf.Tensor]:
    """A step of training; for natural gradients the model's factors become whitened ones."""
    if natural is not None:
        model.inducing_posterior = WhitenedFactor(model)
    adam = tf_keras.optimizers.Adam(rate)
    adam.build(model.trainable_variables)

    @tf.function(autograph=False)
    def step() -> tf.Tensor:
        data, factor = batches.get_next(), model.inducing_posterior
        others = model.trainable_variables
        own = [factor.S, factor.t] if natural else []
        with tf.GradientTape() as tape:
            tape.watch(own)
            loss = -model.energy(data)
        gradients, of_own = tape.gradient(loss, [others, own])
        adam.apply_gradients(zip(gradients, others))
        if natural:
            factor.step(of_own, *natural)
        return loss

    return step


def execute(settings: Line, evaluations: int) -> Line:
    """Train one model; its energy and test score along the way."""
    split, steps = read_split(settings["dataset"], settings["split"]), settings["steps"]
    model = build(split, settings)
    batches = iter(gd.training.minibatches((split.X, split.Y), min(512, len(split.X)), seed=0))
    step = stepper(model, batches, *METHODS[settings["method"]])
    recorder = Recorder(scorer(model, split), spread_steps(steps, evaluations))
    for number in range(1, steps + 1):
        step()
        recorder(number)
    return dict(columns=COLUMNS, curve=recorder.curve)


def build(split: Split, settings: Line) -> gd.models.FITCEPDeepGP:
    hidden_dims = (settings["hidden_dim"],) * (settings["layers"] - 1)
    layers = gd.layers.build_separate_layers(
        split.X, hidden_dims, num_inducing=settings["num_inducing"], seed=0
    )
    return gd.models.FITCEPDeepGP(
        layers, gpflow.likelihoods.Gaussian(0.1), num_data=len(split.X), num_prediction_samples=1
    )


def scorer(model: gd.models.FITCEPDeepGP, split: Split) -> Callable[[], tuple[float, ...]]:
    @tf.function(autograph=False)
    def tensors() -> tuple[tf.Tensor, tf.Tensor]:
        density = model.predict_log_density((split.Xtest, split.Ytest))
        return model.energy((split.X, split.Y)), tf.reduce_mean(density)

    def score() -> tuple[float, ...]:
        energy, density = map(float, tensors())
        return energy, density - float(np.log(split.scale))

    return score


def check() -> None:
    """One step of size 1 against the optimum of a sparse GP's bound."""
    split = read_split("boston", 0)
    layers = gd.layers.build_layers(split.X, (), 1, 20, seed=0)
    model = gd.models.FITCEPDeepGP(
        layers, gpflow.likelihoods.Gaussian(0.1), alpha=1e-4, num_data=len(split.X)
    )
    data = (tf.constant(split.X), tf.constant(split.Y))
    step = stepper(model, iter(tf.data.Dataset.from_tensors(data).repeat()), 1e-12, (1.0, np.inf))
    before = float(model.energy(data))
    step()
    layer = layers[0]
    best = gpflow.models.SGPR(
        data, layer.kernel, layer.inducing_variable, noise_variance=0.1
    ).elbo()
    print(
        f"before {before:.3f}, after one step {float(model.energy(data)):.3f}, optimum {best:.3f}"
    )


def report(lines: list[Line]) -> None:
    """Means over splits, and differences from the reference at equal steps split by split."""
    runs: dict[tuple[str, str], dict[int, np.ndarray]] = defaultdict(dict)
    for line in lines:
        runs[line["dataset"], line["method"]][line["split"]] = np.array(line["curve"])
    print(
        "| data set | method | splits | CPU ms a step | energy after a tenth | energy | density |"
    )
    print("|---|---|---|---|---|---|---|")
    for (dataset, method), curves in sorted(runs.items()):
        ends = [curve[-1] for curve in curves.values()]
        early = [at(curve, 0.1 * curve[-1, 0]) for curve in curves.values()]
        cells = [
            mean_and_error([1e3 * end[1] / (end[0] - 1) for end in ends], 1),
            mean_and_error(early, 1),
            mean_and_error([end[2] for end in ends], 1),
            mean_and_error([end[3] for end in ends], 3),
        ]
        print(f"| {dataset} | {method} | {len(ends)} | {' | '.join(cells)} |")
    print(f"\n| method | runs | higher energy than {REFERENCE} | by | higher density | by |")
    print("|---|---|---|---|---|---|")
    for method in METHODS:
        differences = np.array(
            [
                curve[-1, 2:] - runs[dataset, REFERENCE][split][-1, 2:]
                for (dataset, name), curves in runs.items()
                for split, curve in curves.items()
                if name == method != REFERENCE and split in runs[dataset, REFERENCE]
            ]
        )
        if len(differences):
            energy, density = differences.T
            print(
                f"| {method} | {len(differences)} | {np.sum(energy > 0)} | {mean_and_error(energy, 1)}"
                f" | {np.sum(density > 0)} | {mean_and_error(density, 3)} |"
            )


def at(curve: np.ndarray, step: float) -> float:
    """The energy at a step, between those that were recorded."""
    return float(np.interp(step, curve[:, 0], curve[:, 2]))


def all_settings(o: argparse.Namespace) -> Iterator[Line]:
    for dataset in o.dataset:
        for split in o.split:
            for method in o.method:
                yield {**dict(dataset=dataset, split=split, method=method), **sizes(o)}


def main() -> None:
    o = parse_arguments()
    if o.check:
        check()
        return
    run_or_report(o, report, all_settings(o), partial(execute, evaluations=o.evaluations))


def parse_arguments() -> argparse.Namespace:
    parser = argument_parser(
        str(__doc__),
        "tied_factor_steps.jsonl",
        **dict(layers=2, hidden_dim=2, num_inducing=50, steps=1000),
    )
    parser.add_argument("--dataset", nargs="+", default=["boston", "concrete", "energy", "yacht"])
    parser.add_argument("--split", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--method", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--evaluations", type=int, default=25)
    parser.add_argument("--report", type=Path, help="print tables of these runs and make none")
    parser.add_argument("--check", action="store_true", help="check a step, and make no runs")
    return parser.parse_args()


if __name__ == "__main__":
    main()

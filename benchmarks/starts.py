"""
Where training starts, and how fast it goes: presets with other initial values, scored on training points that
are held out.

    python benchmarks/starts.py --output starts.jsonl
    python benchmarks/starts.py --report starts.jsonl

Every run adds one JSON line to the output; runs that are there are not repeated. Greedy inducing inputs are
those of the largest conditional variance, one after the other (Burt, Rasmussen & van der Wilk 2020), under
the kernel that the layer starts with or that of an exact GP; skip connections put the inputs beside the
hidden GPs.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from time import process_time
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from runs import Line, Split, fit_by, hold_out, mean_and_error, read_split, run_or_report

import gpflow_deep as gd
from gpflow_deep.estimators.evidence import fit_exact
from gpflow_deep.estimators.rows import Rows
from gpflow_deep.estimators.starting import start_as_sparse_gp
from gpflow_deep.initialisation import greedy_inducing_inputs
from gpflow_deep.models.passage import Passage
from gpflow_deep.posteriors.base import Conditional
from gpflow_deep.presets.parts import kernel_factory, likelihood_and_outputs

# Settings in place of the preset's and of k-means, and what else is done to the model.
WAYS: dict[str, tuple[dict[str, Any], str]] = {
    "noise 0.1, rate 0.05": (dict(likelihood_variance=0.1, learning_rate=0.05), ""),
    "noise 0.3, rate 0.1": (dict(likelihood_variance=0.3, learning_rate=0.1), ""),
    "noise 1, rate 0.05": (dict(likelihood_variance=1.0, learning_rate=0.05), ""),
    "noise 1, rate 0.1": (dict(likelihood_variance=1.0, learning_rate=0.1), ""),
    "noise 1, rate 0.2": (dict(likelihood_variance=1.0, learning_rate=0.2), ""),
    "noise 1, rate 0.1, hidden scale 0.1": (
        dict(likelihood_variance=1.0, learning_rate=0.1, hidden_scale=0.1),
        "",
    ),
    "greedy": (
        dict(likelihood_variance=1.0, learning_rate=0.1, inducing_init="greedy"),
        "",
    ),
    "greedy by an exact GP": (dict(likelihood_variance=1.0, learning_rate=0.1), "greedy by GP"),
    "lengthscales of an exact GP": (dict(likelihood_variance=1.0, learning_rate=0.1), "GP"),
    "from an exact GP": ({}, "started"),
    "skip connections": (dict(likelihood_variance=1.0, learning_rate=0.1), "skip"),
}
REFERENCE = "noise 1, rate 0.1"  # the preset's, but for its inducing inputs
MOST_ROWS = 4000
GP_ROWS = 500  # that an exact GP's hyperparameters are learned from


class SkipDeepGP(gd.models.DeepGP):
    """A deep GP of two layers, the second of which has the inputs beside the first one's outputs."""

    def _passage(self, prepared: Any, full_output_cov: bool = False) -> Passage:
        return _WithInputs(super()._passage(prepared, full_output_cov))


class _WithInputs(Passage):
    def __init__(self, passage: Passage) -> None:
        self._passage = passage

    def condition(self, layer: Any, inputs: Any, below: Conditional | None) -> Conditional:
        if below is None:
            self._inputs = inputs
        return self._passage.condition(layer, inputs, below)

    def sample(self, noise: Any) -> tf.Tensor:
        sample = self._passage.sample(noise)
        inputs = tf.repeat(self._inputs, tf.shape(sample)[0], axis=0)
        return tf.concat([sample, inputs], axis=-1)


def build_with_skip(split: Split, settings: gd.presets.Settings) -> gd.models.DeepGP:
    """What the mean-field preset builds, with a kernel of the second layer over the inputs too."""
    (hidden_dim,), D = settings.hidden_dims(split.X.shape[1]), split.X.shape[1]
    make = kernel_factory(settings)
    assert make is not None  # the preset names the kernel
    layers = gd.layers.build_layers(
        split.X, (hidden_dim,), num_inducing=settings.num_inducing, kernel_factory=make
    )
    layers[1].kernel = make(hidden_dim + D, 1)
    model = SkipDeepGP(
        layers,
        likelihood_and_outputs(split.Y, settings)[0],
        posterior=gd.posteriors.MeanField(layers, hidden_scale=settings.hidden_scale),
        num_samples=settings.num_samples,
        num_prediction_samples=settings.test_samples,
        num_data=len(split.X),
        compute_dtype="float32",
    )
    below, above = (layer.inducing_variable.Z.numpy() for layer in layers)
    # After the model has looked whether the layers fit each other: without inputs on the side.
    layers[1].inducing_variable = gpflow.inducing_variables.InducingPoints(
        np.concatenate([above, below], axis=1)
    )
    return model


def exact_gp(split: Split) -> gpflow.models.GPR:
    """By the evidence of some rows."""
    rows, D = np.random.default_rng(0).permutation(len(split.X))[:GP_ROWS], split.X.shape[1]
    kernel = gpflow.kernels.Matern52(lengthscales=np.full(D, D**0.5))
    model = gpflow.models.GPR((split.X[rows], split.Y[rows]), kernel, noise_variance=0.1)
    gpflow.optimizers.Scipy().minimize(
        model.training_loss, model.trainable_variables, options=dict(maxiter=60)
    )
    return model


def start(model: gd.models.DeepGP, split: Split, what: str) -> None:
    """Other initial values of a preset's model."""
    first = model.layers[0]
    if not what:
        return
    if what == "started":
        rows = Rows(split.X, split.Y, np.ones(len(split.X)))
        exact, _, _ = fit_exact("gp", rows, gd.presets.recommended("gp", *split.X.shape), seed=0)
        start_as_sparse_gp(model, exact, rows)
        return
    kernel = exact_gp(split).kernel
    if what == "GP":
        first.kernel.lengthscales.assign(np.clip(kernel.lengthscales, 0.05, 20.0))
    else:
        Z = greedy_inducing_inputs(split.X, first.num_inducing, kernel)
        for layer in model.layers:
            layer.inducing_variable.Z.assign(Z)
            Z = np.asarray(layer.mean_function(Z))


def execute(settings: Line) -> Line:
    """Train one model; its loss over the last fifty steps and its scores on what is held out."""
    split = hold_out(read_split(settings["dataset"], settings["split"]), settings["split"])
    split = split._replace(X=split.X[:MOST_ROWS], Y=split.Y[:MOST_ROWS])
    changes, what = WAYS[settings["way"]]
    family, steps = settings["family"], settings["steps"]
    recommended = gd.presets.recommended(family, *split.X.shape, started=what == "started")
    chosen = gd.presets.scheduled(recommended, steps)
    chosen = replace(chosen, **{"inducing_init": "kmeans", **changes})
    tf.random.set_seed(0)
    since = process_time()
    if what == "skip":
        model: Any = build_with_skip(split, chosen)
    else:
        model = gd.presets.build(family, split.X, split.Y, chosen)
        start(model, split, what)
    result = fit_by(chosen, model, (split.X, split.Y))
    seconds = process_time() - since
    density = model.predict_log_density((split.Xtest, split.Ytest))
    return dict(
        loss=float(np.mean(result.history["loss"][-50:])),
        log_density=float(np.mean(density) - np.log(split.scale)),
        seconds=seconds,
    )


def report(lines: list[Line]) -> None:
    """Differences from the reference run by run, the means over sets with standard errors over runs."""
    runs: dict[tuple[str, int, str], dict[tuple[str, int], Line]] = defaultdict(dict)
    for line in lines:
        runs[line["family"], line["steps"], line["way"]][line["dataset"], line["split"]] = line
    datasets = list(dict.fromkeys(line["dataset"] for line in lines))
    print(f"| family | steps | way | runs | bound | density | {' | '.join(datasets)} | CPU s |")
    print("|---" * (7 + len(datasets)) + "|")
    for (family, steps, way), found in sorted(runs.items(), key=lambda item: item[0][:2]):
        others = runs[family, steps, REFERENCE]
        pairs = {key: (line, others[key]) for key, line in found.items() if key in others}
        gain: Callable[[str], list[float]] = lambda name, pairs=pairs: [  # noqa: E731
            line[name] - other[name] for line, other in pairs.values()
        ]
        if not pairs:
            continue
        by_set = [
            np.mean(
                [
                    a["log_density"] - b["log_density"]
                    for (d, _), (a, b) in pairs.items()
                    if d == name
                ]
            )
            if any(d == name for d, _ in pairs)
            else np.nan
            for name in datasets
        ]
        cells = [
            mean_and_error([-x for x in gain("loss")], 1),
            mean_and_error(gain("log_density"), 3),
            *(f"{x:.2f}" for x in by_set),
            f"{np.mean([line['seconds'] for line in found.values()]):.0f}",
        ]
        print(f"| {family} | {steps} | {way} | {len(pairs)} | {' | '.join(cells)} |")


def all_settings(o: argparse.Namespace) -> Iterator[Line]:
    for family in o.family:
        for steps in o.steps:
            for split in o.split:
                for dataset in o.dataset:
                    for way in o.way:
                        names = dict(family=family, way=way, dataset=dataset)
                        yield {**names, "split": split, "steps": steps}


def main() -> None:
    o = parse_arguments()
    run_or_report(o, report, all_settings(o), execute)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).strip().split("\n\n")[0])
    parser.add_argument("--family", nargs="+", default=["mean-field"])
    parser.add_argument(
        "--dataset",
        nargs="+",
        default=["yacht", "energy", "boston", "concrete", "wine_red", "kin8nm"],
    )
    parser.add_argument("--split", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--steps", type=int, nargs="+", default=[400, 1500])
    parser.add_argument("--way", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--output", type=Path, default=Path("starts.jsonl"))
    parser.add_argument("--report", type=Path, help="print tables of these runs and make none")
    return parser.parse_args()


if __name__ == "__main__":
    main()

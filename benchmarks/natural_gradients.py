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
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

for _variable in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import gpflow  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

import gpflow_deep as gd  # noqa: E402
from gpflow_deep.experiments import datasets, splits  # noqa: E402

STRUCTURES = {
    "mean-field": gd.posteriors.MeanField,
    "stripes-and-arrow": gd.posteriors.StripesAndArrow,
    "fully-coupled": gd.posteriors.FullyCoupled,
}
METHODS: dict[str, dict[str, float] | None] = {
    "Adam 0.02": dict(learning_rate=0.02),
    "Adam 0.05": dict(learning_rate=0.05),
    "Adam 0.05, natural 0.1": dict(learning_rate=0.05, natural_gradient=0.1),
    "Adam 0.05, natural 0.3": dict(learning_rate=0.05, natural_gradient=0.3),
    "Adam 0.05, natural 1": dict(learning_rate=0.05, natural_gradient=1.0),
    "L-BFGS": None,
}
CURVE = ("step", "seconds", "bound", "log_density", "rmse")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).strip().split(":")[0])
    parser.add_argument("--dataset", nargs="+", default=["boston", "concrete", "energy", "yacht"])
    parser.add_argument("--split", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--structure", nargs="+", choices=STRUCTURES, default=list(STRUCTURES))
    parser.add_argument("--method", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--hidden-dim", type=int, default=5)
    parser.add_argument("--num-inducing", type=int, default=64)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--evaluations", type=int, default=25)
    parser.add_argument("--output", type=Path, default=Path("natural_gradients.jsonl"))
    parser.add_argument("--report", type=Path, help="print a table of these runs and make none")
    return parser.parse_args()


class Recorder:
    """Scores a model now and then, and takes the time between."""

    def __init__(self, model: gd.models.DeepGP, split: dict[str, np.ndarray], at: set[int]) -> None:
        self._model, self._split, self._at = model, split, at
        self._data = (split["X"], split["Y"])
        self._noise = model.draw_noise(len(split["X"]), seed=[0, 0])
        # To score is compiled once, before the clock starts.
        self._bound = tf.function(lambda: model.elbo(self._data, self._noise), autograph=False)
        self._mixture = tf.function(
            lambda: (
                model.predict_log_density((split["Xtest"], split["Ytest"])),
                model.predict_f(split["Xtest"])[0],
            ),
            autograph=False,
        )
        self.curve: list[tuple[float, ...]] = []
        self._spent = 0.0
        self._since: float | None = None

    def __call__(self, step: int, *_: Any) -> None:
        if self._since is not None:
            self._spent += time.process_time() - self._since
        if step in self._at:
            log_density, mean = self._mixture()
            scale = float(self._split["scale"])
            errors = scale * (np.asarray(mean) - self._split["Ytest"])
            score = float(np.mean(log_density)) - np.log(scale)
            rmse = float(np.sqrt(np.mean(errors**2)))
            self.curve.append((step, self._spent, float(self._bound()), score, rmse))
        self._since = time.process_time()


def read_split(name: str, index: int) -> dict[str, np.ndarray]:
    """Standardised by the training points."""
    dataset = datasets.load(name)
    split = splits.interpolation_split(dataset, index)
    X, Y = dataset.X, dataset.Y
    x_mean, x_scale = X[split.train].mean(0), X[split.train].std(0) + 1e-12
    mean, scale = Y[split.train].mean(), Y[split.train].std()
    X, Y = (X - x_mean) / x_scale, (Y - mean) / scale
    parts = {"X": X[split.train], "Y": Y[split.train], "Xtest": X[split.test]}
    return {**parts, "Ytest": Y[split.test], "scale": scale}


def run(split: dict[str, np.ndarray], structure: str, method: str, o: argparse.Namespace) -> Any:
    X, Y = split["X"], split["Y"]
    layers = gd.layers.build_layers(X, (o.hidden_dim,) * (o.layers - 1), 1, o.num_inducing, seed=0)
    model = gd.models.DeepGP(
        layers, gpflow.likelihoods.Gaussian(0.3), posterior=STRUCTURES[structure], num_data=len(X)
    )
    steps = np.unique(np.geomspace(1, o.steps, o.evaluations).round().astype(int)).tolist()
    recorder = Recorder(model, split, set(steps))
    settings = METHODS[method]
    if settings is not None:
        gd.training.fit(
            model,
            (X, Y),
            steps=o.steps,
            progress=False,
            decay_rate=1.0,
            callback=recorder,
            **settings,
        )
    else:
        minimise_frozen(model, (X, Y), o.steps, recorder)
    return recorder.curve


def minimise_frozen(
    model: gd.models.DeepGP, data: Any, steps: int, recorder: Callable[..., None]
) -> None:
    """L-BFGS on all data, with the same draws in every evaluation; its own, not the recorder's."""
    noise = model.draw_noise(len(data[0]), seed=[1, 1])
    loss = tf.function(
        lambda: -model.maximum_log_likelihood_objective(data, noise), autograph=False
    )
    gpflow.optimizers.Scipy().minimize(
        loss,
        model.trainable_variables,
        options=dict(maxiter=steps),
        step_callback=lambda step, variables, values: _at(model, variables, values, step, recorder),
    )


def _at(model: Any, variables: Any, values: Any, step: int, recorder: Callable[..., None]) -> None:
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)
    recorder(step + 1)


def key(line: dict[str, Any]) -> tuple[Any, ...]:
    names = ("dataset", "split", "structure", "method", "layers", "hidden_dim", "num_inducing")
    return tuple(line[name] for name in (*names, "steps"))


def read(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]


def report(lines: list[dict[str, Any]]) -> None:
    """Averages over splits for each structure and method; times to the bound of Adam 0.02 at its end."""
    targets = {
        key({**line, "method": ""}): line["curve"][-1][2]
        for line in lines
        if line["method"] == "Adam 0.02"
    }
    print(
        "| data set | structure | method | splits | CPU ms a step | CPU s to Adam 0.02's bound | bound |"
        " test log density | RMSE |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for line in lines:
        groups.setdefault((line["dataset"], line["structure"], line["method"]), []).append(line)
    for names, group in sorted(groups.items()):
        rows = []
        for line in group:
            curve = np.array(line["curve"])
            target = targets.get(key({**line, "method": ""}), np.inf)
            reached = curve[curve[:, 2] >= target, 1]
            first = reached[0] if len(reached) else np.inf
            rows.append([1e3 * curve[-1, 1] / max(curve[-1, 0] - 1, 1), first, *curve[-1, 2:]])
        ms, seconds, bound, score, rmse = np.mean(rows, axis=0)
        shown = f"{seconds:.1f}" if np.isfinite(seconds) else "-"
        print(
            f"| {' | '.join(names)} | {len(group)} | {ms:.1f} | {shown} | {bound:.1f} | {score:.3f} |"
            f" {rmse:.3f} |"
        )


def main() -> None:
    o = parse_arguments()
    if o.report:
        report(read(o.report))
        return
    done = {key(line) for line in read(o.output)}
    for dataset in o.dataset:
        for index in o.split:
            for structure in o.structure:
                for method in o.method:
                    line = dict(dataset=dataset, split=index, structure=structure, method=method)
                    line |= dict(layers=o.layers, hidden_dim=o.hidden_dim)
                    line |= dict(num_inducing=o.num_inducing, steps=o.steps)
                    if key(line) in done:
                        continue
                    curve = run(read_split(dataset, index), structure, method, o)
                    with o.output.open("a") as file:
                        file.write(json.dumps({**line, "columns": CURVE, "curve": curve}) + "\n")
                    print(*line.values(), *np.round(curve[-1], 3), flush=True)


if __name__ == "__main__":
    main()

"""
What studies of many training runs share: the data of a split, a recorder whose clock stands still while a
model is scored, and results that are kept, one line of JSON a run, so that a study goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf

import gpflow_deep as gd
from gpflow_deep.estimators.scaling import Scaling
from gpflow_deep.experiments.datasets import load
from gpflow_deep.experiments.splits import interpolation_split

Line = dict[str, Any]

HELD_OUT_SHARE = 1 / 8

STRUCTURES = {
    "mean-field": gd.posteriors.MeanField,
    "stripes-and-arrow": gd.posteriors.StripesAndArrow,
    "fully-coupled": gd.posteriors.FullyCoupled,
}
SIZES = ("layers", "hidden_dim", "num_inducing", "steps")


def argument_parser(doc: str, output: str, **defaults: int) -> argparse.ArgumentParser:
    """
    :param output: default name of the file of results.
    :param defaults: of the options that :func:`sizes` reads.
    """
    parser = argparse.ArgumentParser(description=doc.strip().split("\n\n")[0])
    for name in SIZES:
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=defaults[name])
    parser.add_argument("--output", type=Path, default=Path(output))
    return parser


def sizes(o: argparse.Namespace) -> Line:
    """The part of a run's settings that its sizes are."""
    return {name: getattr(o, name) for name in SIZES}


def use_one_thread() -> None:
    """For CPU-seconds that can be compared; to be called before TensorFlow's first operation."""
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)


class Split(NamedTuple):
    """Training and test points, standardised by the training points; the targets' unit was ``scale``."""

    X: np.ndarray
    Y: np.ndarray
    Xtest: np.ndarray
    Ytest: np.ndarray
    scale: float


def read_split(dataset: str, index: int) -> Split:
    data = load(dataset)
    train, test = (getattr(interpolation_split(data, index), part) for part in ("train", "test"))
    scaling = Scaling.fit(data.X[train], data.Y[train])
    X, Y = scaling.inputs(data.X), scaling.targets(data.Y)
    return Split(X[train], Y[train], X[test], Y[test], float(scaling.Y_scale[0]))


def hold_out(split: Split, seed: int) -> Split:
    """A part of the training points in place of the test points."""
    order = np.random.default_rng(seed).permutation(len(split.X))
    held_out, rest = np.split(order, [round(HELD_OUT_SHARE * len(order))])
    return Split(split.X[rest], split.Y[rest], split.X[held_out], split.Y[held_out], split.scale)


def build(
    split: Split, settings: Line, *, likelihood_variance: float = 0.1, **options: Any
) -> gd.models.DeepGP:
    """
    A deep GP for the split, of the structure and the sizes that a run's settings name.

    :param options: of :class:`DeepGP`.
    """
    hidden_dims = (settings["hidden_dim"],) * (settings["layers"] - 1)
    return gd.models.DeepGP(
        gd.layers.build_layers(split.X, hidden_dims, 1, settings["num_inducing"], seed=0),
        gpflow.likelihoods.Gaussian(likelihood_variance),
        STRUCTURES[settings["structure"]],
        num_data=len(split.X),
        **options,
    )


def fit_by(
    chosen: gd.presets.Settings, model: Any, data: tuple[np.ndarray, np.ndarray], **options: Any
) -> gd.training.FitResult:
    """
    Train as a preset's settings say, without a progress bar.

    :param options: of :func:`gpflow_deep.training.fit`, others or in place of the settings'.
    """
    return gd.training.fit(model, data, progress=False, **{**chosen.training(), **options})


def spread_steps(steps: int, number: int) -> list[int]:
    """About so many steps from 1 to the last, evenly on a logarithmic axis."""
    return np.unique(np.geomspace(1, steps, number).round().astype(int)).tolist()


class Recorder:
    """
    To be called after every step: scores at some of them, and the CPU-seconds of this process up to there.
    They start with the first step's end, since the first step compiles.

    :param score: computes what is recorded.
    :param at: the steps after which it is.
    """

    def __init__(self, score: Callable[[], Sequence[float]], at: Iterable[int]) -> None:
        self._score, self._at = score, set(at)
        self.curve: list[tuple[float, ...]] = []
        self._spent = 0.0
        self._since: float | None = None

    def __call__(self, step: int, *_: Any) -> None:
        if self._since is not None:
            self._spent += time.process_time() - self._since
        if step in self._at:
            self.curve.append((step, self._spent, *map(float, self._score())))
        self._since = time.process_time()


class Results:
    """
    A file of JSON lines, each with the settings of a run and what came of it. A line that a kill has cut
    counts for nothing.

    :param path: of the file, which need not exist.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> list[Line]:
        if not self.path.exists():
            return []
        lines = map(_parse, self.path.read_text().splitlines())
        return [line for line in lines if line is not None]

    def run(self, settings: Line, execute: Callable[[], Line]) -> None:
        """Execute a run and keep what it returns, unless a run with these settings is there."""
        if any(settings.items() <= line.items() for line in self.read()):
            return
        line = json.dumps({**settings, **execute()})
        is_cut = self.path.exists() and not self.path.read_text().endswith("\n")
        with self.path.open("a") as file:
            file.write("\n" * is_cut + line + "\n")
        print(*settings.values(), flush=True)


def run_or_report(
    o: argparse.Namespace,
    report: Callable[[list[Line]], None],
    all_settings: Iterable[Line],
    execute: Callable[[Line], Line],
) -> None:
    """
    What the command of a study does: the tables of the runs that are in `o.report`, else the runs that are
    not in `o.output` yet.
    """
    if o.report:
        report(Results(o.report).read())
        return
    use_one_thread()
    for settings in all_settings:
        Results(o.output).run(settings, partial(execute, settings))


def _parse(line: str) -> Line | None:
    try:
        return json.loads(line)
    except json.JSONDecodeError:
        return None


def mean_and_error(values: Sequence[float], digits: int) -> str:
    """With the standard error in brackets, where there are two values or more."""
    mean = f"{np.mean(values):.{digits}f}"
    if len(values) < 2:
        return mean
    return f"{mean} ({np.std(values, ddof=1) / len(values) ** 0.5:.{digits}f})"

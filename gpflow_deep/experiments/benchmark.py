"""
Runs of the studies: train, test, write down, and go on where a kill left off.

A run splits the data, holds out part of the training points for early stopping, standardises by
what is left, trains with `gpflow_deep.training.fit` and scores the test points in original units.
Neither the scaling nor the inducing inputs see held-out or test points.
"""

from __future__ import annotations

import gc
import os
import platform
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from joblib import delayed

from gpflow_deep import metrics
from gpflow_deep.estimators.scaling import Scaling
from gpflow_deep.experiments.datasets import Dataset, load
from gpflow_deep.experiments.results import Results, Run
from gpflow_deep.experiments.scores import standardised_scores
from gpflow_deep.experiments.splits import STUDIES
from gpflow_deep.experiments.workers import in_processes, on_scheduler
from gpflow_deep.numerics.compiled import compiled
from gpflow_deep.presets import Settings, get
from gpflow_deep.presets.registry import EXACT, LINEAR
from gpflow_deep.presets.settings import CLASSES
from gpflow_deep.training import fit
from gpflow_deep.training.data import hold_out
from gpflow_deep.training.progress import fingerprint
from gpflow_deep.validation import check_positive_integer
from gpflow_deep.validation.files import check_writable

__all__ = ["execute", "plan", "run_all"]

#: Evaluations of the final objective that are averaged.
_OBJECTIVE_DRAWS = 20

_VERSIONS = ("gpflow_deep", "gpflow", "tensorflow", "tensorflow-probability", "numpy")


def plan(
    models: Sequence[str],
    datasets: Sequence[str],
    *,
    study: str = "interpolation",
    splits: Iterable[int] = (0,),
    layers: Sequence[int] = (2,),
    seed: int = 0,
    settings: Settings | None = None,
) -> list[Run]:
    """
    Every combination of models, data sets, splits and depths, each once.

    A model that cannot have as many layers as asked is run with the most that it can have.

    :param models: registered names.
    :param datasets: names of data sets.
    :param study: a name of `STUDIES`.
    :param splits: numbers of splits, from 0.
    :param layers: depths.
    :param seed: of all runs.
    :param settings: everything else; the defaults if not given.
    :raises ValueError: for a name or a split that does not exist, for exact GPs, and for settings of classes:
        targets are standardised.
    """
    if study not in STUDIES:
        raise ValueError(f"study: expected one of {', '.join(STUDIES)}, got {study!r}.")
    settings = settings or Settings()
    if settings.likelihood in CLASSES:
        raise ValueError(
            "likelihood: expected that of numbers, which the targets of all studies are, got"
            f" {settings.likelihood!r}."
        )
    if settings.num_classes:
        raise ValueError(
            f"num_classes: expected none, as targets are numbers, got {settings.num_classes}."
        )
    exact = [name for name in models if name in (*EXACT, LINEAR)]
    if exact:
        raise ValueError(
            f"models: expected ones that training.fit trains, got {exact}: exact GPs are trained by the"
            " estimators."
        )
    depths = [replace(settings, num_layers=number) for number in layers]
    registered = [get(name) for name in models]
    splits = list(splits)
    for name in datasets:
        dataset = load(name)
        for split in splits:
            STUDIES[study](dataset, split)
    runs = [
        Run(model.name, dataset, study, split, seed, model.settings(depth))
        for dataset in datasets
        for split in splits
        for model in registered
        for depth in depths
    ]
    return list(dict.fromkeys(runs))


def run_all(
    runs: Sequence[Run],
    output: Path | str,
    *,
    jobs: int = 1,
    scheduler: str | None = None,
    progress: bool = True,
    echo: Callable[[str], None] = print,
) -> list[Run]:
    """
    Execute the runs that `output` does not hold yet, and add each as it is finished.

    Called again with the same arguments after a kill, it skips the finished runs and takes up the
    interrupted ones at their last checkpoints. A run that fails, for whatever reason, is reported and left
    out, and so is one that another process is at, or that was finished with other data of the same name or in
    another float.

    :param runs: what to do, begun in this order.
    :param output: file of JSON lines (see `Results`).
    :param jobs: how many runs at a time, each in a process with an equal share of the cores, where models of
        your own are known only if importing this package registers them.
    :param scheduler: address of a Dask scheduler, whose workers do the runs in place of ``jobs``: as many
        at a time as they have threads. They see the folder of ``output``, and have in their environment
        what this process has, such as where the data are.
    :param progress: whether to show a progress bar for each run, one at a time.
    :param echo: takes the lines of the report on what is being done.
    :return: the runs that failed.
    :raises ValueError: both ``jobs`` and ``scheduler``, or no address in it.
    :raises OSError: where `output` cannot be written, or there is no such scheduler: before the first run.
        Where the system kills a process, it is a ChildProcessError.
    """
    jobs = check_positive_integer(jobs, "jobs")
    if scheduler is not None and not scheduler:  # for which Dask would start workers of its own
        raise ValueError(
            f"scheduler: expected an address such as tcp://host:8786, got {scheduler!r}."
        )
    if scheduler is not None and jobs > 1:
        raise ValueError(
            f"jobs: expected none beside a scheduler, whose workers do the runs, got {jobs}."
        )
    one_by_one = jobs == 1 and scheduler is None
    results = Results(output)
    check_writable(results.path.parent)
    if os.path.lexists(results.path):
        try:
            results.path.open("ab").close()
        except OSError as error:
            raise type(error)(
                f"{results.path}: expected a file that can be written to: {error}"
            ) from error
    failed: list[Run] = []

    def begin() -> Iterator[Any]:
        for number, run in enumerate(runs, start=1):
            heading = f"[{number}/{len(runs)}] {run}"
            # Read again for every run: another process may have finished it meanwhile.
            before = [record for record in results.read() if record["key"] == run.key]
            # Records of earlier versions do not say which data they are of, nor of which float.
            other = ""
            if before and before[0].get("data") not in (None, _fingerprint(load(run.dataset))):
                other = f"of other data called {run.dataset}"
            elif before and before[0].get("float") not in (None, _float()):
                other = f"in {before[0]['float']}, not in {_float()}"
            if other:
                echo(
                    f"{heading} failed: {results.path} has this run {other}; write to another file, or "
                    "remove its line."
                )
                failed.append(run)
            elif before:
                echo(f"{heading}: finished before")
                shutil.rmtree(results.checkpoint_dir(run.key), ignore_errors=True)
            else:
                echo(heading)
                folder = results.checkpoint_dir(run.key).resolve()
                # Runs at a time end in any order: then what is said of one names it again.
                name = "   " if one_by_one else f"{heading}:"
                yield delayed(_attempt)(name, run, folder, progress and one_by_one)

    done = (
        on_scheduler(scheduler, begin()) if scheduler is not None else in_processes(jobs, begin())
    )
    for name, run, outcome in done:
        try:
            if isinstance(outcome, str):
                raise RuntimeError(outcome)
            record, points = outcome
            results.append(run, record, points)
        except Exception as error:
            echo(f"{name} failed: {error}")
            failed.append(run)
            continue
        scores = record["metrics"]
        echo(f"{name} " + ", ".join(f"{key} {value:.4g}" for key, value in scores.items()))
        # Only now: up to the line in the file, the checkpoint is all that there is of the run.
        shutil.rmtree(results.checkpoint_dir(run.key), ignore_errors=True)
    return failed


def _attempt(name: str, run: Run, checkpoint_dir: Path, progress: bool) -> tuple[str, Run, Any]:
    """What :func:`execute` returns, or in words why it does not; in a process of its own, perhaps."""
    try:
        return name, run, execute(run, checkpoint_dir=checkpoint_dir, progress=progress)
    # A list takes days: no fault of one run, its data or the disk may cost the others.
    except Exception as error:
        return name, run, str(error) or type(error).__name__
    finally:
        gc.collect()


def execute(
    run: Run, *, checkpoint_dir: Path | str | None = None, progress: bool = True
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """
    Train and test one model.

    The record has `metrics` (test log-likelihood, RMSE, CRPS and coverage of the central 95%
    interval, all of targets in original units, those of `standardised_scores`, and the final
    objective per training point, of standardised targets), `steps`, `stopped_early`, `seconds` (of
    training, its interrupted parts included, and testing), `peak_memory_mb` (of the process so far:
    to compare memory, give each run a process of its own), `num_train`, `num_test`, a checksum of the
    `data`, the `float` of GPflow's setting and `versions`.
    The points are the test points' `rows` in the data set, `Y`, predictive `mean` and `variance`,
    and `log_density`.

    :param run: what to do.
    :param checkpoint_dir: where training keeps, and looks for, its checkpoints.
    :param progress: whether to show a progress bar.
    :raises TrainingError: where training diverges.
    :raises OSError: where the data or the checkpoints cannot be read or written.
    """
    settings = run.settings
    dataset = load(run.dataset)
    split = STUDIES[run.study](dataset, run.split)
    train, held_out = (
        np.sort(split.train[rows])
        for rows in hold_out(len(split.train), settings.validation_fraction, [run.seed, run.split])
    )
    scaling = Scaling.fit(*_rows(dataset, train))
    data = _scaled(dataset, train, scaling)

    tf.random.set_seed(run.seed)
    model = get(run.model).build(*data, settings, run.seed)
    result = fit(
        model,
        data,
        **settings.training(),
        validation_data=_scaled(dataset, held_out, scaling) if len(held_out) else None,
        seed=run.seed,
        checkpoint_dir=checkpoint_dir,
        progress=progress,
    )

    started = time.perf_counter()
    # The draws of the objective must not depend on whether training was interrupted.
    tf.random.set_seed(run.seed)
    X_test, Y_test = _rows(dataset, split.test)
    standardised = model.predict_y_mixture(
        scaling.inputs(X_test), num_samples=settings.test_samples
    )
    mixture = scaling.mixture(*(np.asarray(part) for part in standardised))
    mean, variance = metrics.mixture_moments(*mixture)
    log_density = metrics.log_density(Y_test, *mixture)
    scores = {
        "test_log_likelihood": np.mean(log_density),
        "rmse": metrics.rmse(Y_test, mean),
        "crps": np.mean(metrics.crps(Y_test, *mixture)),
        "coverage95": metrics.coverage(Y_test, *mixture, level=0.95),
        **standardised_scores(Y_test, mixture, scaling.Y_scale),
        "objective_per_point": _objective(model, data, settings.batch_size) / len(train),
    }
    record = {
        "metrics": {name: float(value) for name, value in scores.items()},
        "steps": result.steps,
        "stopped_early": result.stopped_early,
        "seconds": result.seconds + time.perf_counter() - started,
        "peak_memory_mb": _peak_memory_mb(),
        "num_train": len(train),
        "num_test": len(split.test),
        "data": _fingerprint(dataset),
        "float": _float(),
        "versions": {"python": platform.python_version(), **_versions()},
    }
    points = {
        "rows": split.test,
        "Y": Y_test,
        "mean": mean,
        "variance": variance,
        "log_density": log_density,
    }
    return record, points


def _fingerprint(dataset: Dataset) -> str:
    return fingerprint([dataset.X, dataset.Y])


def _float() -> str:
    return np.dtype(gpflow.default_float()).name


def _rows(dataset: Dataset, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return dataset.X[rows], dataset.Y[rows]


def _scaled(dataset: Dataset, rows: np.ndarray, scaling: Scaling) -> tuple[np.ndarray, np.ndarray]:
    X, Y = _rows(dataset, rows)
    return scaling.inputs(X), scaling.targets(Y)


def _objective(model: Any, data: tuple[np.ndarray, np.ndarray], batch_size: int) -> float:
    """
    The model's objective on all the data, by minibatches, averaged over some evaluations: it has noise.

    On a batch B the data's term is scaled by N / |B|; weighted by |B| / N the batches add up to the
    objective of the whole.
    """
    X, Y = data
    objective = compiled(model.maximum_log_likelihood_objective)
    total = 0.0
    for rows in _chunks(np.arange(len(X)), batch_size):
        batch = (tf.convert_to_tensor(X[rows]), tf.convert_to_tensor(Y[rows]))
        value = np.mean([objective(batch) for _ in range(_OBJECTIVE_DRAWS)])
        total += len(rows) / len(X) * float(value)
    return total


def _chunks(array: np.ndarray, size: int) -> list[np.ndarray]:
    return [array[start : start + size] for start in range(0, len(array), size)]


def _peak_memory_mb() -> float | None:
    if sys.platform == "win32":
        return None
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


def _versions() -> dict[str, str | None]:
    versions: dict[str, str | None] = {}
    for package in _VERSIONS:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = None
    return versions

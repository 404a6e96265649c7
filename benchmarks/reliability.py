"""
Reliability: trainings on data that are hard, kills in the middle of writes, damaged files, and bad calls.

    python benchmarks/reliability.py --output benchmarks/results/reliability.jsonl \\
        --trainings 300 --kills 20 --damages 40 --calls 600 --table benchmarks/results/reliability.md

Every case adds a line to the output; called again, the command goes on where it was stopped, and with larger
numbers it adds to what is there. `--table` writes what came of them. An outcome is one of

- fine: finite parameters and predictions; the same numbers after a kill; damage noticed and passed over;
- in words: a refusal or failure whose message names what is wrong;
- raw: an error of another kind, or one that names nothing (a defect);
- silent: a result that is not finite, or other than it would have been (a defect).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import re
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import gpflow
import numpy as np
from gpflow.utilities import read_values

from gpflow_deep import presets, training
from gpflow_deep.estimators import DeepGPRegressor
from gpflow_deep.experiments.results import Results, Run
from gpflow_deep.presets import Settings
from gpflow_deep.training import TrainingError

FINE, IN_WORDS, RAW, SILENT = "fine", "in words", "raw", "silent"
OUTCOMES = (FINE, IN_WORDS, RAW, SILENT)

Case = dict[str, Any]


# ---- trainings


def _grid(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    X = np.linspace(-3.0, 3.0, n)[:, None]
    return X, np.sin(2.0 * X)


def _labels(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    X = rng.normal(size=(n, 2))
    return X, (X[:, :1] > 0).astype(float)


def _collinear(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    column = rng.normal(size=(n, 1))
    return np.hstack([column, 2.0 * column, -column]), np.sin(column)


def _duplicates(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    X = np.repeat(rng.normal(size=(max(2, n // 10), 2)), 10, axis=0)[:n]
    return X, np.sin(X[:, :1]) + rng.normal(size=(len(X), 1))


def _outliers(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    X, Y = rng.normal(size=(n, 2)), rng.standard_t(1.0, size=(n, 1))
    return X, Y / np.abs(Y).max() * 20.0


def _constant(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    X = rng.normal(size=(n, 3))
    X[:, 1] = 1.0
    return X, X[:, :1] ** 2


def _unscaled(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    X = rng.normal(size=(n, 2)) * [1e4, 1e-3] + [1e5, 0.0]
    return X, 1e4 * np.sin(X[:, :1] / 1e4)


def _wide(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    X = rng.normal(size=(n, 30))
    return X, X[:, :1] + 0.1 * rng.normal(size=(n, 1))


DATA = {
    function.__name__.removeprefix("_"): function
    for function in (
        _grid,
        _labels,
        _collinear,
        _duplicates,
        _outliers,
        _constant,
        _unscaled,
        _wide,
    )
}


def trainings() -> Iterator[Case]:
    """Families x data sets x dtypes, over and over with other seeds and step sizes."""
    seed = 0
    while True:
        for data in DATA:
            for family in presets.names():
                for dtype in ("float64", "float32"):
                    yield {"family": family, "data": data, "dtype": dtype, "seed": seed}
        seed += 1


def train(case: Case, steps: int = 60) -> tuple[str, str]:
    rng = np.random.default_rng(case["seed"])
    X, Y = DATA[case["data"]](rng, int(rng.integers(12, 80)))
    settings = Settings(
        num_layers=int(rng.integers(1, 4)),
        hidden_dim=2,
        num_inducing=int(min(8, len(X))),
        num_samples=2,
        likelihood_variance=float(10.0 ** rng.uniform(-4, 0)),
    )
    with gpflow.config.as_context(gpflow.config.Config(float=getattr(np, case["dtype"]))):
        X, Y = X.astype(case["dtype"]), Y.astype(case["dtype"])
        model = presets.build(case["family"], X, Y, settings, case["seed"])
        learning_rate = float(10.0 ** rng.uniform(-3, -0.5))
        result = training.fit(
            model,
            (X, Y),
            steps=steps,
            batch_size=32,
            learning_rate=learning_rate,
            seed=case["seed"],
            progress=False,
        )
        mean, variance = (np.asarray(part) for part in model.predict_y(X))
    values = [result.history["loss"], mean, variance, *map(np.asarray, read_values(model).values())]
    if not all(np.isfinite(value).all() for value in values) or (variance <= 0).any():
        return SILENT, "not finite, or a variance of zero"
    return FINE, ""


# ---- kills


def _fit_in(folder: Path) -> np.ndarray:
    """A training with checkpoints; what it comes to."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 1))
    kernel = gpflow.kernels.SquaredExponential()
    model = gpflow.models.SVGP(kernel, gpflow.likelihoods.Gaussian(), X[:4].copy(), num_data=20)
    training.fit(
        model,
        (X, np.sin(X)),
        steps=8,
        batch_size=5,
        learning_rate=0.1,
        checkpoint_dir=folder / "checkpoints",
        checkpoint_every=2,
        progress=False,
    )
    return np.concatenate([np.ravel(value) for value in read_values(model).values()])


def _record_in(folder: Path) -> np.ndarray:
    """Finished runs written to a results file; what it then holds."""
    results = Results(folder / "results.jsonl")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a line that was cut: what it is about
        done = {record["split"] for record in results.read()}
        for split in range(4):
            if split not in done:
                run = Run("model", "data", "interpolation", split, 0, Settings())
                results.append(run, {"value": split / 3}, {"Y": np.full((2, 1), split)})
        records = results.read()
    points = [results.points(record["key"])["Y"].ravel() for record in records]  # type: ignore[index]
    return np.concatenate([[record["value"] for record in records], *points])


WRITERS: dict[str, Callable[[Path], np.ndarray]] = {"checkpoints": _fit_in, "results": _record_in}

_WRITES = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate")


def _child(writer: str, folder: Path, last_write: int | None, output: Path) -> None:
    """Run a writer in this process, and kill it at a write; else leave its numbers, and of what writes."""
    count = 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal count
        if event not in _WRITES or not str(arguments[0]).startswith(str(folder)):
            return
        if event == "open" and not (arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR):
            return
        count += 1
        if count == last_write:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    values = WRITERS[writer](folder)
    np.savez(output, values=values, count=count)


def _in_a_process(writer: str, folder: Path, last_write: int | None, output: Path) -> int:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])  # TensorFlow is imported once
    process = context.Process(target=_child, args=(writer, folder, last_write, output))
    process.start()
    process.join()
    return int(process.exitcode or 0)


@cache
def _whole(writer: str) -> tuple[np.ndarray, int]:
    """The numbers of a run without a kill, and how often it writes."""
    with tempfile.TemporaryDirectory() as name:
        folder, output = Path(name).resolve() / "whole", Path(name, "output.npz")
        folder.mkdir()
        if _in_a_process(writer, folder, None, output):
            raise RuntimeError("the run without a kill failed")
        with np.load(output) as file:
            return file["values"], int(file["count"])


def kills() -> Iterator[Case]:
    """Every writer, killed at one of its writes, drawn by the seed, and run again to the end."""
    seed = 0
    while True:
        for writer in WRITERS:
            yield {"writer": writer, "seed": seed}
        seed += 1


def kill(case: Case) -> tuple[str, str]:
    expected, count = _whole(case["writer"])
    at = 1 + int(np.random.default_rng(case["seed"]).integers(count))
    with tempfile.TemporaryDirectory() as name:
        folder, output = Path(name).resolve() / "killed", Path(name, "output.npz")
        folder.mkdir()
        if _in_a_process(case["writer"], folder, at, output) != -signal.SIGKILL:
            return RAW, f"it was not killed at write {at} of {count}"
        if _in_a_process(case["writer"], folder, None, output):
            return RAW, f"after a kill at write {at} of {count} it does not go on"
        with np.load(output) as file:
            same = np.array_equal(file["values"], expected)
    return (FINE, "") if same else (SILENT, f"other numbers after a kill at write {at} of {count}")


# ---- damages


def damages() -> Iterator[Case]:
    """One file of a checkpoint, drawn by the seed, cut or with a byte of it changed."""
    seed = 0
    while True:
        for damage in ("cut", "flipped", "missing"):
            yield {"damage": damage, "seed": seed}
        seed += 1


def spoil(case: Case) -> tuple[str, str]:
    rng = np.random.default_rng([case["seed"], len(case["damage"])])
    with tempfile.TemporaryDirectory() as name:
        whole, damaged = Path(name, "whole"), Path(name, "damaged")
        expected = _fit_in(whole)
        shutil.copytree(whole, damaged)
        files = sorted(path for path in damaged.rglob("*") if path.is_file())
        path = files[rng.integers(len(files))]
        content = bytearray(path.read_bytes())
        place = int(rng.integers(len(content)))
        if case["damage"] == "missing":
            path.unlink()
        elif case["damage"] == "cut":
            path.write_bytes(content[:place])
        else:
            content[place] ^= 1 << int(rng.integers(8))
            path.write_bytes(content)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            values = _fit_in(damaged)
        if not np.array_equal(values, expected):
            return SILENT, f"other numbers with {path.name} {case['damage']}"
        latest = path.parent.name == "step-8"
        if latest and not any("is damaged" in str(warning.message) for warning in caught):
            return SILENT, f"no word of {path.name} {case['damage']}"
    return FINE, ""


# ---- bad calls

BAD: dict[str, Any] = {
    "nan": np.nan,
    "inf": np.inf,
    "negative": -1,
    "zero": 0,
    "half": 0.5,
    "text": "text",
    "none": None,
    "true": True,
    "empty": np.zeros((0, 2)),
    "vector of text": np.array(["a", "b"]),
    "complex": np.full((12, 2), 1j),
    "nan matrix": np.full((12, 2), np.nan),
    "cube": np.zeros((2, 3, 4)),
    "object": object(),
    "list of lists": [[1.0], [2.0, 3.0]],
    "huge": 10**30,
}


def _data() -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(0).normal(size=(12, 2))
    return X, np.sin(X[:, :1])


def _fit(X: Any, Y: Any, **arguments: Any) -> Any:
    inputs, _ = _data()
    kernel = gpflow.kernels.SquaredExponential()
    model = gpflow.models.SVGP(kernel, gpflow.likelihoods.Gaussian(), inputs[:4], num_data=None)
    return training.fit(model, (X, Y), **{"steps": 1, "progress": False, **arguments}).history[
        "loss"
    ]


def _regressor(X: Any, Y: Any, **arguments: Any) -> Any:
    options = {"num_inducing": 4, "steps": 1, **arguments}
    return DeepGPRegressor("svgp", **options).fit(X, Y).predict(_data()[0])


#: Callables with the arguments that may go wrong, at values that are right.
CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "Settings": (
        lambda **arguments: list(Settings(**arguments).identity().values()),
        {name: value for name, value in Settings().identity().items()},
    ),
    "training.fit": (
        _fit,
        {
            "X": _data()[0],
            "Y": _data()[1],
            "steps": 1,
            "batch_size": 4,
            "seed": 0,
            "learning_rate": 0.01,
            "decay_rate": 0.9,
            "decay_steps": 5,
            "natural_gradient": 0.1,
            "validation_fraction": 0.2,
            "validate_every": 2,
            "patience": 1,
            "checkpoint_every": 1,
            "optimizer": None,
            "callback": None,
            "monitor": None,
        },
    ),
    "DeepGPRegressor": (_regressor, {"X": _data()[0], "Y": _data()[1], "random_state": 0}),
}


def calls() -> Iterator[Case]:
    """Every argument of every callable at every bad value: a list with an end."""
    for name, (_, arguments) in CALLS.items():
        for argument in arguments:
            for bad in BAD:
                yield {"call": name, "argument": argument, "bad": bad}


def call(case: Case) -> tuple[str, str]:
    function, arguments = CALLS[case["call"]]
    given = {name: value for name, value in arguments.items() if value is not None}
    result = function(**{**given, case["argument"]: BAD[case["bad"]]})
    if not np.isfinite(np.asarray(result, dtype=float)).all():
        return SILENT, "accepted, with a result that is not finite"
    return FINE, "accepted"


# ---- the campaign

KINDS: dict[str, tuple[Callable[[], Iterator[Case]], Callable[[Case], tuple[str, str]]]] = {
    "trainings": (trainings, train),
    "kills": (kills, kill),
    "damages": (damages, spoil),
    "calls": (calls, call),
}


def judge(function: Callable[[Case], tuple[str, str]], case: Case) -> tuple[str, str]:
    """The outcome of a case, and what was said."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return function(case)
    except Exception as error:  # raw ones are what the campaign looks for
        said = f"{type(error).__name__}: {str(error)[:300]}"
        expected = isinstance(error, ValueError | TypeError | TrainingError)
        # The argument, and what was expected of it; or the step, and why it failed.
        named = re.search(
            rf"\b{case.get('argument', 'Training failed at step [0-9]+')}\b.*: ", said
        )
        return IN_WORDS if expected and named else RAW, said


def run(output: Path, numbers: dict[str, int], seconds: float = np.inf) -> list[dict[str, Any]]:
    """
    Go through the first so many cases of each kind, save those that the output holds already.

    :return: All lines of the output.
    """
    lines = (
        [json.loads(line) for line in output.read_text().splitlines()] if output.exists() else []
    )
    done = {line["key"] for line in lines}
    started = time.perf_counter()
    output.parent.mkdir(parents=True, exist_ok=True)
    with output.open("a") as file:
        for kind, number in numbers.items():
            cases, function = KINDS[kind]
            for _, case in zip(range(number), cases(), strict=False):
                text = json.dumps({"kind": kind, **case}, sort_keys=True)
                key = hashlib.sha256(text.encode()).hexdigest()[:16]
                if key in done or time.perf_counter() - started > seconds:
                    continue
                outcome, message = judge(function, case)
                lines.append(
                    {"key": key, "kind": kind, **case, "outcome": outcome, "said": message}
                )
                file.write(json.dumps(lines[-1]) + "\n")
                file.flush()
    return lines


def table(lines: list[dict[str, Any]]) -> str:
    """Outcomes of each kind by what tells its cases apart, as Markdown."""
    groups = {"trainings": ("family", "dtype"), "calls": ("call",)}
    counts: dict[tuple[str, ...], Counter[str]] = {}
    for line in lines:
        group = (line["kind"], *(line[name] for name in groups.get(line["kind"], ())))
        counts.setdefault(group, Counter())[line["outcome"]] += 1
    rows = [("cases", "number", *OUTCOMES), ("---",) + ("---:",) * (1 + len(OUTCOMES))]
    for group, count in sorted(counts.items()):
        numbers = [count.total(), *(count[outcome] for outcome in OUTCOMES)]
        rows.append((", ".join(group), *map(str, numbers)))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--output", type=Path, required=True, help="file of JSON lines")
    for kind in KINDS:
        parser.add_argument(f"--{kind}", type=int, default=0, help="how many of the cases")
    parser.add_argument("--seconds", type=float, default=np.inf, help="begin no case after these")
    parser.add_argument("--table", type=Path, help="where to write the table of all outcomes")
    options = parser.parse_args()
    numbers = {kind: getattr(options, kind) for kind in KINDS}
    lines = run(options.output, numbers, options.seconds)
    print(table(lines))
    if options.table:
        options.table.write_text(table(lines))


if __name__ == "__main__":
    main()

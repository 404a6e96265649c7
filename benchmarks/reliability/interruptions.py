"""Kills in the middle of writes, and damaged files."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
from gpflow.utilities import read_values

from gpflow_deep import training
from gpflow_deep.experiments.results import Results, Run
from gpflow_deep.presets import Settings

from .outcomes import FINE, RAW, SILENT, Case, Outcome


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


def kill(case: Case) -> Outcome:
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


def damages() -> Iterator[Case]:
    """One file of a checkpoint, drawn by the seed, cut or with a byte of it changed."""
    seed = 0
    while True:
        for damage in ("cut", "flipped", "missing"):
            yield {"damage": damage, "seed": seed}
        seed += 1


def spoil(case: Case) -> Outcome:
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

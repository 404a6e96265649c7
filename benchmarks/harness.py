"""
What the benchmarks of one step share. A script measures a case where it is called with ``--child CASE``, and
prints the figures as one line of JSON; without it, it is the parent, which runs a process for every case:
its peak memory is then its own, and it starts with the environment that TensorFlow reads on import.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

Case = TypeVar("Case")

ENVIRONMENT = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    # GPflux needs it, and it spares a process the memory of Keras 3: the same for all.
    "TF_USE_LEGACY_KERAS": "1",
}
THREADS = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS")


def argument_parser(doc: str, *, steps: int, rounds: int = 3) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=doc.strip().splitlines()[0])
    parser.add_argument("--steps", type=int, default=steps, help="timed steps of a round")
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--jit", action="store_true", help="compile the step with XLA")
    parser.add_argument("--child", type=json.loads, help=argparse.SUPPRESS)
    return parser


def child_command(
    script: str | Path,
    case: Sequence[Any],
    options: Sequence[str] | None = None,
    python: str = sys.executable,
) -> list[str]:
    """The command that measures a case with these options of the script, or those of this process."""
    options = sys.argv[1:] if options is None else options
    return [python, str(script), *options, "--child", json.dumps(case)]


def run_rounds(
    commands: Mapping[Case, Sequence[str]], rounds: int, *, one_thread: bool = True
) -> dict[Case, dict[str, float]]:
    """
    The median over rounds of every figure of each case. Machines are noisy, so the cases take turns: a slow
    minute is then shared by all. A case that fails is left out, with one line that says why.
    """
    environment = {**os.environ, **ENVIRONMENT}
    if one_thread:
        environment.update(dict.fromkeys(THREADS, "1"))
    runs: dict[Case, list[dict[str, float]]] = {case: [] for case in commands}
    for _ in range(rounds):
        for case in list(runs):
            process = subprocess.run(
                commands[case], env=environment, capture_output=True, text=True
            )
            if process.returncode:
                reason = process.stderr.strip() or f"exit status {process.returncode}"
                name = " ".join(map(str, case)) if isinstance(case, tuple) else case
                print(f"{name} left out: {reason.splitlines()[-1]}", file=sys.stderr, flush=True)
                del runs[case]
                continue
            runs[case].append(json.loads(process.stdout.splitlines()[-1]))
    return {
        case: {figure: statistics.median(line[figure] for line in lines) for figure in lines[0]}
        for case, lines in runs.items()
    }


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(step: Callable[[], object], steps: int, baseline_mb: float = 0.0) -> dict[str, float]:
    """
    Times of a step in ms, CPU time being that of the whole process, and the peak memory in MB, also less
    ``baseline_mb``, what the process had used before.
    """
    for _ in range(3):
        step()
    walls, cpus = [], []
    for _ in range(steps):
        wall, cpu = time.perf_counter(), time.process_time()
        step()
        walls.append(1e3 * (time.perf_counter() - wall))
        cpus.append(1e3 * (time.process_time() - cpu))
    peak = peak_mb()
    return {
        "wall": statistics.median(walls),
        "least_wall": min(walls),
        "cpu": statistics.median(cpus),
        "least_cpu": min(cpus),
        "peak_mb": peak,
        "memory": peak - baseline_mb,
    }


def adam_step(
    loss: Callable[[], Any],
    variables: Sequence[Any],
    jit: bool = False,
    optimizer: Any = None,
) -> Callable[[], object]:
    """A step as `gpflow_deep.training.fit` takes it, or by a peer's optimiser."""
    import tensorflow as tf

    if optimizer is None:
        from gpflow_deep.training.adam import Adam

        optimizer = Adam(0.005)
    optimizer.build(variables)

    @tf.function(jit_compile=jit, autograph=False)
    def step() -> tf.Tensor:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            value = loss()
        optimizer.apply_gradients(zip(tape.gradient(value, variables), variables))
        return value

    return lambda: step().numpy()

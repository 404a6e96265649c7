"""
Steps a second of one worker and of several on this machine, each a process with one thread, with the same
batch in all.

    python benchmarks/workers.py --workers 1 2 --output workers.jsonl
    python benchmarks/workers.py --report workers.jsonl

The workers talk to each other by local addresses, as they would by a network. Time starts after the first
steps, which compile. Beside the time on the wall, which other programs share, there is CPU time of each one:
efficiency is that of a single one over the sum of all. Runs that are there are not repeated.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import gpflow
import numpy as np
import tensorflow as tf
from runs import STRUCTURES, Line, Results, use_one_thread

import gpflow_deep as gd

SIZES = dict(layers=3, hidden_dim=5, num_inducing=128, batch_size=512, num_samples=5)
WARM_UP = 20


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).strip().split("\n\n")[0])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--structure", choices=STRUCTURES, nargs="+", default=["mean-field"])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--output", type=Path, default=Path("workers.jsonl"))
    parser.add_argument("--report", type=Path, help="print a table of these runs and make none")
    parser.add_argument("--settings", help="of a run that this process is a worker of")
    return parser.parse_args()


def work(settings: Line) -> Line:
    """Train, as one of the workers that TF_CONFIG names; its time a step."""
    use_one_thread()
    strategy = tf.distribute.MultiWorkerMirroredStrategy() if "TF_CONFIG" in os.environ else None
    rng = np.random.default_rng(0)
    X = rng.normal(size=(10_000, 8))
    Y = np.sin(X[:, :1]) * X[:, 1:2] + 0.1 * rng.normal(size=(len(X), 1))

    def build() -> gd.models.DeepGP:
        hidden_dims = (settings["hidden_dim"],) * (settings["layers"] - 1)
        layers = gd.layers.build_layers(X, hidden_dims, 1, settings["num_inducing"], seed=0)
        return gd.models.DeepGP(
            layers,
            gpflow.likelihoods.Gaussian(0.1),
            STRUCTURES[settings["structure"]],
            num_samples=settings["num_samples"],
        )

    if strategy is None:
        model = build()
    else:
        with strategy.scope():
            model = build()
    marks: dict[int, tuple[float, float]] = {}

    def mark(step: int) -> None:
        marks[step] = (time.process_time(), time.perf_counter())

    steps = WARM_UP + settings["steps"]
    result = gd.training.fit(
        model,
        (X, Y),
        strategy=strategy,
        steps=steps,
        batch_size=settings["batch_size"],
        progress=False,
        monitor=mark,
    )
    cpu, wall = np.subtract(marks[steps], marks[WARM_UP]) / settings["steps"]
    return dict(cpu_ms=1e3 * cpu, wall_ms=1e3 * wall, last_loss=float(result.history["loss"][-1]))


def run_workers(settings: Line) -> Line:
    """One run by as many processes as the settings say."""
    command = [sys.executable, str(Path(__file__)), "--settings", json.dumps(settings)]
    addresses = _addresses(settings["workers"])
    workers = []
    for index in range(len(addresses)):
        task = dict(cluster={"worker": addresses}, task={"type": "worker", "index": index})
        config = {"TF_CONFIG": json.dumps(task)} if len(addresses) > 1 else {}
        environment = {**os.environ, **config}
        workers.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE))
    written = [worker.communicate()[0] for worker in workers]
    found = [json.loads(text.splitlines()[-1]) for text in written]
    return {name: [line[name] for line in found] for name in found[0]}


def _addresses(number: int) -> list[str]:
    sockets = [socket.create_server(("localhost", 0)) for _ in range(number)]
    addresses = [f"localhost:{each.getsockname()[1]}" for each in sockets]
    for each in sockets:
        each.close()
    return addresses


def report(lines: list[Line]) -> str:
    table = [
        "| posterior | workers | wall ms a step | CPU ms a step of each | efficiency by CPU time |",
        "|---|---|---|---|---|",
    ]
    for line in lines:
        alone = next(
            each
            for each in lines
            if each["workers"] == 1 and each["structure"] == line["structure"]
        )
        each_one = " and ".join(f"{cpu:.1f}" for cpu in line["cpu_ms"])
        efficiency = alone["cpu_ms"][0] / sum(line["cpu_ms"])
        table.append(
            f"| {line['structure']} | {line['workers']} | {max(line['wall_ms']):.1f} | {each_one} |"
            f" {efficiency:.2f} |"
        )
    return "\n".join(table)


def main() -> None:
    o = parse_arguments()
    if o.settings:
        print(json.dumps(work(json.loads(o.settings))), flush=True)
        return
    if o.report:
        print(report(Results(o.report).read()))
        return
    results = Results(o.output)
    for structure in o.structure:
        for number in o.workers:
            settings = dict(structure=structure, workers=number, steps=o.steps, **SIZES)
            results.run(settings, lambda settings=settings: run_workers(settings))


if __name__ == "__main__":
    main()

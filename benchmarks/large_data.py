"""
Memory and time of training on rows that lie on the disk, against their number, and of predicting all of them
to a file.

    python benchmarks/large_data.py --rows 100000 1000000 10000000 --folder /tmp --output large_data.jsonl
    python benchmarks/large_data.py --report large_data.jsonl

Each number of rows has a process of its own, since the peak of memory is a process's: it writes synthetic
rows [N, 8] and targets piece by piece, finds scales and inducing inputs in one pass each, trains, reads
minibatches without training, trains as many steps on rows that are in memory, and predicts. Runs that are
there are not repeated.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from runs import Line, Results, use_one_thread
from sklearn.preprocessing import StandardScaler

import gpflow_deep as gd

NUM_INPUTS = 8
PIECE = 100_000
SIZES = dict(layers=2, hidden_dim=5, num_inducing=32, batch_size=2048)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).strip().split("\n\n")[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[10**5, 10**6, 10**7])
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--predicted", type=int, default=200_000, help="rows predicted, at most")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--output", type=Path, default=Path("large_data.jsonl"))
    parser.add_argument("--report", type=Path, help="print a table of these runs and make none")
    return parser.parse_args()


def write_rows(path: Path, num_rows: int) -> None:
    """Inputs and a target that is a bent function of two of them, in one file of N rows."""
    rng = np.random.default_rng(0)

    def pieces() -> Iterator[np.ndarray]:
        for start in range(0, num_rows, PIECE):
            X = rng.normal(3.0, 2.0, size=(min(PIECE, num_rows - start), NUM_INPUTS))
            y = np.sin(X[:, 0]) * np.abs(X[:, 1]) + 0.1 * rng.standard_normal(len(X))
            yield np.column_stack([X, y])

    write_array(path, (num_rows, NUM_INPUTS + 1), pieces())


def write_array(path: Path, shape: tuple[int, int], pieces: Iterator[np.ndarray]) -> None:
    """A file of NumPy's from its rows, of which no more than a piece is in memory."""
    with path.open("wb") as file:
        header = {"descr": "<f8", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        for piece in pieces:
            piece.tofile(file)


def measure(settings: Line, folder: Path) -> Line:
    """One run, in a process of its own."""
    use_one_thread()
    num_rows = settings["rows"]
    with tempfile.TemporaryDirectory(dir=folder) as own:
        path = Path(own) / "rows.npy"
        write_rows(path, num_rows)
        rows = np.load(path, mmap_mode="r")
        stream = gd.training.Stream((rows[:, :NUM_INPUTS], rows[:, NUM_INPUTS:]))
        before = _peak()

        started = time.process_time()
        X_scaler, Y_scaler = StandardScaler(), StandardScaler()
        for X, Y in stream:
            X_scaler.partial_fit(X)
            Y_scaler.partial_fit(Y)
        scaled = stream.map(lambda X, Y: (X_scaler.transform(X), Y_scaler.transform(Y)))
        sample = scaled.sample(10_000)
        prepared = time.process_time() - started

        streamed = train(sample, scaled, num_rows, settings)
        trained = _peak()
        predicted = predict(streamed.pop("model"), scaled, Y_scaler, own, settings)
        at_the_end = _peak()
        read = read_only(scaled, settings)
        in_memory = train(sample, sample, len(sample[0]), settings | {"steps": 500})
        del in_memory["model"]
        return {
            "cpu_seconds_to_prepare": prepared,
            "peak_mb_before": before,
            "peak_mb_trained": trained,
            "peak_mb_predicted": at_the_end,
            "streamed": streamed,
            "in_memory": in_memory,
            "rows_per_second_read": read,
            "rows_per_second_predicted": predicted,
        }


def train(sample: Any, data: Any, num_data: int, settings: Line) -> Line:
    """A model with inducing inputs from a sample, and the time of its steps after the first."""
    tf.random.set_seed(0)
    layers = gd.layers.build_layers(
        sample[0], (settings["hidden_dim"],), 1, settings["num_inducing"], seed=0
    )
    model = gd.models.DeepGP(
        layers,
        gpflow.likelihoods.Gaussian(0.1),
        gd.posteriors.MeanField,
        num_samples=1,
        num_data=num_data,
    )
    marks: list[tuple[float, float]] = []

    def mark(step: int) -> None:
        if step in (1, settings["steps"]):
            marks.append((time.process_time(), time.perf_counter()))

    result = gd.training.fit(
        model,
        data,
        steps=settings["steps"],
        batch_size=settings["batch_size"],
        learning_rate=0.01,
        progress=False,
        monitor=mark,
    )
    (own, wall) = np.subtract(marks[1], marks[0]) / (settings["steps"] - 1)
    loss = float(np.mean(result.history["loss"][-100:]) / num_data)
    return {"model": model, "cpu_ms": 1e3 * own, "wall_ms": 1e3 * wall, "loss_per_row": loss}


def read_only(stream: Any, settings: Line) -> float:
    """Rows of minibatches a CPU-second, without training."""
    size, count = settings["batch_size"], 500
    batches = iter(gd.training.minibatches(stream, size))
    next(batches)
    started = time.process_time()
    for _ in range(count):
        next(batches)
    return count * size / (time.process_time() - started)


def predict(model: Any, stream: Any, Y_scaler: Any, folder: str, settings: Line) -> float:
    """Rows a CPU-second whose mean and variance are written to a file."""
    posterior = model.posterior()
    moments = tf.function(posterior.predict_y, autograph=False, reduce_retracing=True)
    number = min(stream.num_data, settings["predicted"])

    def pieces() -> Iterator[np.ndarray]:
        left = number
        for X, _ in stream:
            mean, variance = moments(X[:left])
            yield np.hstack([Y_scaler.inverse_transform(mean), Y_scaler.var_ * variance])
            left -= len(mean)
            if not left:
                return

    started = time.process_time()
    write_array(Path(folder) / "predictions.npy", (number, 2), pieces())
    return number / (time.process_time() - started)


def _peak() -> float:
    """Of this process's memory so far, with what it has mapped, in MB; without that of what started it."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def report(lines: list[Line]) -> str:
    table = [
        "| rows | file MB | peak MB before | trained | predicted | CPU ms a step, streamed | in memory"
        " | rows read a CPU-second | predicted |",
        "|" + "---|" * 9,
    ]
    for line in sorted(lines, key=lambda line: line["rows"]):
        cells = [
            f"{line['rows']:,}",
            f"{line['rows'] * (NUM_INPUTS + 1) * 8 / 1e6:.0f}",
            f"{line['peak_mb_before']:.0f}",
            f"{line['peak_mb_trained']:.0f}",
            f"{line['peak_mb_predicted']:.0f}",
            f"{line['streamed']['cpu_ms']:.2f}",
            f"{line['in_memory']['cpu_ms']:.2f}",
            f"{line['rows_per_second_read']:,.0f}",
            f"{line['rows_per_second_predicted']:,.0f}",
        ]
        table.append(f"| {' | '.join(cells)} |")
    return "\n".join(table)


def main() -> None:
    o = parse_arguments()
    if o.report:
        print(report(Results(o.report).read()))
        return
    results = Results(o.output)
    for num_rows in o.rows:
        settings = dict(rows=num_rows, steps=o.steps, predicted=o.predicted, **SIZES)

        def execute(settings: Line = settings) -> Line:
            with get_context("spawn").Pool(1) as pool:
                return pool.apply(measure, (settings, o.folder))

        results.run(settings, execute)


if __name__ == "__main__":
    main()

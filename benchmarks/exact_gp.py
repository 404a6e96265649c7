"""
What each choice in the exact GP's fit is worth, on training rows that are held out.

    python benchmarks/exact_gp.py --output exact_gp.jsonl
    python benchmarks/exact_gp.py --report exact_gp.jsonl

Every run adds one JSON line to the output; runs that are there are not repeated. A fit has the seconds that
the estimators' default has for it in a minute, of processor time.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from panel import MOST_ROWS, REGRESSION, SELDOM_SEEN
from runs import Line, hold_out, mean_and_error, read_split, run_or_report, use_one_thread

from gpflow_deep.estimators import evidence
from gpflow_deep.estimators.fitting import fit_family
from gpflow_deep.estimators.rows import Rows
from gpflow_deep.presets import exact, recommended

SECONDS = 12.0
#: What is put in the place of what the package has, by module and name.
WITHOUT: dict[str, tuple[Any, str, Any]] = {
    "priors": (exact, "_log_normal", lambda *_: None),
    "Matern-3/2": (evidence, "_KERNELS", ("matern52", "rbf")),
    "last resort": (evidence, "_NOTHING_BUT_NOISE", np.inf),
}


def execute(settings: Line) -> Line:
    """One fit, scored."""
    use_one_thread()
    time.perf_counter = time.process_time  # by which the time limit goes
    split = hold_out(read_split(settings["dataset"], settings["split"]), seed=0)
    X, Y = split.X[:MOST_ROWS], split.Y[:MOST_ROWS]
    rows = Rows(X, Y, np.ones(len(X)))
    started = time.process_time()
    with ExitStack() as stack:
        if settings["without"]:
            stack.enter_context(mock.patch.object(*WITHOUT[settings["without"]]))
        fitted = fit_family(
            "gp", recommended("gp", *X.shape), rows, None, 1, seed=0, seconds=SECONDS
        )
    seconds = time.process_time() - started
    density = np.mean(fitted.log_density(split.Xtest, split.Ytest))
    return dict(
        log_density=float(density - np.log(split.scale)),
        kernel=fitted.settings.kernel,
        noise=float(fitted.model.likelihood.variance.numpy()),
        seconds=seconds,
    )


def report(lines: list[Line]) -> None:
    """What is gained by each choice, the mean over runs with a standard error."""
    found: dict[str, dict[tuple[str, int], float]] = defaultdict(dict)
    for line in lines:
        found[line["without"]][line["dataset"], line["split"]] = line["log_density"]
    datasets = list(dict.fromkeys(line["dataset"] for line in lines))
    print(f"| choice | runs | all | median | {' | '.join(datasets)} |")
    print("|---" * (4 + len(datasets)) + "|")
    for choice in WITHOUT:
        gains = {
            key: found[""][key] - density
            for key, density in found[choice].items()
            if key in found[""]
        }
        of_sets = [[gain for (name, _), gain in gains.items() if name == d] for d in datasets]
        cells = [f"{np.mean(of_set):.3f}" if of_set else "" for of_set in of_sets]
        every = list(gains.values())
        mean, median = mean_and_error(every, 3), f"{np.median(every):.3f}"
        print(f"| {choice} | {len(gains)} | {mean} | {median} | {' | '.join(cells)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).strip().split("\n\n")[0])
    parser.add_argument("--without", nargs="+", choices=["", *WITHOUT], default=["", *WITHOUT])
    parser.add_argument("--dataset", nargs="+", default=[*REGRESSION, *SELDOM_SEEN])
    parser.add_argument("--split", type=int, nargs="+", default=[0])
    parser.add_argument("--output", type=Path, default=Path("exact_gp.jsonl"))
    parser.add_argument("--report", type=Path, help="print tables of these runs and make none")
    o = parser.parse_args()

    def all_settings() -> Iterator[Line]:
        for split in o.split:
            for dataset in o.dataset:
                for without in o.without:
                    yield dict(dataset=dataset, split=split, without=without)

    run_or_report(o, report, all_settings(), execute)


if __name__ == "__main__":
    main()

"""
What the priors of the exact GP's hyperparameters are worth, on training rows that are held out.

    python benchmarks/priors.py --output priors.jsonl
    python benchmarks/priors.py --report priors.jsonl

Every run adds one JSON line to the output; runs that are there are not repeated. A fit has the seconds that
the estimators' default has for it in a minute, of processor time.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from unittest import mock

import numpy as np
from panel import MOST_ROWS, REGRESSION, SELDOM_SEEN
from runs import Line, hold_out, mean_and_error, read_split, run_or_report, use_one_thread

from gpflow_deep.estimators.fitting import fit_family
from gpflow_deep.estimators.rows import Rows
from gpflow_deep.presets import exact, recommended

SECONDS = 12.0


def execute(settings: Line) -> Line:
    """One fit, scored."""
    use_one_thread()
    time.perf_counter = time.process_time  # by which the time limit goes
    split = hold_out(read_split(settings["dataset"], settings["split"]), seed=0)
    X, Y = split.X[:MOST_ROWS], split.Y[:MOST_ROWS]
    rows = Rows(X, Y, np.ones(len(X)))
    name, started = settings["family"], time.process_time()
    without = mock.patch.object(exact, "_log_normal", lambda *_: None)
    with without if settings["priors"] == "without" else nullcontext():
        fitted = fit_family(
            name, recommended(name, *X.shape), rows, None, 1, seed=0, seconds=SECONDS
        )
    seconds = time.process_time() - started
    density = np.mean(fitted.log_density(split.Xtest, split.Ytest))
    noise = float(fitted.model.likelihood.variance.numpy())
    return dict(
        log_density=float(density - np.log(split.scale)),
        kernel=fitted.settings.kernel,
        noise=noise,
        seconds=seconds,
    )


def report(lines: list[Line]) -> None:
    """Each set's gain, and the mean of all with a standard error over runs."""
    found: dict[str, dict[str, dict[tuple[str, int], Line]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for line in lines:
        found[line["family"]][line["priors"]][line["dataset"], line["split"]] = line
    datasets = list(dict.fromkeys(line["dataset"] for line in lines))
    print(f"| family | runs | all | median | {' | '.join(datasets)} |")
    print("|---" * (4 + len(datasets)) + "|")
    for family, ways in found.items():
        gains = {
            key: line["log_density"] - ways["without"][key]["log_density"]
            for key, line in ways["with"].items()
            if key in ways["without"]
        }
        cells = [
            f"{np.mean([gain for (name, _), gain in gains.items() if name == dataset]):.3f}"
            for dataset in datasets
        ]
        all_of_them = list(gains.values())
        mean, median = mean_and_error(all_of_them, 3), f"{np.median(all_of_them):.3f}"
        print(f"| {family} | {len(gains)} | {mean} | {median} | {' | '.join(cells)} |")


def all_settings(o: argparse.Namespace) -> Iterator[Line]:
    for split in o.split:
        for dataset in o.dataset:
            for family in o.family:
                for priors in ("without", "with"):
                    yield dict(family=family, dataset=dataset, split=split, priors=priors)


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).strip().split("\n\n")[0])
    parser.add_argument("--family", nargs="+", default=["gp"])
    parser.add_argument("--dataset", nargs="+", default=[*REGRESSION, *SELDOM_SEEN])
    parser.add_argument("--split", type=int, nargs="+", default=[0])
    parser.add_argument("--output", type=Path, default=Path("priors.jsonl"))
    parser.add_argument("--report", type=Path, help="print tables of these runs and make none")
    o = parser.parse_args()
    run_or_report(o, report, all_settings(o), execute)


if __name__ == "__main__":
    main()

"""Tables of the site that are made of the recorded runs, so that they cannot disagree with them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

_RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"

Run = dict[str, Any]


def _runs(*files: str) -> list[Run]:
    lines = [line for file in files for line in (_RESULTS / file).read_text().splitlines()]
    return [json.loads(line) for line in lines]


def _table(header: list[str], rows: list[list[str]]) -> str:
    return "\n".join(
        "| " + " | ".join(row) + " |" for row in [header, ["---"] * len(header), *rows]
    )


def _mean(runs: list[Run], metric: str, num_splits: int) -> str:
    """With its standard error; empty where a split is missing."""
    values = {run["split"]: run["metrics"][metric] for run in runs}
    if len(values) < num_splits or len(runs) != len(values):
        return ""
    x = np.array(list(values.values()))
    error = x.std(ddof=1) / len(x) ** 0.5
    return f"{x.mean():.2f} ({error:.2f})"


def _is(model: str, **settings: Any) -> Callable[[Run], bool]:
    def check(run: Run) -> bool:
        found = {"hidden_scale": 0.01, **run["settings"]}
        return run["model"] == model and all(found[k] == v for k, v in settings.items())

    return check


#: Of each column: its heading, the file of its runs, and which of them.
_SMALL_SETS: list[tuple[str, str, Callable[[Run], bool]]] = [
    ("FITC, 1 layer", "fitc_ep.jsonl", _is("fitc-gp")),
    ("mean-field, 2", "structured.jsonl", _is("mean-field", num_layers=2, hidden_scale=0.01)),
    ("mean-field, 3", "structured.jsonl", _is("mean-field", num_layers=3, hidden_scale=0.01)),
    (
        "stripes-and-arrow, 2",
        "structured.jsonl",
        _is("stripes-and-arrow", num_layers=2, hidden_scale=0.01),
    ),
    (
        "stripes-and-arrow, 3",
        "structured.jsonl",
        _is("stripes-and-arrow", num_layers=3, hidden_scale=0.01),
    ),
    ("global inducing, 2", "global_inducing.jsonl", _is("global-inducing", num_layers=2)),
    ("FITC-EP, 2", "fitc_ep.jsonl", _is("fitc-ep-3")),
]


def small_sets(metric: str) -> str:
    """One table of the families on the data sets and splits that all of them were run on."""
    splits = (0, 1, 2)
    rows = []
    for dataset in ("boston", "concrete", "energy", "yacht"):
        row = [dataset]
        for _, file, wanted in _SMALL_SETS:
            runs = [
                run
                for run in _runs(file)
                if run["dataset"] == dataset and run["split"] in splits and wanted(run)
            ]
            row.append(_mean(runs, metric, len(splits)))
        rows.append(row)
    return _table(["data set", *(heading for heading, *_ in _SMALL_SETS)], rows)


def predictive(metric: str) -> str:
    """The families with learned sites or inducing points that follow the input, split 0, standardised."""
    models = ("mean-field", "dspp", "idsgp", "ar2p", "ar2pp")
    runs = [run for run in _runs("amortised.jsonl") if run["split"] == 0]
    rows = []
    for dataset in ("kin8nm", "power", "elevators", "bike", "protein", "keggdirected"):
        found = {run["model"]: run["metrics"][metric] for run in runs if run["dataset"] == dataset}
        rows.append([dataset, *(f"{found[m]:.3f}" if m in found else "" for m in models)])
    return _table(["data set", *models], rows)


def write(folder: Path) -> None:
    """All tables, a file each."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in (
        ("small-log-density", small_sets("test_log_likelihood")),
        ("small-crps", small_sets("crps")),
        ("predictive-nll", predictive("standardised_nll")),
        ("predictive-rmse", predictive("standardised_rmse")),
    ):
        (folder / f"{name}.txt").write_text(table + "\n")

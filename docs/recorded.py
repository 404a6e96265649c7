"""
Tables of the site that are made of the recorded runs, so that they cannot disagree with them.

    python docs/recorded.py README.md     # renews the one in the README; a test says when it is out of date
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import rankdata

from gpflow_deep.experiments.published_amortized import (
    AMORTIZED,
    AMORTIZED_DATASETS,
    AMORTIZED_SPLITS,
)
from gpflow_deep.experiments.published_deep_gps import DEEP_GP_DATASETS, DEEP_GPS
from gpflow_deep.experiments.published_networks import NETWORK_DATASETS, NETWORKS
from gpflow_deep.experiments.ranks import critical_distance

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
    return _with_error(list(values.values()))


def _with_error(values: list[float], digits: int = 2) -> str:
    """The mean, and its standard error where there are several."""
    x = np.array(values)
    error = f" ({x.std(ddof=1) / len(x) ** 0.5:.{digits}f})" if len(x) > 1 else ""
    return f"{x.mean():.{digits}f}{error}"


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
    exact = _panel_runs({"test_log_likelihood": "log_density"}.get(metric, metric))
    rows = []
    for dataset in ("boston", "concrete", "energy", "yacht"):
        row = [dataset, _with_error([exact[dataset, "gp", split] for split in splits])]
        for _, file, wanted in _SMALL_SETS:
            runs = [
                run
                for run in _runs(file)
                if run["dataset"] == dataset and run["split"] in splits and wanted(run)
            ]
            row.append(_mean(runs, metric, len(splits)))
        rows.append(row)
    return _table(["data set", "exact GP", *(heading for heading, *_ in _SMALL_SETS)], rows)


_PREDICTIVE = ("mean-field", "dspp", "idsgp", "ar2p", "ar2pp")
_LARGER_SETS = ("kin8nm", "power", "elevators", "bike", "protein", "keggdirected")


def _predictive_scores(dataset: str, metric: str) -> dict[str, dict[int, float]]:
    """By model, of the splits of a set that all of the models were run on."""
    found: dict[str, dict[int, float]] = {model: {} for model in _PREDICTIVE}
    for run in _runs("amortised.jsonl"):
        if run["dataset"] == dataset and run["model"] in found:
            found[run["model"]][run["split"]] = run["metrics"][metric]
    splits = sorted(set.intersection(*(set(scores) for scores in found.values())))
    return {model: {k: scores[k] for k in splits} for model, scores in found.items()}


def predictive(metric: str) -> str:
    """The families with learned sites or inducing points that follow the input: standardised targets."""
    rows = []
    for dataset in _LARGER_SETS:
        scores = _predictive_scores(dataset, metric)
        cells = [_with_error(list(scores[model].values()), 3) for model in _PREDICTIVE]
        rows.append([dataset, str(len(scores["ar2pp"])), *cells])
    return _table(["data set", "splits", *_PREDICTIVE], rows)


def amortised() -> str:
    """The same negative log-likelihoods with the RMSE, under each row the paper's."""
    rows = []
    for dataset in _LARGER_SETS:
        nll, rmse = (_predictive_scores(dataset, f"standardised_{m}") for m in ("nll", "rmse"))
        cells = [
            f"{_with_error(list(nll[m].values()), 3)} / {np.mean(list(rmse[m].values())):.3f}"
            for m in _PREDICTIVE
        ]
        rows.append([dataset, str(len(nll["ar2pp"])), *cells])
        if dataset in AMORTIZED_DATASETS:
            number = AMORTIZED_DATASETS.index(dataset)
            papers = [
                " / ".join(
                    f"{AMORTIZED[f'standardised_{metric}'][m, 1 if m == 'idsgp' else 3][number][0]:.3f}"
                    for metric in ("nll", "rmse")
                )
                for m in _PREDICTIVE
            ]
            rows.append(["paper", str(AMORTIZED_SPLITS), *papers])
    return _table(["data set", "splits", "mean-field", "DSPP", "IDSGP", "AR2P", "AR2PP"], rows)


def amortised_and_presets() -> str:
    """Log density by the amortised table's schedule, and by settings of their own in a minute."""
    own, rows = _panel_runs("log_density"), []
    for dataset in _LARGER_SETS:
        scores = _predictive_scores(dataset, "test_log_likelihood")
        splits = [k for k in scores["ar2pp"] if (dataset, "ar2pp", k) in own]
        if splits:
            cells = [[scores[m][k] for k in splits] for m in ("mean-field", "dspp", "ar2pp")]
            for method in ("mean-field", "dspp", "ar2pp", "default"):
                cells.append([own[dataset, method, k] for k in splits])
            rows.append([dataset, str(len(splits)), *map(_with_error, cells)])
    names = ["mean-field", "DSPP", "AR2PP"]
    header = [*names, *(f"{name}, a minute" for name in names), "our default"]
    return _table(["data set", "splits", *header], rows)


def global_inducing() -> str:
    """Deep GPs with global inducing points: test log-likelihood and bound, beside the paper's."""
    runs = _runs("global_inducing.jsonl")
    rows = []
    for dataset in ("boston", "concrete", "energy", "wine_red", "yacht"):
        number = DEEP_GP_DATASETS.index(dataset)
        ours, papers = [], []
        for num_layers in (2, 5):
            wanted = _is("global-inducing", num_layers=num_layers)
            found = [run for run in runs if run["dataset"] == dataset and wanted(run)]
            ours.append(_mean(found, "test_log_likelihood", 5))
            mean, error = DEEP_GPS["test_log_likelihood"]["global-inducing", num_layers][number]
            papers.append(f"{mean:.2f} ({error:.2f})")
            if num_layers == 2:
                bound = np.mean([run["metrics"]["objective_per_point"] for run in found])
        published, _ = DEEP_GPS["objective_per_point"]["global-inducing", 2][number]
        rows.append([dataset, *ours, *papers, f"{bound:.2f}", f"{published:.2f}"])
    header = ["data set", "L=2", "L=5", "paper: L=2", "paper: L=5", "ELBO per point, L=2", "paper"]
    return _table(header, rows)


def networks() -> str:
    """Bayesian networks by set, prior and posterior: test log-likelihood / bound, beside the paper's."""
    kinds = {
        "": _runs("bayesian_networks.jsonl"),
        ", tempered": _runs("bayesian_networks_tempered.jsonl"),
        ", tempered, noise from the residuals": _runs("bayesian_networks_local.jsonl"),
    }
    posteriors = ("factorised", "local-inducing", "factorised-to-global", "global-inducing")
    rows = []
    for number, dataset in enumerate(NETWORK_DATASETS):
        for prior in ("neal", "standard", "scale"):
            models = [f"bnn-{posterior}-{prior}" for posterior in posteriors]
            ours = {
                kind: [_likelihood_and_bound(runs, dataset, model) for model in models]
                for kind, runs in kinds.items()
            }
            found = [[f"{dataset}, {prior}{kind}", *row] for kind, row in ours.items() if any(row)]
            if found:
                rows += [*found, ["paper", *(_published(model, number) for model in models)]]
    return _table(["data set and prior", *posteriors], rows)


def _likelihood_and_bound(runs: list[Run], dataset: str, model: str) -> str:
    """Of a model's runs on a set, over their splits; empty where there are none."""
    scores = [run["metrics"] for run in runs if (run["dataset"], run["model"]) == (dataset, model)]
    if not scores:
        return ""
    bound = np.mean([score["objective_per_point"] for score in scores])
    return f"{_with_error([score['test_log_likelihood'] for score in scores])} / {bound:.2f}"


def _published(model: str, dataset: int) -> str:
    mean, error = NETWORKS["test_log_likelihood"][model, 3][dataset]
    return f"{mean:.2f} ({error:.2f}) / {NETWORKS['objective_per_point'][model, 3][dataset][0]:.2f}"


_MINUTE = 60.0

#: Sets that next to nothing of the default was chosen on, for a table of their own.
_UNSEEN = ("naval", "pumadyn32nm", "keggdirected")

#: What the panel compares, as its files and its readers call it.
_NAMES = {
    "default": "our default",
    "gp": "exact GP",
    "svgp": "sparse GP",
    "logistic": "logistic regression",
    "boosting": "gradient boosting",
    "ridge": "Bayesian ridge",
    "tuned-boosting": "boosting, tuned",
    "quantile-boosting": "boosting, quantiles",
    "catboost": "CatBoost",
    "forest": "random forest",
    "ngboost": "NGBoost",
    "gpflux": "GPflux",
    "gpytorch-deep-gp": "GPyTorch, deep GP",
    "gpytorch-dspp": "GPyTorch, DSPP",
}


def _named(*methods: str) -> dict[str, str]:
    return {method: _NAMES.get(method, method) for method in ("default", *methods)}


_PEERS = _named(
    *("gp", "svgp", "tuned-boosting", "quantile-boosting", "catboost", "forest", "ngboost")
)
#: That the sets of a table of their own were run with.
_FEWER_PEERS = _named("gp", "svgp", "ridge", "boosting", "quantile-boosting", "forest", "ngboost")
_PEERS_OF_FEW_ROWS = _named("gp", "ridge", "boosting", "forest")
_GPS = _named("gp", "svgp", "gpflux", "gpytorch-deep-gp", "gpytorch-dspp")
_PRESETS = _named("dspp", "mean-field", "stripes-and-arrow")
_CLASSIFIERS = _named("svgp", "logistic", "boosting", "catboost", "forest")


def _group(dataset: str) -> str:
    if "@" in dataset:
        return "few"
    return "made" if dataset.startswith("made-") else "unseen" if dataset in _UNSEEN else ""


def _panel_runs(
    metric: str, classes: bool = False, file: str = "panel.jsonl"
) -> dict[tuple[str, str, int], float]:
    """Scores by set, method and split, with a minute for a fit; of several runs the last counts."""
    return {
        (run["dataset"], run["method"], run["split"]): run[metric]
        for run in _runs(file)
        if ("crps" not in run) == classes and run["budget"] <= _MINUTE and metric in run
    }


def panel(
    metric: str, peers: dict[str, str] = _PEERS, classes: bool = False, group: str = ""
) -> tuple[list[str], np.ndarray]:
    """
    Sets, and scores [sets, peers] with a minute for a fit: means over the splits that all of the peers have.

    :param group: of the sets: "unseen", "made", "few" rows of a set, or those that the default is judged on.
    """
    found = {
        key: score for key, score in _panel_runs(metric, classes).items() if _group(key[0]) == group
    }
    datasets, table = [], []
    for dataset in dict.fromkeys(dataset for dataset, *_ in found):
        splits = set.intersection(
            *({split for (d, m, split) in found if (d, m) == (dataset, peer)} for peer in peers)
        )
        if splits:
            datasets.append(dataset)
            table.append([np.mean([found[dataset, p, split] for split in splits]) for p in peers])
    return datasets, np.array(table)


def panel_scores(metric: str, peers: dict[str, str] = _PEERS, classes: bool = False) -> str:
    """A line a data set."""
    datasets, table = panel(metric, peers, classes)
    rows = [[dataset, *(f"{score:.3g}" for score in row)] for dataset, row in zip(datasets, table)]
    return _table(["data set", *peers.values()], rows)


def panel_of(group: str, peers: dict[str, str] = _FEWER_PEERS) -> str:
    """Log density, CRPS and RMSE, a line a set and score."""
    rows = []
    for label, metric in (("log density", "log_density"), ("CRPS", "crps"), ("RMSE", "rmse")):
        for dataset, row in zip(*panel(metric, peers, group=group)):
            rows.append([f"{dataset}, {label}", *(f"{score:.3g}" for score in row)])
    return _table(["data set", *peers.values()], rows)


def panel_summary(peers: dict[str, str] = _PEERS) -> str:
    """Ranks, coverage and cost over the sets that all of the peers have been run on."""
    datasets, _ = panel("log_density", peers)
    rows = []
    for label, metric, sign in (
        ("average rank in log density", "log_density", -1.0),
        ("average rank in CRPS", "crps", 1.0),
        ("average rank in RMSE", "rmse", 1.0),
    ):
        ranks = rankdata(sign * panel(metric, peers)[1], axis=1).mean(axis=0)
        rows.append([label, *(f"{rank:.1f}" for rank in ranks)])
    for label, metric, form in (
        ("test targets in the 95% interval", "coverage95", "{:.1%}"),
        ("processor seconds a fit, mean", "seconds", "{:.0f}"),
        ("peak memory, MB, mean", "peak_mb", "{:.0f}"),
    ):
        means = panel(metric, peers)[1].mean(axis=0)
        rows.append([label, *map(form.format, means)])
    distance = critical_distance(len(peers), len(datasets))
    table = _table([f"{len(datasets)} data sets", *peers.values()], rows)
    return (
        f"{table}\n\nRanks are from 1, the best, to {len(peers)};"
        f" a difference of {distance:.1f} is significant at 0.05."
    )


_PARTS = {
    "without-deep": "without the deep member",
    "without-forests": "without the forests",
}


def panel_parts() -> str:
    """Log density and CRPS of the default, and what is lost without one of its parts, split by split."""
    scores = {m: _panel_runs(m, file="panel_parts.jsonl") for m in ("log_density", "crps")}
    rows = []
    for dataset in dict.fromkeys(dataset for dataset, *_ in scores["log_density"]):
        row = [dataset]
        for metric, found in scores.items():
            digits = 0 if metric == "crps" else 2
            whole = {k: v for (d, m, k), v in found.items() if (d, m) == (dataset, "default")}
            row.append(f"{np.mean(list(whole.values())):.3g}")
            for part in _PARTS:
                lost = np.array([found[dataset, part, k] for k in whole]) - list(whole.values())
                if metric == "crps":  # in the units of the set
                    lost *= 100.0 / np.array(list(whole.values()))
                row.append(_with_error(lost.tolist(), digits))
        rows.append(row)
    header = ["log density", *_PARTS.values(), "CRPS", *(f"{part}, %" for part in _PARTS.values())]
    return _table(["data set", *header], rows)


def panel_longer() -> str:
    """Log density of the default and of GPs with one minute and with five, beside what ends sooner."""
    found = {
        (run["dataset"], run["method"], run["split"], run["budget"] > _MINUTE): run["log_density"]
        for run in _runs("panel.jsonl")
    }
    columns = [(method, longer) for method in ("default", "gp", "svgp") for longer in (False, True)]
    columns += [(method, False) for method in ("boosting", "quantile-boosting", "forest")]
    rows = [
        [dataset, *(f"{found[dataset, name, split, longer]:.3f}" for name, longer in columns)]
        for dataset, method, split, more in found
        if more and method == "default"
    ]
    names = ("our default, 1 minute", "exact GP, 1 minute", "sparse GP, 1 minute")
    twice = (title for name in names for title in (name, "5 minutes"))
    peers = (_NAMES[name] for name, _ in columns[2 * len(names) :])
    return _table(["data set", *twice, *peers], rows)


_IN_README = re.compile(r"(?<=<!-- panel -->\n).*?(?=<!-- end of panel -->)", flags=re.S)


def renewed(readme: str) -> str:
    """With the panel's summary as it is now."""
    return _IN_README.sub(lambda _: panel_summary() + "\n", readme)


def write(folder: Path) -> None:
    """All tables, a file each."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in (
        ("small-log-density", small_sets("test_log_likelihood")),
        ("small-crps", small_sets("crps")),
        ("predictive-nll", predictive("standardised_nll")),
        ("predictive-rmse", predictive("standardised_rmse")),
        ("amortised", amortised()),
        ("amortised-and-presets", amortised_and_presets()),
        ("global-inducing", global_inducing()),
        ("networks", networks()),
        ("panel-summary", panel_summary()),
        ("panel-log-density", panel_scores("log_density")),
        ("panel-crps", panel_scores("crps")),
        ("panel-rmse", panel_scores("rmse")),
        ("panel-masses", panel_scores("log_mass", _PEERS | _GPS)),
        ("panel-gps-summary", panel_summary(_GPS)),
        ("panel-gps-log-density", panel_scores("log_density", _GPS)),
        ("panel-presets-summary", panel_summary(_PRESETS)),
        ("panel-presets-log-density", panel_scores("log_density", _PRESETS)),
        ("panel-classes", panel_scores("log_density", _CLASSIFIERS, classes=True)),
        ("panel-longer", panel_longer()),
        ("panel-parts", panel_parts()),
        ("panel-unseen", panel_of("unseen")),
        ("panel-made", panel_of("made")),
        ("panel-few", panel_of("few", _PEERS_OF_FEW_ROWS)),
    ):
        (folder / f"{name}.txt").write_text(table + "\n")


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(renewed(path.read_text()))

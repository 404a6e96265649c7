"""
The default beside what else a user has, on many sets: log density, error, CRPS, coverage, time, memory.

    python benchmarks/panel.py --output panel.jsonl                      # all; goes on where it was stopped
    python benchmarks/panel.py --output panel.jsonl --dataset boston --method default --splits 1 --seconds 60
    python benchmarks/panel.py --output panel.jsonl --report   # --method: of some; the splits they share

``--dataset made`` stands for the made tables (`benchmarks/made_sets.py`), which need no folder;
``--dataset boston@60`` for sixty of the set's training rows.

Each fit is a process of its own, so that its memory is its own, and its seconds are of processor time: what
else the machine does changes nothing. Regression sets, and three more if they are named, come from the
folder that GPFLOW_DEEP_DATA names, as one set of classes does, the others from scikit-learn. Peers that are
not installed are left out; GPyTorch's and GPflux's deep GPs run by the interpreters that
PYTHON_WITH_GPYTORCH and PYTHON_WITH_GPFLUX name.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import made_sets
import numpy as np

REGRESSION = (
    *("boston", "concrete", "energy", "kin8nm", "power", "protein", "wine_red", "yacht"),
    *("elevators", "bike"),
)
#: That nothing of the default was chosen on, but for the priors of its exact GPs; run where they are named.
SELDOM_SEEN = ("naval", "pumadyn32nm", "keggdirected")
CLASSIFICATION = (
    *("iris", "wine", "breast_cancer", "digits", "moons", "circles"),
    *("quality", "rules"),  # for whose likes the forest of labels was made
)
MOST_ROWS = 8000
MOST_TREES = 1000

#: Of regression alone, and the environment variables that name the interpreters that have them.
PEERS = {
    "gpytorch-dspp": "PYTHON_WITH_GPYTORCH",
    "gpytorch-deep-gp": "PYTHON_WITH_GPYTORCH",
    "gpflux": "PYTHON_WITH_GPFLUX",
}

#: Methods of regression, and of classification, alone.
OF_NUMBERS = ("rough-gp", "dspp", "ar2pp", "ridge", "tuned-boosting", *PEERS)
OF_CLASSES = ("logistic",)
#: The default without one of its parts, of regression; run where they are named.
PARTS = ("without-deep", "without-forests")

Scores = dict[str, float]


def split(dataset: str, number: int) -> tuple[np.ndarray, ...]:
    """Training and test rows of a set: X, y, X, y."""
    dataset, _, few = dataset.partition("@")
    if few:
        X, y, *test = split(dataset, number)
        rows = np.random.default_rng(number).permutation(len(X))[: int(few)]
        return X[rows], y[rows], *test
    if dataset in made_sets.SETS:
        return made_sets.split(dataset, number)
    if dataset in REGRESSION + SELDOM_SEEN:
        from gpflow_deep.experiments.datasets import load
        from gpflow_deep.experiments.splits import STUDIES

        data = load(dataset)
        rows = STUDIES["interpolation"](data, number)
        train = np.random.default_rng(number).permutation(rows.train)[:MOST_ROWS]
        return data.X[train], data.Y[train, 0], data.X[rows.test], data.Y[rows.test, 0]
    if dataset == "quality":  # of red wines: four classes, the ends of few rows merged
        X, y, test_X, test_y = split("wine_red", number)
        return X, y.clip(4, 7).astype(int), test_X, test_y.clip(4, 7).astype(int)
    from sklearn import datasets
    from sklearn.model_selection import train_test_split

    if dataset in ("moons", "circles"):
        make = getattr(datasets, f"make_{dataset}")
        X, y = make(2000, noise=0.2, random_state=number)
    elif dataset == "rules":
        X, y = _rules(1500, number)
    else:
        X, y = getattr(datasets, f"load_{dataset}")(return_X_y=True)
    train_X, test_X, train_y, test_y = train_test_split(
        X, y, test_size=0.2, stratify=y, random_state=number
    )
    return train_X, train_y, test_X, test_y


def _rules(N: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Three classes by thresholds of single inputs, a tenth of the labels at random."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(N, 6))
    y = ((X[:, 0] > 0.5) ^ (X[:, 1] > 0.3)).astype(int) + (X[:, 2] > 0.7)
    return X, np.where(rng.uniform(size=N) < 0.1, rng.integers(0, 3, N), y)


def regression_scores(Y: np.ndarray, mixture: Any) -> Scores:
    """
    Of a predictive mixture in the units of the data. Of whole numbers also the log of what lies nearer to
    them than to others: their density is as high as it is narrow.
    """
    from gpflow_deep import metrics

    Y = Y[:, None]
    whole = {}
    if np.array_equal(Y, np.round(Y)):
        mass = metrics.pit(Y + 0.5, *mixture) - metrics.pit(Y - 0.5, *mixture)
        whole["log_mass"] = float(np.mean(np.log(np.maximum(mass, 1e-12))))
    return {
        **whole,
        "log_density": -float(metrics.negative_log_likelihood(Y, *mixture)),
        "rmse": float(metrics.rmse(Y, metrics.mixture_moments(*mixture)[0])),
        "crps": float(np.mean(metrics.crps(Y, *mixture))),
        "coverage95": float(metrics.coverage(Y, *mixture, level=0.95)),
    }


def classification_scores(y: np.ndarray, probabilities: np.ndarray, classes: np.ndarray) -> Scores:
    """Of predicted probabilities."""
    from sklearn.metrics import log_loss

    return {
        "log_density": -float(log_loss(y, probabilities, labels=classes)),
        "error": float(np.mean(classes[np.argmax(probabilities, axis=1)] != y)),
    }


def ours(model: str, **options: Any) -> Callable[..., Scores]:
    """One of our estimators, which one following the targets."""

    def run(X: Any, y: Any, X_test: Any, y_test: Any, seconds: float) -> Scores:
        from gpflow_deep.estimators import DeepGPClassifier, DeepGPRegressor

        settings = dict(time_limit=seconds, random_state=0, **options)
        if y.dtype.kind == "f":
            mixture = DeepGPRegressor(model, **settings).fit(X, y).predict_mixture(X_test)
            return regression_scores(y_test, mixture)
        fitted = DeepGPClassifier(model, **settings).fit(X, y)
        return classification_scores(y_test, fitted.predict_proba(X_test), fitted.classes_)

    return run


def without(part: str) -> Callable[..., Scores]:
    """The default without a part; what time that leaves is not spent. Its process stays so."""

    def run(*data: Any) -> Scores:
        from gpflow_deep.estimators import calibration, members
        from gpflow_deep.presets.registry import SITES
        from gpflow_deep.training import TrainingError

        if part == "deep":
            fit = members.fit_family

            def fit_others(name: str, *arguments: Any, **options: Any) -> Any:
                if name in (*SITES, "mean-field"):
                    raise TrainingError("Left out.")
                return fit(name, *arguments, **options)

            members.fit_family = fit_others
        else:
            calibration._FEWEST_ROWS = sys.maxsize  # that one is grown on
        return ours("auto")(*data)

    return run


def _gaussian(mean: np.ndarray, sd: np.ndarray) -> Any:
    """A mixture of one component."""
    return mean[None, :, None], np.square(sd)[None, :, None], np.zeros(1)


def ngboost(X: Any, y: Any, X_test: Any, y_test: Any, seconds: float) -> Scores:
    """Natural gradient boosting by its documentation's example."""
    del seconds
    from ngboost import NGBClassifier, NGBRegressor
    from ngboost.distns import k_categorical

    if y.dtype.kind == "f":
        found = NGBRegressor(verbose=False, random_state=0).fit(X, y).pred_dist(X_test)
        return regression_scores(y_test, _gaussian(found.loc, found.scale))
    classes, codes = np.unique(y, return_inverse=True)
    fitted = NGBClassifier(Dist=k_categorical(len(classes)), verbose=False, random_state=0)
    return classification_scores(y_test, fitted.fit(X, codes).predict_proba(X_test), classes)


def boosting(X: Any, y: Any, X_test: Any, y_test: Any, seconds: float) -> Scores:
    """Gradient boosting: the mean, with a Gaussian's deviation by five-fold cross-validation."""
    del seconds
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from sklearn.model_selection import cross_val_predict

    if y.dtype.kind != "f":
        fitted = HistGradientBoostingClassifier(random_state=0).fit(X, y)
        return classification_scores(y_test, fitted.predict_proba(X_test), fitted.classes_)
    errors = y - cross_val_predict(HistGradientBoostingRegressor(random_state=0), X, y, cv=5)
    mean = HistGradientBoostingRegressor(random_state=0).fit(X, y).predict(X_test)
    sd = np.full(len(mean), np.sqrt(np.mean(np.square(errors))))
    return regression_scores(y_test, _gaussian(mean, sd))


def logistic(X: Any, y: Any, X_test: Any, y_test: Any, seconds: float) -> Scores:
    """Logistic regression of standardised inputs, with the penalty by five-fold cross-validation."""
    del seconds
    from sklearn.linear_model import LogisticRegressionCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    regression = LogisticRegressionCV(
        Cs=np.logspace(-4, 3, 15), cv=5, scoring="neg_log_loss", max_iter=1000
    )
    fitted = make_pipeline(StandardScaler(), regression).fit(X, y)
    return classification_scores(y_test, fitted.predict_proba(X_test), fitted.classes_)


def ridge(X: Any, y: Any, X_test: Any, y_test: Any, seconds: float) -> Scores:
    """Bayesian linear regression of standardised inputs, the prior by evidence."""
    del seconds
    from sklearn.linear_model import BayesianRidge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    fitted = make_pipeline(StandardScaler(), BayesianRidge()).fit(X, y)
    return regression_scores(y_test, _gaussian(*fitted.predict(X_test, return_std=True)))


def tuned_boosting(X: Any, y: Any, X_test: Any, y_test: Any, seconds: float) -> Scores:
    """
    Gradient boosting with what is best in five-fold cross-validation of as many draws of its parameters as
    the time allows, a fourth of it kept for the last fit; numbers of trees by the folds too. The deviation is
    that of the folds' errors.
    """
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.model_selection import KFold

    started, rng, best = time.perf_counter(), np.random.default_rng(0), (np.inf, 0, {})
    folds = list(KFold(5, shuffle=True, random_state=0).split(X))
    options: dict[str, Any] = {}  # the usual ones first
    while time.perf_counter() - started < 0.75 * seconds:
        errors = np.zeros(MOST_TREES)
        for train, held in folds:
            model = HistGradientBoostingRegressor(
                max_iter=MOST_TREES, early_stopping=False, random_state=0, **options
            ).fit(X[train], y[train])
            for index, mean in enumerate(model.staged_predict(X[held])):
                errors[index] += np.sum(np.square(mean - y[held])) / len(y)
        if errors.min() < best[0]:
            best = float(errors.min()), int(errors.argmin()) + 1, options
        options = {
            "learning_rate": float(np.exp(rng.uniform(np.log(0.02), np.log(0.3)))),
            "max_leaf_nodes": int(rng.choice([4, 8, 16, 31, 63])),
            "min_samples_leaf": int(rng.choice([3, 5, 10, 20, 40])),
            "l2_regularization": float(rng.choice([0.0, 0.1, 1.0, 10.0])),
            "max_features": float(rng.choice([0.3, 0.6, 1.0])),
        }
    error, trees, options = best
    model = HistGradientBoostingRegressor(
        max_iter=trees, early_stopping=False, random_state=0, **options
    )
    mean = model.fit(X, y).predict(X_test)
    return regression_scores(y_test, _gaussian(mean, np.full(len(mean), np.sqrt(error))))


def catboost(X: Any, y: Any, X_test: Any, y_test: Any, seconds: float) -> Scores:
    """
    CatBoost's Gaussians with a mean and a variance for every row, and of classes its probabilities: the best
    of three depths, and the number of trees, by a fifth of the training rows; then fitted to all of them.
    """
    del seconds
    from catboost import CatBoostClassifier, CatBoostRegressor
    from sklearn.model_selection import train_test_split

    is_regression = y.dtype.kind == "f"
    make = CatBoostRegressor if is_regression else CatBoostClassifier
    options: dict[str, Any] = dict(
        random_seed=0, thread_count=1, verbose=False, allow_writing_files=False
    )
    if is_regression:
        options["loss_function"] = "RMSEWithUncertainty"
    part_X, held_X, part_y, held_y = train_test_split(
        X, y, test_size=0.2, random_state=0, stratify=None if is_regression else y
    )
    tried = []
    for depth in (4, 6, 8):
        model = make(depth=depth, iterations=MOST_TREES, od_type="Iter", od_wait=50, **options)
        model.fit(part_X, part_y, eval_set=(held_X, held_y))
        loss = model.get_best_score()["validation"][model.get_all_params()["loss_function"]]
        # By default the rate depends on the number of trees.
        found = dict(iterations=model.tree_count_, learning_rate=model.learning_rate_)
        tried.append((loss, depth, found))
    _, depth, found = min(tried, key=lambda one: one[0])
    model = make(depth=depth, **found, **options).fit(X, y)
    if is_regression:
        mean, variance = model.predict(X_test).T
        return regression_scores(y_test, _gaussian(mean, np.sqrt(variance)))
    return classification_scores(y_test, model.predict_proba(X_test), model.classes_)


def quantile_boosting(X: Any, y: Any, X_test: Any, y_test: Any, seconds: float) -> Scores:
    """
    Gradient boosting with quantiles: twenty, each the mean of a Gaussian as wide as it is far from its
    neighbours, times a factor, and not narrower than a floor; both chosen by a fifth of the training rows.
    """
    del seconds
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.model_selection import train_test_split

    levels = (np.arange(20) + 0.5) / 20

    def quantiles(X: np.ndarray, y: np.ndarray, X_test: np.ndarray) -> np.ndarray:
        models = (
            HistGradientBoostingRegressor(loss="quantile", quantile=level, random_state=0)
            for level in levels
        )
        return np.sort([model.fit(X, y).predict(X_test) for model in models], axis=0)

    def mixture(q: np.ndarray, factor: float, floor: float) -> Any:
        sd = np.hypot(factor * np.gradient(q, axis=0), floor * np.std(y))
        return q[..., None], np.square(sd)[..., None], np.full(len(q), -np.log(len(q)))

    part_X, held_X, part_y, held_y = train_test_split(X, y, test_size=0.2, random_state=0)
    held = quantiles(part_X, part_y, held_X)
    widths = [(factor, floor) for factor in (0.5, 1.0, 2.0) for floor in (0.003, 0.01, 0.03, 0.1)]
    best = max(
        widths, key=lambda width: regression_scores(held_y, mixture(held, *width))["log_density"]
    )
    return regression_scores(y_test, mixture(quantiles(X, y, X_test), *best))


def forest(X: Any, y: Any, X_test: Any, y_test: Any, seconds: float) -> Scores:
    """A random forest; the trees' spread and out-of-bag error as a Gaussian's variance."""
    del seconds
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

    if y.dtype.kind != "f":
        fitted = RandomForestClassifier(500, random_state=0).fit(X, y)
        probabilities = np.clip(fitted.predict_proba(X_test), 1e-3, None)
        probabilities /= probabilities.sum(axis=1, keepdims=True)
        return classification_scores(y_test, probabilities, fitted.classes_)
    fitted = RandomForestRegressor(500, oob_score=True, random_state=0).fit(X, y)
    spread = np.std([tree.predict(X_test) for tree in fitted.estimators_], axis=0)
    noise = np.mean(np.square(y - fitted.oob_prediction_))
    sd = np.sqrt(np.maximum(np.square(spread), 0.25 * noise))
    return regression_scores(y_test, _gaussian(fitted.predict(X_test), sd))


def peer(name: str, variable: str) -> Callable[..., Scores]:
    """Another project's deep GP, by the interpreter that an environment variable names."""

    def run(X: Any, y: Any, X_test: Any, y_test: Any, seconds: float) -> Scores:
        from sklearn.preprocessing import StandardScaler

        inputs, targets = StandardScaler().fit(X), StandardScaler().fit(y[:, None])
        scale = targets.scale_[0]
        with tempfile.TemporaryDirectory() as folder:
            source, target = Path(folder) / "data.npz", Path(folder) / "mixture.npz"
            X, X_test, y = (
                inputs.transform(X),
                inputs.transform(X_test),
                targets.transform(y[:, None]),
            )
            np.savez(source, X=X, y=y[:, 0], X_test=X_test)
            script = Path(__file__).with_name("panel_peers.py")
            command = [os.environ[variable], script, name, str(seconds), "0", source, target]
            subprocess.run(command, check=True)
            found = np.load(target)
        mean = targets.mean_[0] + scale * found["mean"]
        return regression_scores(y_test, (mean, scale**2 * found["variance"], found["log_weights"]))

    return run


METHODS: dict[str, Callable[..., Scores]] = {
    "default": ours("auto"),
    "without-deep": without("deep"),
    "without-forests": without("forests"),
    "gp": ours("gp"),
    "rough-gp": ours("rough-gp"),
    "svgp": ours("svgp"),
    "mean-field": ours("mean-field"),
    "stripes-and-arrow": ours("stripes-and-arrow"),
    "dspp": ours("dspp"),
    "ar2pp": ours("ar2pp"),
    "boosting": boosting,
    "logistic": logistic,
    "ridge": ridge,
    "tuned-boosting": tuned_boosting,
    "quantile-boosting": quantile_boosting,
    "forest": forest,
    **({"ngboost": ngboost} if importlib.util.find_spec("ngboost") else {}),
    **({"catboost": catboost} if importlib.util.find_spec("catboost") else {}),
    **{name: peer(name, variable) for name, variable in PEERS.items() if variable in os.environ},
}


def execute(dataset: str, number: int, method: str, seconds: float) -> dict[str, Any]:
    """One fit, scored, in this process."""
    data = split(dataset, number)
    time.perf_counter = time.process_time  # by which all of this package's time limits go
    started = sum(os.times()[:4])  # of processor time, that of processes it starts too
    scores = METHODS[method](*data, seconds)
    who = resource.RUSAGE_CHILDREN if method in PEERS else resource.RUSAGE_SELF
    return {
        **dict(dataset=dataset, split=number, method=method, budget=seconds),
        **scores,
        "seconds": sum(os.times()[:4]) - started,
        "peak_mb": resource.getrusage(who).ru_maxrss / 1024,
    }


def run_all(arguments: argparse.Namespace) -> None:
    """The fits that the output does not hold yet."""
    found = read(arguments.output)
    done = {(r["dataset"], r["split"], r["method"], r["budget"]) for r in found}
    named = arguments.dataset or [*REGRESSION, *CLASSIFICATION]
    datasets = [d for name in named for d in (made_sets.SETS if name == "made" else [name])]
    jobs = [
        (dataset, number, method, arguments.seconds)
        for dataset in datasets
        for number in range(arguments.splits)
        for method in arguments.method or (method for method in METHODS if method not in PARTS)
        if method not in ((*OF_NUMBERS, *PARTS) if dataset in CLASSIFICATION else OF_CLASSES)
    ]
    for index, job in enumerate(jobs, start=1):
        name = " ".join(map(str, job))
        if job in done:
            continue
        print(f"[{index}/{len(jobs)}] {name}", flush=True)
        command = [
            sys.executable,
            __file__,
            "--output",
            str(arguments.output),
            "--one",
            json.dumps(job),
        ]
        if subprocess.run(command, check=False).returncode:
            print("    failed", flush=True)


def read(path: Path) -> list[dict[str, Any]]:
    """The records of a file; a line that a kill cut is left out."""
    records = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return records


def _known(dataset: str) -> str:
    """A set's name, or some rows' of it."""
    names = (*REGRESSION, *SELDOM_SEEN, *CLASSIFICATION, *made_sets.SETS, "made")
    name, at, rows = dataset.partition("@")
    if name not in names or (at and not rows.isdigit()):
        raise argparse.ArgumentTypeError(f"expected one of {', '.join(names)}, or NAME@ROWS")
    return dataset


def report(records: list[dict[str, Any]]) -> str:
    """Mean scores over splits, ranks, and the default against the others."""
    lines = []
    for score, sign, what in (
        ("log_density", 1.0, "Log density of the targets or classes (higher is better)"),
        ("crps", -1.0, "CRPS, regression only (lower is better)"),
    ):
        scored = [record for record in records if score in record]
        table, methods, datasets = _means(scored, score)
        if not len(table):
            continue
        head = ["data", *methods]
        lines += [f"{what}:", "", f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
        for dataset, row in zip(datasets, table, strict=True):
            cells = ["" if np.isnan(mean) else f"{mean:.3f}" for mean in row]
            lines.append(f"| {dataset} | {' | '.join(cells)} |")
        lines += [
            "",
            _ranks(sign * table, methods),
            _against_all(sign * table, methods, datasets, differences=score == "log_density"),
            "",
        ]
    coverage, methods, _ = _means([r for r in records if "coverage95" in r], "coverage95")
    if len(coverage):
        shares = [
            f"{m} {c:.1%}" for m, c in zip(methods, np.nanmean(coverage, axis=0), strict=True)
        ]
        lines.append(f"In the 95% interval, on average: {', '.join(shares)}.")
    return "\n".join(lines)


def _means(records: list[dict[str, Any]], score: str) -> tuple[np.ndarray, list[str], list[str]]:
    """
    Scores [data sets, methods], averaged over the splits of a set that all methods it was tried with have,
    NaN where there are none; methods, data sets.
    """
    cells: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    for record in records:  # of several runs the last counts
        cells[record["dataset"], record["method"]][record["split"]] = record[score]
    # Those installed here in their order, then others.
    methods = list(dict.fromkeys([*METHODS, *(method for _, method in cells)]))
    methods = [method for method in methods if any(m == method for _, m in cells)]
    datasets = list(dict.fromkeys(dataset for dataset, _ in cells))
    table = np.full([len(datasets), len(methods)], np.nan)
    for i, dataset in enumerate(datasets):
        found = [set(cells[dataset, method]) for method in methods if (dataset, method) in cells]
        common = set.intersection(*found)
        for j, method in enumerate(methods):
            if common and (dataset, method) in cells:
                table[i, j] = np.mean([cells[dataset, method][split] for split in common])
    return table, methods, datasets


def _ranks(table: np.ndarray, methods: list[str]) -> str:
    """Average ranks over the data sets that all methods, but for those run on few, have been run on."""
    from scipy.stats import rankdata

    from gpflow_deep.experiments.ranks import critical_distance

    common = np.isfinite(table).mean(axis=0) > 0.5
    names = [method for method, kept in zip(methods, common, strict=True) if kept]
    whole = table[:, common][np.isfinite(table[:, common]).all(axis=1)]
    if len(names) < 2 or len(whole) < 2:
        return "No ranks: fewer than two methods or data sets."
    ranks = rankdata(-whole, axis=1).mean(axis=0)
    told = ", ".join(f"{names[i]} {ranks[i]:.2f}" for i in np.argsort(ranks))
    distance = critical_distance(len(names), len(whole))
    return (
        f"Average ranks over {len(whole)} sets: {told}. A difference of {distance:.2f} is significant at 0.05"
        " (Nemenyi)."
    )


def _against_all(
    table: np.ndarray, methods: list[str], datasets: list[str], differences: bool
) -> str:
    """Wins and losses of the default, and, where differences mean something, where it is furthest behind."""
    if "default" not in methods:
        return ""
    own = table[:, methods.index("default")]
    told = []
    for index, method in enumerate(methods):
        both = np.isfinite(own - table[:, index])
        if method != "default" and both.any():
            wins = int(np.sum(own[both] > table[both, index]))
            told.append(f"{method} {wins}:{int(both.sum()) - wins}")
    # CRPS are in the units of each set: their differences cannot be compared, those of log densities can.
    behind = np.nanmax(table, axis=1) - own
    worst = int(np.nanargmax(behind))
    furthest = f" Furthest behind the best: {behind[worst]:.3f}, {datasets[worst]}."
    return f"The default's wins and losses: {', '.join(told)}." + (furthest if differences else "")


def main() -> None:
    """See the top of this file."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--dataset", action="append", type=_known)
    parser.add_argument("--method", action="append")
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    unknown = set(arguments.method or ()) - set(METHODS)
    if unknown and not arguments.report:  # recorded ones need not be installed to be reported
        parser.error(f"--method: expected some of {', '.join(METHODS)}, got {', '.join(unknown)}.")
    if arguments.one:
        record = execute(*json.loads(arguments.one))
        with arguments.output.open("a") as file:
            file.write(json.dumps(record) + "\n")
    elif arguments.report:
        records = [r for r in read(arguments.output) if r["budget"] <= arguments.seconds]
        if arguments.method:
            records = [r for r in records if r["method"] in arguments.method]
        print(report(records))
    else:
        run_all(arguments)


if __name__ == "__main__":
    main()

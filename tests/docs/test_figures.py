"""Figures in sentences of the README and of the site are those of the recorded runs, losses among them."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np

import gpflow_deep
from tests.docs.figures import ROOT, agree, figures_in, least_above, recorded

#: By data set and method.
Scores = dict[str, dict[str, float]]


def _scores(metric: str, peers: dict[str, str] = recorded._PEERS, **which: Any) -> Scores:
    datasets, table = recorded.panel(metric, peers, **which)
    return {dataset: dict(zip(peers, row)) for dataset, row in zip(datasets, table)}


def _ahead(scores: Scores, sign: float = 1.0) -> dict[str, set[str]]:
    """Who is ahead of the default, by set; ``sign`` is -1 for scores that are better low."""
    ahead = {
        dataset: {peer for peer, score in row.items() if sign * score > sign * row["default"]}
        for dataset, row in scores.items()
    }
    return {dataset: peers for dataset, peers in ahead.items() if peers}


def _behind(row: dict[str, float], peer: str, best: str = "default") -> float:
    """By how many per cent, in a score that is better low."""
    return 100.0 * (row[peer] / row[best] - 1.0)


def test_tables_that_pages_include_are_made(tmp_path: Path) -> None:
    recorded.write(tmp_path)
    pages = [
        (ROOT / "docs" / name).read_text()
        for name in (
            "choosing.md",
            "results/default.md",
            *("results/global_inducing.md", "results/networks.md", "results/amortised.md"),
        )
    ]
    included = re.findall(r"{include} (?:../)?_copied/tables/(\S+)", " ".join(pages))
    assert len(included) > 10 and set(included) <= {path.name for path in tmp_path.iterdir()}
    columns = (tmp_path / "global-inducing.txt").read_text().splitlines()[2].split(" | ")
    # Boston: log-likelihood with two layers and five, the paper's, and the bounds.
    assert columns[1:3] == ["-2.37 (0.06)", "-2.33 (0.04)"]
    assert columns[3:5] == ["-2.35 (0.05)"] * 2 and columns[5:] == ["-0.37", "-0.29 |"]


def test_wins_in_density() -> None:
    density = _scores("log_density")
    masses = _scores("log_mass", recorded._PEERS | recorded._GPS)["wine_red"]
    assert len(density) == 10 and not _ahead(density)
    (boston,) = figures_in("README.md", r"In density it is first on all ten \(by (\S+) on boston\)")
    (wine_red,) = figures_in("README.md", r"probabilities: by these it is first by (\d+\.\d+)\.")
    gaps = [
        row["default"] - max(score for peer, score in row.items() if peer != "default")
        for row in (density["boston"], masses)
    ]
    agree([boston, wine_red], gaps)


def test_losses_in_rmse_and_crps() -> None:
    rmse, crps = _scores("rmse"), _scores("crps")
    assert _ahead(rmse, -1.0) == {
        "energy": {"tuned-boosting"},
        "yacht": {"gp", "catboost", "svgp"},
    }
    assert _ahead(crps, -1.0) == {"yacht": {"gp"}}
    energy, gp, others = figures_in(
        "README.md",
        r"in RMSE tuned boosting is ahead on energy, by (\d+)%, and on yacht the exact GP by far "
        r"\(in CRPS too, by (\d+)%\), CatBoost and the sparse GP by (\d+)%\.",
    )
    agree([energy], [_behind(rmse["energy"], "default", "tuned-boosting")])
    agree([gp], [_behind(crps["yacht"], "default", "gp")])
    agree([others] * 2, [_behind(rmse["yacht"], "default", p) for p in ("catboost", "svgp")])


def test_what_trees_cost_and_miss() -> None:
    *shares, energy, protein, elsewhere = figures_in(
        "docs/choosing.md",
        r"a forest takes (\S+) of the default's time, tuned boosting (\S+)\. In RMSE tuned "
        r"boosting is ahead on energy, by (\d+)%; on protein both are less than (\d+)% behind "
        r"the default, elsewhere (\d+)% and more;",
    )
    trees = ("forest", "tuned-boosting")
    seconds, rmse = _scores("seconds"), _scores("rmse")
    total = {name: sum(row[name] for row in seconds.values()) for name in recorded._PEERS}
    agree(shares, [total[name] / total["default"] for name in trees])
    agree([energy], [_behind(rmse["energy"], "default", "tuned-boosting")])
    behind = {(d, name): _behind(row, name) for d, row in rmse.items() for name in trees}
    assert least_above(protein, [behind["protein", name] for name in trees])
    del behind["energy", "tuned-boosting"], behind["protein", trees[0]], behind["protein", trees[1]]
    agree([elsewhere], [min(behind.values())])


def test_cost_of_the_default() -> None:
    times, memory = figures_in(
        "README.md", r"up to (\w+) times the processor time of the others, and (\w+) the memory of"
    )
    seconds, megabytes = _scores("seconds"), _scores("peak_mb")
    most = max(row["default"] / min(row.values()) for row in seconds.values())
    assert math.ceil(most) == {"ten": 10, "eleven": 11, "twelve": 12}[times]
    total = {name: sum(row[name] for row in megabytes.values()) for name in recorded._PEERS}
    trees = set(recorded._PEERS) - {"default", "gp", "svgp"}
    assert {round(total["default"] / total[name]) for name in trees} == {2} and memory == "twice"


def test_sets_seldom_seen() -> None:
    which: dict[str, Any] = {"peers": recorded._FEWER_PEERS, "group": "unseen"}
    rmse, crps = _scores("rmse", **which), _scores("crps", **which)
    density = _scores("log_density", **which)
    kegg = rmse["keggdirected"]
    assert set(_ahead(rmse, -1.0)) == {"pumadyn32nm", "naval"}
    assert all(_behind(kegg, peer) > 0.0 for peer in kegg if peer != "default")
    assert min(_behind(kegg, peer) for peer in kegg if peer != "default") < 1.0
    assert _ahead(crps, -1.0)["keggdirected"] == {"quantile-boosting", "forest"}
    said = figures_in(
        "docs/results/default.md",
        r"boosting by quantiles and a forest are ahead, by (\S+)% and (\S+)%",
    )
    behind = [_behind(crps["keggdirected"], "default", p) for p in ("quantile-boosting", "forest")]
    agree(said, behind)
    (gap,) = figures_in(
        "README.md", r"best in density on two and (\S+) nats behind the sparse GP on the third"
    )
    assert _ahead(density) == {"pumadyn32nm": {"svgp"}}
    puma = density["pumadyn32nm"]
    agree([gap], [puma["svgp"] - puma["default"]])
    said = figures_in(
        "docs/results/default.md", r"on naval it is (\S+)% behind the exact GP in RMSE"
    )
    agree(said, [_behind(rmse["naval"], "default", "gp")])
    assert all(_behind(s["pumadyn32nm"], "default", "svgp") < 1.0 for s in (rmse, crps))


def test_what_the_parts_of_the_default_are_worth() -> None:
    found = recorded._panel_runs("log_density", file="panel_parts.jsonl")
    whole = {(d, k): score for (d, method, k), score in found.items() if method == "default"}
    datasets = list(dict.fromkeys(d for d, _ in whole))
    deep, forests = (
        {d: np.mean([whole[d, k] - found[d, part, k] for k in range(3)]) for d in datasets}
        for part in ("without-deep", "without-forests")
    )
    assert len(whole) == 30 and max(deep.values()) < 0.025
    most, yacht, wine_red = figures_in(
        "docs/results/default.md",
        r"worth next to nothing once there are forests: (\S+) nats on boston and kin8nm, .*? it costs "
        r"(\S+) and (\S+)\.",
    )
    agree([most] * 2, [deep["boston"], deep["kin8nm"]])
    agree([yacht, wine_red], [-deep["yacht"], -deep["wine_red"]])
    *gains, kin8nm, boston = figures_in(
        "docs/results/default.md",
        r"Forests are worth (\S+) to (\S+) nats .*? rules, (\S+) to (\S+) on three others; on kin8nm they "
        r"cost (\S+), on boston (\S+)\.",
    )
    large = sorted(forests[d] for d in ("concrete", "energy", "power"))
    small = sorted(forests[d] for d in ("protein", "yacht", "elevators"))
    agree(gains, [large[0], large[-1], small[0], small[-1]])
    agree([kin8nm, boston], [-forests["kin8nm"], -forests["boston"]])
    most, least, largest = figures_in(
        "README.md",
        r"brings these ten sets (\S+) nats at most, the forests (\S+) to (\S+) on eight",
    )
    gained = [gain for gain in forests.values() if gain > 0.0]
    agree([most, least, largest], [max(deep.values()), min(gained), max(gained)])
    assert len(gained) == 8
    seconds = {"default": 0.0, "without-deep": 0.0, "without-forests": 0.0}
    for run in recorded._runs("panel_parts.jsonl"):
        seconds[run["method"]] += run["seconds"]
    (share,) = figures_in("docs/results/default.md", r"It takes (\d+)% of the time\.")
    agree([share], [100.0 * (1.0 - seconds["without-deep"] / seconds["default"])])


def test_what_the_deep_member_is_worth_with_few_rows() -> None:
    score, crps = (
        recorded._panel_runs(metric, file="panel_parts_few.jsonl")
        for metric in ("log_density", "crps")
    )
    fits = [(d, k) for d, method, k in score if method == "default"]
    gains = {
        fit: score[fit[0], "default", fit[1]] - score[fit[0], "without-deep", fit[1]]
        for fit in fits
    }
    lower = {
        (d, k): 100.0 * (1.0 - crps[d, "default", k] / crps[d, "without-deep", k]) for d, k in fits
    }
    real = [fit for fit in fits if not fit[0].startswith("made-")]
    boxes = [fit for fit in fits if fit[0] == "made-jumps@60"]
    assert len(real) == 18 and len(boxes) == 2
    seconds = {
        method: np.mean(
            [
                run["seconds"]
                for run in recorded._runs("panel_parts_few.jsonl")
                if run["method"] == method and (run["dataset"], run["split"]) in real
            ]
        )
        for method in ("default", "without-deep")
    }
    *said, on_boxes, of_crps = figures_in(
        "docs/results/default.md",
        r"what the others leave of the time, (\d+) seconds of (\d+): .*? worth (\S+) nats on average "
        r"\((\S+)\) and (\S+)% of CRPS, on constants on boxes .*? (\S+) and (\S+)%\.",
    )
    values = [gains[fit] for fit in real]
    agree(
        said,
        [
            seconds["default"] - seconds["without-deep"],
            seconds["default"],
            np.mean(values),
            np.std(values, ddof=1) / len(values) ** 0.5,
            np.mean([lower[fit] for fit in real]),
        ],
    )
    agree([on_boxes, of_crps], [np.mean([found[fit] for fit in boxes]) for found in (gains, lower)])


def test_made_tables() -> None:
    scores = _scores("log_density", recorded._FEWER_PEERS, group="made")
    gaps = {dataset: max(row.values()) - row["default"] for dataset, row in scores.items()}
    assert "Six times the default" in (ROOT / "docs" / "results" / "default.md").read_text()
    assert sum(gap == 0.0 for gap in gaps.values()) == 6
    said = figures_in(
        "docs/results/default.md",
        r"behind boosting by quantiles by (\S+) where .*? and by (\S+) under wild errors .*? the sparse "
        r"GP by (\S+) where .*? behind a single GP by (\S+) to (\S+) on four",
    )
    named = [gaps[f"made-{name}"] for name in ("two-branches", "wild-errors", "idle-inputs")]
    others = [gap for gap in gaps.values() if gap > 0.0 and gap not in named]
    assert len(others) == 4
    agree(said, [*named, min(others), max(others)])
    said = figures_in("README.md", r"nats of the best on all, and within (\S+) on all but one")
    agree(said, [sorted(gaps.values())[-2]])


def test_amortised_models_beside_others_by_settings_of_their_own() -> None:
    rows = [line.split(" | ")[2:] for line in recorded.amortised_and_presets().splitlines()[2:]]
    mean_field, dspp, ar2pp, *minutes, default = np.array(
        [[float(cell.split()[0]) for cell in row] for row in rows]
    ).T
    names = ["kin8nm", "power", "elevators", "bike", "protein"]
    assert (minutes[0] > mean_field).all() and sum(minutes[1] > dspp) == 4
    assert figures_in("docs/choosing.md", r"on all five sets tried, by up to (\S+) nats, and") == (
        f"{max(minutes[0] - mean_field):.1f}",
    )
    apart = dict(zip(names, minutes[2] - minutes[1], strict=True))
    assert apart["bike"] > 0.1 and max(abs(apart[d]) for d in ("kin8nm", "elevators")) < 0.02
    assert apart["power"] < -0.03 and apart["protein"] < -0.1
    columns = np.stack([mean_field, dspp, ar2pp, *minutes])
    assert columns[:, 0].argmax() == 3 and columns[:, 1].argmax() == 4
    assert (columns[:, 2:].argmax(axis=0) == 2).all()
    ahead = [(names[j], int(i)) for i, j in zip(*np.nonzero(columns > default))]
    assert ahead == [("elevators", 2), ("kin8nm", 3)]


def test_sixty_rows() -> None:
    scores = _scores("log_density", recorded._PEERS_OF_FEW_ROWS, group="few")
    gaps = {dataset: max(row.values()) - row["default"] for dataset, row in scores.items()}
    within, boston = figures_in(
        "docs/results/default.md",
        r"within (\S+) nats of it on all but boston, where it is (\S+) behind the exact GP",
    )
    agree([boston], [gaps.pop("boston@60")])
    assert least_above(within, gaps.values())


def test_losses_among_classes() -> None:
    scores = _scores("log_density", recorded._CLASSIFIERS, classes=True)
    assert _ahead(scores) == {
        "breast_cancer": {"logistic"},
        "iris": {"logistic"},
        "moons": {"svgp"},
        "circles": {"svgp"},
        "wine": {"boosting", "catboost", "svgp"},
        "rules": {"catboost"},
        "quality": {"forest"},
    }
    gap = {
        (dataset, peer): row[peer] - row["default"]
        for dataset, row in scores.items()
        for peer in row
    }
    logistic = [gap["breast_cancer", "logistic"], gap["iris", "logistic"]]
    sparse = [gap["moons", "svgp"], gap["circles", "svgp"]]
    wine = [gap["wine", peer] for peer in ("boosting", "catboost", "svgp")]
    others = [gap["rules", "catboost"], gap["quality", "forest"]]
    said = figures_in(
        "docs/results/default.md",
        r"Losses: breast_cancer by (\S+) and iris by (\S+) to logistic regression, moons by (\S+) and "
        r"circles by (\S+) to the sparse GP, .*? wine by (\S+) to boosting .*?, rules by (\S+) to "
        r"CatBoost, and quality by (\S+) to the forest",
    )
    agree(said, [*logistic, *sparse, wine[0], *others])
    both, *rest, most = figures_in(
        "README.md",
        r"ahead on breast_cancer and iris by (\S+), gradient boosting, CatBoost and the sparse GP on "
        r"wine by (\S+), (\S+) and (\S+), CatBoost by (\S+) and a forest by (\S+) on two others, the "
        r"sparse GP on two by less than (\d\.\d+)\.",
    )
    agree([both] * 2 + rest, [*logistic, *wine, *others])
    assert least_above(most, sparse)
    said = figures_in("docs/results/default.md", r"the sparse GP alone is (\S+) and (\S+) behind\.")
    agree(said, [-gap["quality", "svgp"], -gap["rules", "svgp"]])


def test_deep_gps_on_kin8nm() -> None:
    said = figures_in(
        "docs/results/default.md",
        r"on kin8nm all of them are (\S+) to (\S+) nats behind the default",
    )
    row = _scores("log_density", recorded._GPS)["kin8nm"]
    gaps = [row["default"] - row[peer] for peer in set(row) - {"default", "gp", "svgp"}]
    agree(said, [min(gaps), max(gaps)])
    yacht, kin8nm = figures_in(
        "docs/results/default.md",
        r"In RMSE GPflux is ahead of it on yacht, by (\d+)%, and by less than (\d+)% on kin8nm\.",
    )
    rmse = _scores("rmse", recorded._GPS)
    agree([yacht], [_behind(rmse["yacht"], "default", "gpflux")])
    assert least_above(kin8nm, [_behind(rmse["kin8nm"], "default", "gpflux")])
    assert rmse["kin8nm"]["gpflux"] < rmse["kin8nm"]["default"]


def test_presets_that_are_ahead() -> None:
    scores = {m: _scores(m, recorded._PRESETS) for m in ("log_density", "crps", "rmse")}
    structured = {"mean-field", "stripes-and-arrow"}
    assert _ahead(scores["log_density"]) == _ahead(scores["crps"], -1.0)
    assert _ahead(scores["log_density"]) == {"kin8nm": {"mean-field"}}
    assert _ahead(scores["rmse"], -1.0) == {"kin8nm": structured, "yacht": structured}
    row = scores["log_density"]["kin8nm"]
    said = figures_in(
        "docs/results/default.md",
        r"mean-field is ahead of the default, by (\S+) nats, (\d+)% of CRPS and (\d+)% of RMSE\.",
    )
    behind = [_behind(scores[m]["kin8nm"], "default", "mean-field") for m in ("crps", "rmse")]
    agree(said, [row["mean-field"] - row["default"], *behind])


def _network(posterior: str, prior: str, dataset: str, num_splits: int = 5) -> tuple[float, float]:
    """Test log-likelihood and bound over the splits, tempered."""
    model = f"bnn-{posterior}-{prior}"
    metrics = [
        run["metrics"]
        for run in recorded._runs("bayesian_networks_tempered.jsonl")
        if (run["dataset"], run["model"]) == (dataset, model)
    ]
    assert len(metrics) == num_splits
    score, bound = (
        float(np.mean([m[key] for m in metrics]))
        for key in ("test_log_likelihood", "objective_per_point")
    )
    return score, bound


def test_networks() -> None:
    page, (weights, points) = "docs/results/networks.md", ("factorised", "global-inducing")
    said = figures_in(page, r"there factorised weights are ahead, by (\S+) and (\S+)\. On kin8nm")
    ours = [
        [_network(p, "standard", d)[0] for p in (weights, points)] for d in ("concrete", "yacht")
    ]
    agree(said, [one - other for one, other in ours])
    said = figures_in(
        page, r"prior costs at most (\S+) of the bound and (\S+) of the test log-likelihood"
    )
    sets = ("boston", "concrete", "energy", "kin8nm", "power", "wine_red", "yacht")
    costs = np.array([_network(weights, "neal", d) for d in sets])
    costs = (costs - [_network(weights, "scale", d) for d in sets]).max(axis=0)
    agree(said, costs[::-1])
    said = figures_in(
        page, r"weights and global inducing points are (\S+) to (\S+) below the paper's at level"
    )
    number = recorded.NETWORK_DATASETS.index("energy")
    published = recorded.NETWORKS["objective_per_point"]
    models = {posterior: f"bnn-{posterior}-neal" for posterior in (points, weights)}
    gaps = [
        published[m, 3][number][0] - _network(p, "neal", "energy")[1] for p, m in models.items()
    ]
    agree(said, gaps)
    ours = [
        _network("factorised-to-global", "neal", d, n) for d, n in (("yacht", 3), ("boston", 1))
    ]
    model, names = ("bnn-factorised-to-global-neal", 3), recorded.NETWORK_DATASETS
    theirs = [
        [
            table[model][names.index(d)][0]
            for table in (recorded.NETWORKS["test_log_likelihood"], published)
        ]
        for d in ("yacht", "boston")
    ]
    gaps = np.subtract(theirs, ours)
    said = figures_in(
        page,
        r"within (\S+) of the paper's log-likelihood on yacht, ahead of it by (\S+) on that one split"
        r" of boston, their bounds (\S+) and (\S+) below",
    )
    agree(said, [gaps[0, 0], -gaps[1, 0], gaps[0, 1], gaps[1, 1]])


def _steps() -> dict[str, list[str]]:
    """Cells of the table of steps on the page on speed, by model and dtype."""
    lines = (ROOT / "docs" / "speed.md").read_text().splitlines()
    rows = [[cell.strip(" `") for cell in line.split("|")[1:-1]] for line in lines]
    return {" ".join(row[:2]): row[2:] for row in rows if row[1:2] in (["float64"], ["mixed"])}


def test_steps_are_those_of_the_page_on_speed() -> None:
    steps = _steps()
    models = ("MeanField", "StripesAndArrow", "FullyCoupled")
    said = figures_in(
        "README.md",
        r"takes (\S+) of its processor time in float64 with five draws, stripes-and-arrow (\S+), "
        r"fully coupled (\S+); with .*? parameters (\S+), (\S+) and (\S+)\. With one draw, GPflux's "
        r"default, (\S+), (\S+) and (\S+) in float64, (\S+), (\S+) and (\S+) mixed",
    )
    columns = [(dtype, column) for column in (2, -1) for dtype in ("float64", "mixed")]
    assert list(said) == [
        steps[f"{m} {dtype}"][column] for dtype, column in columns for m in models
    ]
    said = figures_in(
        "docs/choosing.md",
        r"(\d+) ms a step where mean-field with three layers takes (\d+) with five draws, (\d+) with one",
    )
    mean_field, coupled = steps["MeanField float64"], steps["FullyCoupled float64"]
    assert said == (steps["sparse GP float64"][0], mean_field[0], mean_field[-2])
    said = figures_in("docs/choosing.md", r"(\w+) to (\w+) times the step of mean-field")
    ratios = [float(coupled[column]) / float(mean_field[column]) for column in (0, -2)]
    assert [{"five": 5, "six": 6, "seven": 7}[word] for word in said] == [round(r) for r in ratios]


def test_steps_in_other_pages_are_those_of_the_page_on_speed() -> None:
    steps = _steps()
    structured, results = "docs/theory/structured.md", "benchmarks/results/sghmc.md"
    doubled = [
        float(steps[f"StripesAndArrow {dtype}"][column])
        / float(steps[f"MeanField {dtype}"][column])
        for dtype, column in (("float64", 0), ("float64", -2), ("mixed", 0), ("mixed", -2))
    ]
    assert {round(ratio) for ratio in doubled} == {2}
    *float64, least, most = figures_in(
        structured,
        r"stripes-and-arrow costs (\S+) to (\S+) of mean-field in float64, (\S+) to (\S+) in mixed "
        r"precision, fully coupled six to seven",
    )
    agree([*float64, least, most], [*sorted(doubled[:2]), *doubled[2:]])
    assert figures_in(
        "docs/choosing.md", r"(\S+) to (\S+) times the step of mean-field; among"
    ) == tuple(float64)
    docstring = gpflow_deep.posteriors.StripesAndArrow.__doc__ or ""
    assert "about two mean-field steps" in " ".join(docstring.split())
    cells = [steps[f"{model} float64"][0] for model in ("SampledDeepGP`, 4 chains", "MeanField")]
    early = figures_in(
        results, r"four chains took (\S+) CPU-ms, one of mean-field .*? samples (\S+) \("
    )
    assert list(figures_in(results, r"page on speed has (\d+) and (\d+), of")) == cells
    said = figures_in(results, r"(\S+) of a mean-field step here, (\S+) there\.")
    agree(said, [float(chains) / float(mean_field) for chains, mean_field in (early, cells)])


def test_what_precisions_of_each_unit_cost() -> None:
    own, one = (
        [float(figure) for figure in figures]
        for figures in (
            figures_in("docs/speed.md", r"unit's own (\d+) ms in float32 and (\d+) in float64"),
            figures_in("docs/speed.md", r"one precision for all units (\d+) and (\d+) ms"),
        )
    )
    said = figures_in(
        "docs/theory/global_inducing.md",
        r"(\S+) times the step at two layers of 50 units in float32 and (\S+) in float64",
    )
    agree(said, [each / shared for each, shared in zip(own, one)])


def test_scale_prior_with_the_missing_factor() -> None:
    paper, mean, first = figures_in(
        "docs/theory/errata.md",
        r"\(boston, an RMSE of (\S+) in the mean of 20 splits\) .*? it is (\S+) in the mean of our first "
        r"five, and (\d\.\d+) on the first",
    )
    model, number = "bnn-factorised-scale", recorded.NETWORK_DATASETS.index("boston")
    ours = {
        run["split"]: run["metrics"]["rmse"]
        for run in recorded._runs("bayesian_networks_tempered.jsonl")
        if (run["dataset"], run["model"]) == ("boston", model)
    }
    assert sorted(ours) == list(range(5))
    published = recorded.NETWORKS["rmse"][model, 3][number][0]
    agree([paper, mean, first], [published, float(np.mean(list(ours.values()))), ours[0]])


def _coupled_less_mean_field(file: str, method: str) -> dict[tuple[str, int], dict[str, float]]:
    """Bound and log density at the end of training, by set and split."""
    ends = {
        (run["structure"], run["dataset"], run["split"]): np.array(run["curve"][-1])
        for run in recorded._runs(file)
        if run["method"] == method
    }
    (columns,) = {tuple(run["columns"]) for run in recorded._runs(file)}
    return {
        (dataset, split): dict(zip(columns, end - ends["mean-field", dataset, split]))
        for (structure, dataset, split), end in ends.items()
        if structure == "fully-coupled"
    }


def test_what_full_coupling_is_worth() -> None:
    gap, bounds, runs, densities = figures_in(
        "docs/choosing.md",
        r"trained alike better in density on one of five sets, by (\S+) nats; with three layers its "
        r"bound is below mean-field's after as many steps in (\d+) of (\d+) runs, its density in (\d+) ",
    )
    most = 0.0
    for method in ("Adam 0.05", "Adam 0.05, natural 1"):
        found = _coupled_less_mean_field("natural_gradients.jsonl", method)
        means = [
            np.mean([end["log_density"] for (name, _), end in found.items() if name == dataset])
            for dataset in {dataset for dataset, _ in found}
        ]
        assert len(means) == 5 and sum(mean > 0.0 for mean in means) == 1
        most = max(most, *means)
    agree([gap], [most])
    ends = _coupled_less_mean_field("natural_gradients_3.jsonl", "Adam 0.05, natural 1").values()
    below = [sum(end[name] < 0.0 for end in ends) for name in ("bound", "log_density")]
    assert [int(bounds), int(runs), int(densities)] == [below[0], len(ends), below[1]]

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpflow_deep.experiments.published import PUBLISHED, PUBLISHED_SHARES, find
from gpflow_deep.experiments.published_tables import read_table
from gpflow_deep.experiments.report import markdown, write_report
from gpflow_deep.experiments.results import Results, Run
from gpflow_deep.experiments.splits import STUDIES
from gpflow_deep.experiments.summary import Estimate, group, shares
from gpflow_deep.presets import Settings, registry

L3 = Settings(num_layers=3)


def _add(
    results: Results,
    model: str,
    split: int,
    score: float,
    *,
    log_density: list[float] | None = None,
    **change: Any,
) -> Run:
    run = replace(Run(model, "boston", "interpolation", split, 0, L3), **change)
    scores = {"test_log_likelihood": score, "rmse": 3.0, "crps": 1.5, "coverage95": 0.9}
    points = {"log_density": np.array([score] if log_density is None else log_density)}
    results.append(run, {"metrics": scores, "seconds": 60.0}, points)
    return run


@pytest.fixture
def results(tmp_path: Path) -> Results:
    return Results(tmp_path / "r.jsonl")


def test_estimate_is_mean_and_standard_error() -> None:
    values = [1.0, 2.0, 6.0]
    estimate = Estimate.of(values)
    assert estimate.mean == pytest.approx(3.0)
    assert estimate.error == pytest.approx(np.std(values, ddof=1) / np.sqrt(3))
    assert str(estimate) == "3.000 (1.528)"
    assert Estimate.of([2.0]).error is None
    assert str(Estimate.of([2.0])) == "2.000"
    # Errors of targets in small units are not zero.
    assert str(Estimate.of([4.321e-5])) == "0.00004321"
    assert str(Estimate.of([0.0271, 0.0275])) == "0.02730 (0.00020)"
    assert [str(Estimate.of([0.0] * n)) for n in (1, 2)] == ["0.000", "0.000 (0.000)"]


def test_splits_are_put_together_and_other_settings_are_not(results: Results) -> None:
    for split in range(3):
        _add(results, "mean-field", split, -2.0 - split)
    _add(results, "mean-field", 0, -5.0, settings=replace(L3, steps=10))
    _add(results, "mean-field", 0, -6.0, settings=replace(L3, num_layers=2))
    groups = group(results.read())
    assert [(entry.label, len(entry.records)) for entry in groups] == [
        ("mean-field (L=2, steps=20000)", 1),
        ("mean-field (L=3, steps=10)", 1),
        ("mean-field (L=3, steps=20000)", 3),
    ]
    assert groups[2].metric("test_log_likelihood").mean == pytest.approx(-3.0)


def test_table_has_means_errors_and_the_published_values(results: Results) -> None:
    for split, score in enumerate([-2.0, -2.4]):
        _add(results, "stripes-and-arrow", split, score)
    lines = markdown(results.path).splitlines()
    (row,) = [line for line in lines if line.startswith("| stripes-and-arrow (L=3) | 2 ")]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[1:] == [
        "2",
        "-2.200 (0.200)",
        "3.000 (0.000)",
        "1.500 (0.000)",
        "0.900 (0.000)",
        "60",
        "-2.43 (0.05) [1]",
    ]
    # Models that were published and not run here are there to compare with.
    assert any(line.startswith("| sghmc (L=3) |") and "-2.53 [1]" in line for line in lines)
    assert any(line.startswith("[1] Lindinger") and "Table 1" in line for line in lines)


def test_published_values_are_of_their_depth_and_study(results: Results) -> None:
    _add(results, "mean-field", 0, -2.0, settings=replace(L3, num_layers=2))
    _add(results, "mean-field", 0, -2.0, study="extrapolation")
    rows = [line for line in markdown(results.path).splitlines() if " | 1 | -2.000 |" in line]
    assert len(rows) == 2
    assert all(row.endswith("|  |") for row in rows)


def test_share_of_points_is_of_equal_runs(results: Results) -> None:
    for split, ours, theirs in [(0, [1.0, 2.0, 3.0, 4.0], [2.0, 1.0, 2.0, 3.0]), (1, [0.0], [1.0])]:
        for model, densities in (("stripes-and-arrow", ours), ("mean-field", theirs)):
            _add(results, model, split, -1.0, log_density=densities, study="extrapolation")
    # No rival with the same settings, on the same split, in the same study:
    _add(results, "stripes-and-arrow", 2, -1.0, study="extrapolation")
    _add(results, "stripes-and-arrow", 0, -1.0)
    _add(results, "mean-field", 0, -1.0, settings=replace(L3, steps=10))
    found = shares(results, group(results.read()), "stripes-and-arrow", "mean-field")
    ((entry, share),) = found
    assert entry.study == "extrapolation"
    assert share.mean == pytest.approx((0.75 + 0.0) / 2)
    assert share.count == 2
    text = markdown(results.path)
    assert "0.375 (0.375) | 0.55 [2]" in text
    assert "Table 2" in text


def test_models_set_as_a_papers_authors_ran_them_stand_beside_what_they_published(
    results: Results,
) -> None:
    for model, densities in (
        ("lindinger2020-stripes-and-arrow", [1.0, 2.0]),
        ("lindinger2020-mean-field", [2.0, 1.0]),
    ):
        _add(results, model, 0, -2.5, log_density=densities, study="extrapolation")
        _add(results, model, 0, -2.5)
    text = markdown(results.path)
    assert "| lindinger2020-mean-field | 1 | 0.500 | 0.55 [2]" in text
    (row,) = (
        line
        for line in text.splitlines()
        if line.startswith("| lindinger2020-mean-field (L=3) | 1 | -2.500 |") and "[" in line
    )
    assert row.endswith("| -2.48 (0.06) [1] |")
    assert "| mean-field (L=3) |" not in text  # once, by the name that was run


def test_seeds_are_averaged_within_their_split(results: Results) -> None:
    for seed, score in enumerate([-1.0, -2.0, -3.0]):
        ours = [1.0, float(seed)]
        _add(results, "stripes-and-arrow", 0, score, seed=seed, log_density=ours)
        _add(results, "mean-field", 0, score, seed=seed, log_density=[0.5, 1.5])
    _add(results, "stripes-and-arrow", 1, -4.0)
    entry = group(results.read())[1]
    assert entry.num_splits == 2
    score = entry.metric("test_log_likelihood")
    assert (score.mean, score.error, score.count) == (-3.0, pytest.approx(1.0), 2)
    ((_, share),) = shares(results, group(results.read()), "stripes-and-arrow", "mean-field")
    assert (share.mean, share.error, share.count) == (pytest.approx(2 / 3), None, 1)
    assert "| stripes-and-arrow (L=3) | 2 | -3.000 (1.000) |" in markdown(results.path)


def test_share_of_models_that_are_trained_otherwise(results: Results) -> None:
    for steps, densities in ((10, [1.0, 2.0]), (20, [0.0, 3.0])):
        model = "mean-field" if steps == 10 else "sghmc"
        settings = replace(L3, steps=steps)
        _add(results, model, 0, -1.0, log_density=densities, settings=settings)
    _add(results, "sghmc", 0, -1.0, settings=replace(L3, hidden_dim=3), log_density=[9.0, 9.0])
    assert shares(results, group(results.read()), "sghmc", "mean-field") == []
    (row,) = (line for line in markdown(results.path).splitlines() if "| mean-field |" in line)
    assert row.endswith("| mean-field | 1 | 0.500 |  |") and "sghmc" in row


def test_of_several_rivals_the_most_alike_is_compared_with(results: Results) -> None:
    ours = replace(L3, steps=10, learning_rate=0.1)
    _add(results, "sghmc", 0, -1.0, log_density=[1.0, 2.0], settings=ours)
    for rate, densities in ((0.1, [0.0, 3.0]), (0.2, [9.0, 9.0])):
        settings = replace(L3, steps=20, learning_rate=rate)
        _add(results, "mean-field", 0, -1.0, log_density=densities, settings=settings)
    names = ("num_layers", "hidden_dim", "hidden_scale")
    ((_, share),) = shares(results, group(results.read()), "sghmc", "mean-field", names)
    assert share.mean == 0.5


def test_test_points_that_cannot_be_compared_are_said(results: Results) -> None:
    ours = _add(results, "stripes-and-arrow", 0, -1.0, log_density=[1.0, 2.0])
    _add(results, "mean-field", 0, -1.0, log_density=[1.0])
    with pytest.warns(UserWarning, match="of one split have 2 and 1 test points; they are not"):
        assert "higher log density" not in markdown(results.path)
    np.savez(results._points_path(ours.key), Y=np.zeros(2))
    with pytest.warns(UserWarning, match=f"run {ours.key} have no log_density"):
        assert "higher log density" not in markdown(results.path)


def test_a_setting_may_be_a_number_in_one_record_and_text_in_another(results: Results) -> None:
    for value in ("many", 10, "few"):
        _add(results, "mean-field", 0, -1.0, settings=replace(L3))
        lines = results.path.read_text().splitlines()
        record = json.loads(lines[-1])
        record["settings"]["steps"], record["key"] = value, str(value)
        results.path.write_text("\n".join([*lines[:-1], json.dumps(record)]) + "\n")
    assert [dict(entry.variant)["steps"] for entry in group(results.read())] == [10, "few", "many"]


def test_settings_of_training_tell_runs_of_one_model_apart(results: Results) -> None:
    _add(results, "mean-field", 0, -1.0, settings=replace(L3, steps=10, num_inducing=3))
    _add(results, "sghmc", 0, -1.0, settings=replace(L3, steps=20))
    found = {entry.model: dict(entry.variant) for entry in group(results.read())}
    assert found == {
        "mean-field": {"num_inducing": 3},
        "sghmc": {"num_inducing": L3.num_inducing},
    }
    _add(results, "sghmc", 0, -1.0, settings=replace(L3, steps=30))
    labels = [entry.label for entry in group(results.read()) if entry.model == "sghmc"]
    assert [label.endswith(f"steps={steps})") for label, steps in zip(labels, (20, 30))] == [
        True
    ] * 2


def test_names_and_large_numbers_tell_runs_apart(results: Results) -> None:
    for change in (
        {"kernel": "rbf"},
        {"kernel": "matern32"},
        {"steps": 10**6},
        {"steps": 10**6 + 1},
    ):
        _add(results, "mean-field", 0, -1.0, settings=replace(L3, **change))
    assert [entry.label for entry in group(results.read())] == [
        f"mean-field (L=3, kernel={kernel}, steps={steps})"
        for kernel, steps in (
            ("matern32", 20000),
            ("own", 10**6),
            ("own", 10**6 + 1),
            ("rbf", 20000),
        )
    ]
    assert "| mean-field (L=3, kernel=own, steps=1000001) |" in markdown(results.path)


def test_a_run_without_a_score_is_left_out(results: Results) -> None:
    _add(results, "mean-field", 0, -1.0)
    run = Run("mean-field", "boston", "interpolation", 1, 0, L3)
    record = {"metrics": {"test_log_likelihood": -2.0, "crps": None}, "seconds": 1.0}
    results.append(run, record, {"log_density": np.zeros(1)})
    with pytest.warns(UserWarning, match=f"run {run.key} has no rmse, crps, coverage95; it is"):
        text = markdown(results.path)
    assert "| mean-field (L=3) | 1 | -1.000 |" in text


@pytest.mark.parametrize("value", ["true", "1e999", "9" * 400, '"1.5"', "[1.5]", "null"])
@pytest.mark.parametrize("name", ["rmse", "objective_per_point", "standardised_crps", "seconds"])
def test_what_is_no_score_is_none(results: Results, name: str, value: str) -> None:
    _add(results, "mean-field", 0, -1.0)
    run = Run("mean-field", "boston", "interpolation", 1, 0, L3)
    names = ("test_log_likelihood", "rmse", "crps", "coverage95")
    scores = dict.fromkeys((*names, *([] if name == "seconds" else [name])), 2.0)
    results.append(run, {"metrics": scores, "seconds": 1.0}, {})
    first, second = results.path.read_text().splitlines()
    second = re.sub(rf'"{name}": [\d.]+', lambda _: f'"{name}": {value}', second)
    results.path.write_text(f"{first}\n{second}\n")
    with pytest.warns(UserWarning, match=f"run {run.key} has no {name}; it is left out"):
        text = markdown(results.path)
    assert "| mean-field (L=3) | 1 | -1.000 |" in text


def test_many_runs_without_scores_have_few_warnings(results: Results) -> None:
    _add(results, "mean-field", 0, -1.0)
    for split in range(1, 9):
        run = Run("mean-field", "boston", "interpolation", split, 0, L3)
        results.append(run, {"metrics": {}, "seconds": 1.0}, {})
    with pytest.warns(UserWarning) as caught:
        markdown(results.path)
    assert len(caught) == 4
    assert str(caught[3].message) == f"{results.path}: the same of 5 more runs."


def test_a_report_is_written_to_its_folder_only(results: Results, tmp_path: Path) -> None:
    _add(results, "mean-field", 0, -1.0)
    _add(results, "mean-field", 1, -1.0, study="../../evil")
    with pytest.warns(UserWarning, match="line 2: not a complete record"):
        written = write_report(results.path, tmp_path / "a" / "b" / "out")
    assert [path.name for path in written] == ["report.md", "interpolation.png"]
    assert not list(tmp_path.rglob("evil*"))


def test_share_without_point_files_is_left_out(results: Results) -> None:
    runs = [_add(results, model, 0, -1.0) for model in ("stripes-and-arrow", "mean-field")]
    results._points_path(runs[0].key).unlink()
    assert shares(results, group(results.read()), "stripes-and-arrow", "mean-field") == []
    assert "higher log density" not in markdown(results.path)


def test_report_and_figures_are_written(results: Results, tmp_path: Path) -> None:
    for study in STUDIES:
        _add(results, "svgp", 0, -2.0, study=study, settings=replace(L3, num_layers=1))
        _add(results, "svgp", 0, -2.0, study=study, dataset="mine")
    written = write_report(results.path, tmp_path / "out")
    assert [path.name for path in written] == [
        "report.md",
        "extrapolation.png",
        "interpolation.png",
    ]
    text = written[0].read_text(encoding="utf-8")
    for path in written[1:]:
        assert path.read_bytes().startswith(b"\x89PNG")
        assert f"({path.name})" in text


def test_no_results(results: Results) -> None:
    with pytest.raises(ValueError, match="no finished run"):
        markdown(results.path)


def test_published_values_are_well_formed() -> None:
    assert len({(e.model, e.num_layers, e.dataset, e.study, e.metric) for e in PUBLISHED}) == len(
        PUBLISHED
    )
    for entry in [*PUBLISHED, *PUBLISHED_SHARES]:
        assert entry.study in STUDIES and "Table" in entry.source
    assert all(0.0 < entry.value < 1.0 for entry in PUBLISHED_SHARES)
    # Table 8 of Ober & Aitchison 2021, the RMSE of deep GPs.
    found = find("protein", "interpolation", "rmse")
    values = {(e.model, e.num_layers): (e.value, e.error) for e in found}
    assert values["global-inducing", 2] == (4.08, 0.01) and len(values) == 24
    models = {entry.model for entry in find("naval", "interpolation", "test_log_likelihood")}
    networks = {model for model in models if model.startswith("bnn-")}
    assert len(networks) == 12 and networks < set(registry.names())
    assert {f"ober2021-{name}" for name in networks} < set(registry.names())
    assert models - networks == {
        "stripes-and-arrow",
        "mean-field",
        "svgp",
        "sghmc",
        "global-inducing",
        "local-inducing",
        "DSVI",
    }


def test_tables_of_papers() -> None:
    table = read_table("""
a 2 1.5±0.4 - 2
b 3 -1±0 0.5±0.2 -
""")
    assert table == {
        ("a", 2): [(1.5, 0.4), None, (2.0, None)],
        ("b", 3): [(-1, 0), (0.5, 0.2), None],
    }
    of_one_depth = read_table("a 1±0.2", num_layers=1, splits=4)
    assert of_one_depth == {("a", 1): [(1.0, 0.1)]}
    # Some were run on some of the sets only: Table 5 of Meng & Zhang 2024.
    for dataset, models in (("protein", 8), ("keggdirected", 6)):
        found = find(dataset, "interpolation", "standardised_nll")
        assert len(found) == models and ("ar1" in {e.model for e in found}) == (models == 8)


def test_standardised_scores_stand_beside_the_published_ones(results: Results) -> None:
    scores = {"test_log_likelihood": 1.2, "rmse": 3.0, "crps": 1.5, "coverage95": 0.9}
    scores |= {"standardised_nll": 0.1, "standardised_rmse": 0.2, "standardised_crps": 0.3}
    scores["standardised_crps_as_published"] = 0.4
    run = Run("ar2p", "kin8nm", "interpolation", 0, 0, L3)
    results.append(run, {"metrics": scores, "seconds": 60.0}, {"log_density": np.zeros(1)})
    text = markdown(results.path)
    assert "0.100; 0.118 (0.017) [4]" in text
    assert "| 0.300 | 0.400; 0.168 (0.002) [4] |" in text
    _add(results, "mean-field", 0, 1.0, dataset="boston")
    assert markdown(results.path).count("Of standardised targets") == 1

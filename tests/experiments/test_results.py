from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpflow_deep.experiments.results import Results, Run
from gpflow_deep.experiments.summary import group
from gpflow_deep.presets import Settings

RUN = Run("toy-a", "diabetes", "interpolation", 0, 0, Settings())
POINTS = {"log_density": np.array([-1.0, 2.0])}


@pytest.mark.parametrize(
    "change",
    [
        {"model": "toy-b"},
        {"dataset": "yacht"},
        {"study": "extrapolation"},
        {"split": 1},
        {"seed": 1},
        {"settings": Settings(steps=7)},
    ],
)
def test_the_key_is_of_everything_that_makes_a_run(change: dict) -> None:
    assert replace(RUN).key == RUN.key
    assert replace(RUN, **change).key != RUN.key


def test_what_is_written_is_read(tmp_path: Path) -> None:
    results = Results(tmp_path / "new" / "r.jsonl")
    assert results.read() == []
    results.append(RUN, {"steps": 3, "name": "Hernández"}, POINTS)
    other = replace(RUN, split=1)
    results.append(other, {"steps": 4}, POINTS)
    first, second = results.read()
    assert (first["key"], first["steps"], first["name"]) == (RUN.key, 3, "Hernández")
    assert first["settings"]["num_inducing"] == 128
    assert (second["key"], second["split"]) == (other.key, 1)
    points = results.points(RUN.key)
    assert points is not None
    np.testing.assert_array_equal(points["log_density"], POINTS["log_density"])


def test_a_setting_added_later_leaves_earlier_runs_what_they_were(tmp_path: Path) -> None:
    """Their key, and what a report reads of them."""
    results = Results(tmp_path / "r.jsonl")
    results.append(RUN, {}, POINTS)
    results.append(replace(RUN, settings=Settings(hidden_scale=1e-5)), {}, POINTS)
    text = results.path.read_text()
    assert text.count(', "hidden_scale": 0.01') == 1
    results.path.write_text(text.replace(', "hidden_scale": 0.01', ""))
    first, second = results.read()
    assert first["key"] == RUN.key != second["key"]
    assert [record["settings"]["hidden_scale"] for record in (first, second)] == [0.01, 1e-5]
    assert [one.label for one in group([first, second])] == [
        "toy-a (L=2, hidden_scale=1e-05)",
        "toy-a (L=2, hidden_scale=0.01)",
    ]


@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_a_line_cut_anywhere_costs_that_line_only(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("results") / "r.jsonl"
    results = Results(path)
    results.append(RUN, {"name": "é" * 5}, POINTS)
    complete = path.stat().st_size
    results.append(replace(RUN, split=1), {"name": "é" * 5}, POINTS)
    whole = path.stat().st_size
    cut = data.draw(st.integers(complete, whole - 2))
    with path.open("r+b") as file:
        file.truncate(cut)
    results.append(replace(RUN, split=2), {}, POINTS)
    if cut == complete:
        records = results.read()
    else:
        with pytest.warns(UserWarning, match="line 2: not a complete record"):
            records = results.read()
    assert [record["split"] for record in records] == [0, 2]


def test_a_line_that_lacks_only_its_end_of_line_counts(tmp_path: Path) -> None:
    results = Results(tmp_path / "r.jsonl")
    results.append(RUN, {}, POINTS)
    with results.path.open("r+b") as file:
        file.truncate(results.path.stat().st_size - 1)
    results.append(replace(RUN, split=1), {}, POINTS)
    assert [record["split"] for record in results.read()] == [0, 1]


@pytest.mark.parametrize(
    "change",
    [
        {"key": ["abc"]},
        {"model": None},
        {"split": "0"},
        {"settings": None},
        {"settings": {}},
        {"settings": {"num_layers": 2, "steps": [7]}},
        {"settings": {"num_layers": True}},
        {"settings": {"num_layers": 2, "learning_rate": float("nan")}},
        {"split": True},
        {"study": "../../evil"},
        {"seconds": float("inf")},
    ],
    ids=str,
)
def test_a_line_that_is_no_record_costs_that_line_only(change: dict, tmp_path: Path) -> None:
    results = Results(tmp_path / "r.jsonl")
    results.append(RUN, {}, POINTS)
    record = json.loads(results.path.read_text())
    with results.path.open("a") as file:
        file.write(json.dumps({**record, "key": "other", **change}) + "\n")
    with pytest.warns(UserWarning, match="line 2: not a complete record"):
        (read,) = results.read()
    assert read["key"] == RUN.key


@pytest.mark.parametrize("value", ["9" * 5000, "[" * 10**5, "-Infinity", "1e999"])
def test_a_value_that_cannot_be_read_costs_its_line_only(value: str, tmp_path: Path) -> None:
    results = Results(tmp_path / "r.jsonl")
    results.append(RUN, {}, POINTS)
    line = results.path.read_text().replace(RUN.key, "other")
    with results.path.open("a") as file:
        file.write(line.replace('"steps": 20000', f'"steps": {value}'))
    with pytest.warns(UserWarning, match="line 2: not a complete record"):
        assert [record["key"] for record in results.read()] == [RUN.key]


def test_a_mark_that_an_editor_sets_is_no_part_of_a_record(tmp_path: Path) -> None:
    results = Results(tmp_path / "r.jsonl")
    results.append(RUN, {"name": "é"}, POINTS)
    results.path.write_text(results.path.read_text(), encoding="utf-8-sig", newline="\r\n")
    results.append(replace(RUN, split=1), {}, POINTS)
    assert [record["split"] for record in results.read()] == [0, 1]


@pytest.mark.parametrize(("number", "last"), [(3, ""), (4, "1 more line"), (99, "96 more lines")])
def test_a_file_of_another_kind_has_few_warnings(tmp_path: Path, number: int, last: str) -> None:
    results = Results(tmp_path / "notes.txt")
    results.path.write_text("some text\n" * number)
    with pytest.warns(UserWarning) as caught:
        assert results.read() == []
    told = [str(warning.message) for warning in caught]
    assert told[:3] == [
        f"{results.path}, line {i}: not a complete record; it is ignored." for i in (1, 2, 3)
    ]
    assert told[3:] == ([f"{results.path}: the same of {last}."] if last else [])


def test_values_that_json_does_not_have_are_refused(tmp_path: Path) -> None:
    results = Results(tmp_path / "r.jsonl")
    with pytest.raises(ValueError):
        results.append(RUN, {"rmse": float("nan")}, POINTS)
    assert results.read() == []
    with pytest.raises(ValueError, match=r"record: .* got metrics.crps = inf\."):
        results.append(RUN, {"metrics": {"rmse": 1.0, "crps": float("inf")}}, POINTS)
    assert results.points(RUN.key) is None


def test_points_that_are_not_there(tmp_path: Path) -> None:
    assert Results(tmp_path / "r.jsonl").points("0" * 16) is None


@pytest.mark.parametrize("size", [0, 40, -30])
def test_points_that_are_damaged(size: int, tmp_path: Path) -> None:
    results = Results(tmp_path / "r.jsonl")
    results.append(RUN, {}, POINTS)
    path = results._points_path(RUN.key)
    path.write_bytes(path.read_bytes()[:size])
    with pytest.warns(UserWarning, match=rf"{path.name}: damaged"):
        assert results.points(RUN.key) is None


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected a file"):
        Results(tmp_path)

"""Average ranks over data sets and their critical distance."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gpflow_deep.experiments.figures import rank_figure
from gpflow_deep.experiments.ranks import Ranks, average_ranks, critical_distance
from gpflow_deep.experiments.report import write_report
from gpflow_deep.experiments.results import Results, Run
from gpflow_deep.experiments.summary import group
from gpflow_deep.presets import Settings

SCORES = {
    "boston": {"a": -2.0, "b": -1.0, "c": -3.0},
    "yacht": {"a": -1.0, "b": -0.5, "c": -0.5},
    "energy": {"a": 0.0, "b": 1.0, "c": 2.0},
}


def fill(results: Results) -> None:
    """Models on three data sets with two splits each; the splits' mean is the score."""
    settings = Settings()
    for dataset, scores in SCORES.items():
        for model, score in scores.items():
            for split in (0, 1):
                run = Run(model, dataset, "interpolation", split, 0, settings)
                metrics = {
                    "test_log_likelihood": score + (-1) ** split,
                    "rmse": 1.0,
                    "crps": 1.0,
                    "coverage95": 0.9,
                }
                results.append(
                    run, {"metrics": metrics, "seconds": 1.0}, {"log_density": np.zeros(3)}
                )


def test_average_ranks(tmp_path: Path) -> None:
    results = Results(tmp_path / "r.jsonl")
    fill(results)
    # A data set that not all models have been run on is no comparison.
    extra = Run("a", "concrete", "interpolation", 0, 0, Settings())
    metrics = {"test_log_likelihood": 5.0, "rmse": 1.0, "crps": 1.0, "coverage95": 0.9}
    results.append(extra, {"metrics": metrics, "seconds": 1.0}, {"log_density": np.zeros(3)})
    # Nor is a split that some have not.
    third = Run("a", "boston", "interpolation", 2, 0, Settings())
    metrics = {**metrics, "test_log_likelihood": 50.0}
    results.append(third, {"metrics": metrics, "seconds": 1.0}, {"log_density": np.zeros(3)})
    ranks = average_ranks(group(results.read()), "test_log_likelihood")
    assert ranks is not None
    assert ranks.datasets == ("boston", "energy", "yacht")
    by_model = {label.split()[0]: rank for label, rank in ranks.ranks.items()}
    assert by_model == pytest.approx({"b": 4.5 / 3, "c": 5.5 / 3, "a": 8.0 / 3})
    assert list(by_model) == ["b", "c", "a"]
    only_a = [entry for entry in group(results.read()) if entry.model == "a"]
    assert average_ranks(only_a, "test_log_likelihood") is None


def test_critical_distances_of_demsar() -> None:
    """Table 5 of the paper, and its example of four classifiers on 14 data sets."""
    for k, q in ((2, 1.960), (3, 2.343), (4, 2.569), (10, 3.164)):
        scale = np.sqrt(k * (k + 1) / (6.0 * 14))
        assert critical_distance(k, 14) / scale == pytest.approx(q, abs=1e-3)
    assert critical_distance(4, 14) == pytest.approx(1.25, abs=0.01)


def test_cliques() -> None:
    ranks = {"a": 1.0, "b": 1.5, "c": 2.2, "d": 4.0}
    assert Ranks(ranks, (), 1.0).cliques() == [("a", "b"), ("b", "c")]
    assert Ranks(ranks, (), 0.1).cliques() == []
    assert Ranks(ranks, (), 5.0).cliques() == [("a", "b", "c", "d")]


def test_report_has_ranks_and_their_diagram(tmp_path: Path) -> None:
    results = Results(tmp_path / "r.jsonl")
    fill(results)
    written = write_report(results.path, tmp_path / "out")
    assert tmp_path / "out" / "interpolation-ranks.png" in written
    text = written[0].read_text(encoding="utf-8")
    assert "average ranks" in text and "| b (L=2) | 1.50 |" in text
    figure = rank_figure(Ranks({"a": 1.2, "b": 1.8}, ("x", "y"), 1.0))
    shown = [text.get_text() for text in figure.axes[0].texts]
    assert "a  1.20" in shown and "1.80  b" in shown and "critical distance 1.00" in shown


def test_names_of_any_length_are_within_the_diagram() -> None:
    ranks = {f"{'a long name ' * length}({length})": 1.0 + length for length in (0, 3, 8, 1)}
    figure = rank_figure(Ranks(ranks, ("x", "y"), 6.0))
    figure.draw_without_rendering()
    for text in figure.axes[0].texts:
        box = text.get_window_extent()
        assert 0.0 <= box.x0 and box.x1 <= figure.bbox.x1, text.get_text()
        assert 0.0 <= box.y0 and box.y1 <= figure.bbox.y1, text.get_text()

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from matplotlib import image

from gpflow_deep import metrics
from gpflow_deep.command_line import demo
from gpflow_deep.experiments.datasets import load
from gpflow_deep.experiments.splits import STUDIES
from gpflow_deep.presets import Settings


def test_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = Settings(num_layers=2, hidden_dim=2, num_inducing=5, steps=2, validation_fraction=0.0)
    monkeypatch.setattr(demo, "_QUICK", tiny)
    lines: list[str] = []
    results = demo.run_demo(tmp_path / "out", quick=True, progress=False, echo=lines.append)

    assert [(r.study, r.model) for r in results] == [
        (study, model)
        for study in ("interpolation", "extrapolation")
        for model in ("svgp", "mean-field", "stripes-and-arrow")
    ]
    dataset = load("diabetes")
    for result in results:
        test = STUDIES[result.study](dataset, 0).test
        np.testing.assert_array_equal(result.Y, dataset.Y[test])
        mixture = result.regression.predict_y_mixture(dataset.X[test])
        assert result.scores["rmse"] == metrics.rmse(result.Y, metrics.mixture_moments(*mixture)[0])
        assert result.scores["coverage95"] == metrics.coverage(result.Y, *mixture)
        assert len(result.regression.model.layers) == (1 if result.model == "svgp" else 2)

    records = json.loads((tmp_path / "out" / "results.json").read_text())
    assert [record["rmse"] for record in records] == [r.scores["rmse"] for r in results]
    (table,) = (line for line in lines if "RMSE" in line)
    for result in results:
        assert f"{result.scores['rmse']:.2f}" in table
    for name in ("inducing_covariance", "variance_vs_error", "calibration"):
        picture = image.imread(tmp_path / "out" / f"{name}.png")
        assert picture[..., :3].std() > 0.0

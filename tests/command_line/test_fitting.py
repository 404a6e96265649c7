from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gpflow_deep import metrics
from gpflow_deep.command_line.fitting import fit_table, predict_table
from gpflow_deep.command_line.tables import CsvTable
from gpflow_deep.presets import Settings

_SETTINGS = Settings(
    num_layers=2, hidden_dim=2, num_inducing=6, steps=30, validate_every=15, learning_rate=0.02
)


def _data(num_rows: int = 40) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    X = rng.normal(size=(num_rows, 2))
    return X, np.sin(2.0 * X[:, :1]) + 0.1 * rng.normal(size=(num_rows, 1))


def _table(columns: dict[str, np.ndarray]) -> CsvTable:
    rows = tuple(zip(*(map(repr, map(float, values)) for values in columns.values()), strict=True))
    return CsvTable(Path("data.csv"), tuple(columns), rows, tuple(range(2, len(rows) + 2)))


def test_a_table_is_fitted_and_predicted_by_column_names() -> None:
    X, Y = _data()
    columns = {
        "b": X[:, 1],
        "": np.arange(40.0),
        "flat": np.full(40, 0.1),
        "y": Y[:, 0],
        "id": np.arange(40.0),
        "a": X[:, 0],
    }
    fit, notes = fit_table(
        _table(columns), "y", "mean-field", _SETTINGS, exclude=["id"], progress=False
    )
    assert fit.input_names == ("b", "a") and fit.target_name == "y"
    assert len(notes) == 2 and "without a name" in notes[0] and "flat" in notes[1]

    new = _table({"a": X[:5, 0], "more": X[:5, 0], "b": X[:5, 1], "y": Y[:5, 0]})
    names, values, notes = predict_table(fit, new, [0.1, 0.5, 0.9])
    mixture = fit.predict_y_mixture(X[:5, ::-1])
    mean, variance = metrics.mixture_moments(*mixture)
    assert names == ["mean", "sd", "q0.1", "q0.5", "q0.9"]
    np.testing.assert_allclose(values[:, :2], np.hstack([mean, np.sqrt(variance)]))
    np.testing.assert_allclose(
        np.stack([metrics.pit(values[:, [j]], *mixture)[:, 0] for j in (2, 3, 4)], axis=1),
        np.tile([0.1, 0.5, 0.9], (5, 1)),
    )
    assert notes == ["Ignored columns that the model does not use: more."]
    with pytest.raises(ValueError, match="no column 'b'"):
        predict_table(fit, _table({"a": X[:5, 0]}))


def test_fewer_layers_than_asked_for_are_noted() -> None:
    X, Y = _data()
    table = _table({"a": X[:, 0], "y": Y[:, 0]})
    settings = replace(_SETTINGS, num_layers=2)
    fit, notes = fit_table(table, "y", "svgp", settings, progress=False)
    assert len(fit.model.layers) == 1
    assert notes == ["Built 1 layer(s), the most that svgp can have."]
    with pytest.raises(ValueError, match="exclude: .* got 'y'"):
        fit_table(table, "y", "svgp", settings, exclude=["y"], progress=False)


@pytest.mark.parametrize(
    "columns, message",
    [
        ({"a": np.arange(20.0), "y": np.ones(20)}, "'y' is constant"),
        ({"a": np.ones(20), "y": np.arange(20.0)}, "a column besides 'y' that varies"),
        ({"y": np.arange(20.0)}, "a column besides 'y' that varies"),
        ({"a": np.arange(20.0)}, "no column 'y'"),
    ],
)
def test_tables_that_cannot_be_fitted(columns: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit_table(_table(columns), "y", "mean-field", _SETTINGS, progress=False)

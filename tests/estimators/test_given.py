"""What is wrong with parameters and data is told by name, before any work."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from gpflow_deep.estimators import DeepGPClassifier, DeepGPRegressor
from gpflow_deep.estimators.given import check_parameters

_X = np.random.default_rng(0).normal(size=(24, 2))
_y = np.sin(_X[:, 0])
_TABLE = pd.DataFrame(_X, columns=["a", "b"])
_LABELS = np.array(["no", "yes"] * 12, object)


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("settings", [1], "expected values by name or None, got \\[1\\]"),
        ("settings", "rbf", "expected values by name or None, got 'rbf'"),
        ("verbose", "loud", "expected a number of at least 0, got 'loud'"),
        ("warm_start", "yes", "expected True or False, got 'yes'"),
        ("warp", 1, "expected True or False, got 1"),
        ("random_state", "a", "expected an integer in .* got 'a'"),
        ("checkpoint_dir", 3, "expected a path or None, got 3"),
        ("float", "float16", "expected 'float32' or 'float64', got 'float16'"),
    ],
)
def test_a_parameter_that_cannot_work_is_named(name: str, value: Any, told: str) -> None:
    parameters: dict[str, Any] = {name: value}
    with pytest.raises((TypeError, ValueError), match=f"^{name}: {told}"):
        DeepGPRegressor("svgp", **parameters).fit(_X, _y)


@pytest.mark.parametrize(
    ("model", "parameters", "told"),
    [
        ("gp", dict(num_layers=3), "^num_layers: 'gp' has 1 always, .* the 3 given"),
        ("constant", dict(kernel="rbf"), "^kernel: 'constant' has 'constant' always, .* the 'rbf'"),
        ("rough-gp", dict(kernel="rbf"), "^kernel: 'rough-gp' has 'matern12' always, .* the 'rbf'"),
    ],
)
def test_a_parameter_without_effect_is_told(
    model: str, parameters: dict[str, Any], told: str
) -> None:
    with pytest.warns(UserWarning, match=told):
        check_parameters(DeepGPRegressor(model, **parameters))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("model", "parameters"),
    [
        ("gp", dict(num_layers=1, kernel="rbf", verbose=True)),
        ("rough-gp", dict(kernel="matern12")),
        ("mean-field", dict(num_layers=3, random_state=np.random.RandomState(1))),
        ("auto", dict(num_layers=3, kernel="rbf", checkpoint_dir="folder")),
    ],
)
def test_parameters_that_have_their_effect_are_not(model: str, parameters: dict[str, Any]) -> None:
    assert 0 <= check_parameters(DeepGPRegressor(model, **parameters)) < 2**31


@pytest.mark.parametrize(
    ("cells", "told"),
    [
        (pd.Categorical(["u", "v"] * 12), "category such as u"),
        (["u", *range(23)], "object such as u"),
        ([*range(23), "v"], "object such as v"),
        (pd.date_range("2020", periods=24), "datetime64.* such as 2020"),
        (pd.to_timedelta(np.arange(24), unit="D"), "timedelta64.* such as 0 days"),
        (pd.Categorical(pd.date_range("2020", periods=24)), "category such as 2020"),
        (np.array([*range(23), np.datetime64("2020", "s")], object), "object such as 2020"),
    ],
)
def test_a_column_that_is_no_numbers_is_named(cells: Any, told: str) -> None:
    with pytest.raises(ValueError, match=f"^X, column 'c': expected numbers, got {told}"):
        DeepGPRegressor("constant").fit(_TABLE.assign(c=cells), _y)
    fitted = DeepGPRegressor("constant").fit(_TABLE.assign(c=1.0), _y)
    with pytest.raises(ValueError, match=f"^X, column 'c': expected numbers, got {told}"):
        fitted.predict(_TABLE.assign(c=cells))


@pytest.mark.parametrize("kind", ["datetime64[s]", "timedelta64[D]"])
def test_times_alone_are_no_numbers(kind: str) -> None:
    """They would be counts of a unit that nobody chose."""
    times = np.arange(24).astype(kind)[:, None]
    fitted = DeepGPRegressor("constant").fit(np.arange(24.0)[:, None], _y)
    table = pd.DataFrame({"c": times[:, 0]})
    for X, told in ((times, f"^X: expected numbers, got {kind[:4]}"), (table, "^X, column 'c'")):
        for call in (
            lambda X=X: DeepGPRegressor("constant").fit(X, _y),
            lambda X=X: fitted.predict(X),
        ):
            with pytest.raises(ValueError, match=told):
                call()


_TIMES = pd.date_range("2020", periods=24).to_numpy()
_DURATIONS = _TIMES - _TIMES[0]


class _Kind:
    """A type of cells as polars has them."""

    def is_temporal(self) -> bool:
        return True

    def __str__(self) -> str:
        return "Date"


class _Column:
    """A column as polars has them, which numpy takes for numbers where it is asked for those."""

    dtype = _Kind()
    shape = (24,)

    def __len__(self) -> int:
        return 24

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return _TIMES.astype(dtype) if dtype else _TIMES


class _Frame:
    """A table as polars has them, of numbers and times: an array of numbers."""

    shape = (24, 2)

    def __len__(self) -> int:
        return 24

    def iter_columns(self) -> Any:
        return iter([pd.Series(_y), _Column()])

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.column_stack([_y, np.asarray(_Column(), float)])


@pytest.mark.parametrize(
    ("times", "kind"),
    [
        (pd.DataFrame({"a": _TIMES}), "datetime64"),
        (pd.DataFrame({"a": _y, "b": _DURATIONS}), "timedelta64"),
        (pd.DataFrame({"a": pd.Series(list(_TIMES), dtype=object)}), "datetime64"),
        (pd.Series(pd.Categorical(_TIMES)), "datetime64"),
        (list(_TIMES), "datetime64"),
        (list(_DURATIONS), "timedelta64"),
        (pd.to_timedelta(_DURATIONS).to_list(), "Timedelta"),
        ([*_y[:-1], _DURATIONS[-1]], "timedelta64"),
        (np.array([*_y[:-1], _TIMES[-1]], object), "datetime64"),
        (_Column(), "Date"),
        (_Frame(), "Date"),
    ],
)
def test_times_as_targets_are_no_numbers(times: Any, kind: str) -> None:
    with pytest.raises(ValueError, match=f"^y: expected numbers, got {kind}.*Count times in a"):
        DeepGPRegressor("constant").fit(_X, times)


@pytest.mark.parametrize(
    ("times", "kind"),
    [
        ([[time] for time in _TIMES], "datetime64"),
        ([[1.0, duration] for duration in _DURATIONS], "timedelta64"),
        (np.array([[*_y[:-1], _TIMES[-1]]], object).T, "datetime64"),
        (_Frame(), "Date"),
    ],
)
def test_times_among_inputs_are_no_numbers(times: Any, kind: str) -> None:
    with pytest.raises(ValueError, match=f"^X: expected numbers, got {kind}.*Count times in a"):
        DeepGPRegressor("constant").fit(times, _y)


@pytest.mark.parametrize("library", ["polars", "pyarrow"])
def test_times_in_tables_of_other_libraries_are_no_numbers(library: str) -> None:
    table = getattr(pytest.importorskip(library), {"polars": "DataFrame"}.get(library, "table"))
    numbers = {"a": _X[:, 0], "b": _X[:, 1]}
    DeepGPRegressor("constant").fit(table(numbers), table({"y": _y}))
    for times in (_TIMES, _DURATIONS):
        with pytest.raises(ValueError, match="^X: expected numbers, .*Count times in a unit"):
            DeepGPRegressor("constant").fit(table(numbers | {"c": times}), _y)
        with pytest.raises(ValueError, match="^y: expected numbers, .*Count times in a unit"):
            DeepGPRegressor("constant").fit(_X, table({"y": times}))


class _NamedTable:
    """A table as pyarrow has them, which is no array of numbers where a column is text."""

    column_names = ("a", "b")
    shape = (24, 2)

    def __len__(self) -> int:
        return 24

    def itercolumns(self) -> Any:
        return iter([pd.Series(_y), pd.Series(["u"] * 24)])

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.array([[*row] for row in zip(_y, ["u"] * 24)], object).astype(dtype or object)


class _Series:
    """A column as polars has them, of a type that is none of NumPy's."""

    dtype = "String"
    shape = (24,)

    def __len__(self) -> int:
        return 24

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.array(["u"] * 23 + [None], object).astype(dtype or object)


def test_text_in_tables_of_other_libraries_is_named() -> None:
    with pytest.raises(ValueError, match="^X, column 'b': expected numbers, got .* such as u"):
        DeepGPRegressor("constant").fit(_NamedTable(), _y)
    with pytest.raises(ValueError, match="^Input y contains NaN: .* got none in row 23"):
        DeepGPRegressor("constant").fit(_X, _Series())


@pytest.mark.parametrize(
    "columns",
    [{"c": pd.Categorical([1, 2] * 12)}, {"c": [*map(str, range(24))]}, {"c": [True] * 24}],
)
def test_a_column_that_can_be_numbers_is_taken(columns: dict[str, Any]) -> None:
    """As scikit-learn takes it."""
    fitted = DeepGPRegressor("constant").fit(_TABLE.assign(**columns), _y)
    assert np.isfinite(fitted.predict(_TABLE.assign(**columns))).all()


@pytest.mark.parametrize(
    ("y", "told"),
    [
        (pd.date_range("2020", periods=24), "^y: expected numbers, got datetime64"),
        (["u"] * 24, "^y: expected numbers, got 'u'"),
        (np.array([*"1234567", "x"] * 3, object), "^y: expected numbers, got 'x'"),
        (np.full(24, np.nan), "Input y contains NaN"),
    ],
)
def test_targets_that_are_no_numbers_are_named(y: Any, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        DeepGPRegressor("constant").fit(_TABLE, y)


@pytest.mark.parametrize("missing", [np.nan, None, pd.NA])
@pytest.mark.parametrize("kind", [object, "string", "category"])
def test_a_missing_label_is_found(missing: Any, kind: Any) -> None:
    y = pd.Series(_LABELS)
    y[3] = missing
    with pytest.raises(ValueError, match="^Input y contains NaN: .* got none in row 3"):
        DeepGPClassifier("svgp").fit(_X, y.astype(kind))


def test_times_are_labels() -> None:
    y = np.array(["2020-01-01", "2021-01-01"] * 12, "datetime64[D]")
    classifier = DeepGPClassifier("svgp", steps=1, num_inducing=4, random_state=0).fit(_X, y)
    np.testing.assert_array_equal(classifier.classes_, y[:2])


def test_labels_of_several_types_are_told() -> None:
    for first in (0, 1):
        y = _LABELS.copy()
        y[first::2] = 1
        with pytest.raises(ValueError, match="y: expected labels of one type, got int, str"):
            DeepGPClassifier("svgp").fit(_X, y)


def test_weights_that_are_no_numbers_are_named() -> None:
    with pytest.raises(ValueError, match="^sample_weight: expected numbers, got: .*'u'"):
        DeepGPRegressor("constant").fit(_X, _y, sample_weight=["u"] * 24)

"""What people write in the cells of a table: nothing, numbers, yes and no, dates."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

__all__ = ["booleans", "date_order", "days", "found_numbers", "is_missing", "numbers"]

_NO_LABEL = frozenset({"", "?", "na", "n/a", "nan", "null", "#n/a"})
_MISSING = _NO_LABEL | {"-", ".", "none", "nil", "missing"}
_TRUE, _FALSE = frozenset({"true", "yes", "t", "y"}), frozenset({"false", "no", "f", "n"})
_DAY = 86_400.0
#: Two fields of which each may be the day, the year, and perhaps a time.
_DAY_OR_MONTH_FIRST = r"^(\d{1,2})[-/.](\d{1,2})[-/.](\d{4}|\d{2})(?!\d)(.*)$"
_DAY_FIRST, _MONTH_FIRST = "day first", "month first"


def is_missing(cells: pd.Series, labels: bool = False) -> pd.Series:
    """
    Which cells hold nothing, or what people write for nothing.

    :param labels: whether cells are names of classes, of which "none" is one like others.
    """
    nothing = _NO_LABEL if labels else _MISSING
    missing: pd.Series = cells.isna() | _text(cells).str.lower().isin(nothing)
    return missing


def numbers(cells: pd.Series, decimal_comma: bool = False, thousands: bool = False) -> pd.Series:
    """
    The finite numbers among cells, NaN for others.

    :param decimal_comma: whether decimals follow a comma, and points may stand between thousands, rather than
        the other way round.
    :param thousands: whether a mark between thousands may stand where it could be that of decimals.
    """
    if (decimal_comma or thousands) and not pd.api.types.is_numeric_dtype(cells):
        decimal, between = (",", r"\.") if decimal_comma else (r"\.", ",")
        ways = [rf"\d*(?:{decimal}\d*)?", _grouped(between) + rf"{decimal}\d+"]
        ways.append(_grouped(between, "+" if thousands else "{2,}"))
        text = _text(cells)
        text = text.where(text.str.fullmatch(rf"[+-]?(?:{'|'.join(ways)})(?:[eE][+-]?\d+)?"))
        cells = text.str.replace(between, "", regex=True).str.replace(",", ".", regex=False)
    values = pd.to_numeric(cells, errors="coerce").astype(float)
    return values.where(np.isfinite(values))


def found_numbers(cells: pd.Series, share: float = 1.0) -> tuple[tuple[bool, bool], pd.Series]:
    """
    The likeliest way in which numbers in the cells may be written, as :func:`numbers` takes it, and these.

    :param share: of the cells that must be numbers then. Of cells that are not, no matter how they are read,
        the last way is returned.
    """
    for notation in _notations(cells):
        values = numbers(cells, *notation)
        if values.notna().mean() >= share:
            break
    return notation, values


def _notations(cells: pd.Series) -> Iterator[tuple[bool, bool]]:
    """The likeliest first."""
    yield False, False
    text = _text(cells)
    comma = text.str.contains(",", regex=False)
    if comma.any() and text[comma].str.fullmatch(rf"[+-]?{_grouped(',')}(?:\.\d+)?").all():
        # Decimals would be three in every cell that has any; 1,234 beside 12.5, 950 or 1,234,567 has none.
        is_sure = text.str.contains(r"\.|,.*,").any()
        if is_sure or not (comma | text.str.contains(r"\d{4}")).all():
            yield False, True
    points = text.str.fullmatch(r"[+-]?" + _grouped(r"\.") + r"(?:,\d+|\.\d{3})")
    yield True, bool(points.any())


def booleans(cells: pd.Series) -> pd.Series:
    """1 for yes, 0 for no, NaN for others."""
    text = _text(cells).str.lower()
    values = pd.Series(np.nan, index=cells.index)
    return values.mask(text.isin(_TRUE), 1.0).mask(text.isin(_FALSE), 0.0)


def date_order(cells: pd.Series) -> str | None:
    """
    "day first" or "month first" for dates such as 13/02/2020, by those that can be but one of them; of
    none, points say day first. "" for dates that begin with the year, ``None`` where cells contradict.
    """
    fields = _text(cells).str.extract(_DAY_OR_MONTH_FIRST)
    if fields[0].isna().all():
        return ""
    first, second = ((fields[i].astype(float) > 12).any() for i in (0, 1))
    if first and second:
        return None
    points = _text(cells).str.contains(r"^\d+\.").any()
    return _DAY_FIRST if first or (points and not second) else _MONTH_FIRST


def days(cells: pd.Series, order: str = "") -> pd.Series:
    """
    Dates as days since 1970; NaN for what is none.

    :param order: see :func:`date_order`: one for all cells, where pandas decides for each.
    """
    if not pd.api.types.is_datetime64_any_dtype(cells):
        text = _text(cells)
        # pandas takes much for a date; one has two separators.
        text = text.where(text.str.contains(r"\d[-/.: ]\w+[-/.: ]\d"))
        cells = _year_first(text, order) if order else text
    dates = pd.to_datetime(cells, errors="coerce", format="mixed", utc=True)
    epoch = pd.Timestamp("1970-01-01", tz="UTC")
    return (dates - epoch).dt.total_seconds() / _DAY


def _year_first(text: pd.Series, order: str) -> pd.Series:
    fields = text.str.extract(_DAY_OR_MONTH_FIRST)
    day, month = (0, 1) if order == _DAY_FIRST else (1, 0)
    year = fields[2].fillna("")
    century = pd.Series(np.where(year <= "68", "20", "19"), index=text.index)  # as POSIX has it
    year = year.where(year.str.len() == 4, century + year)
    dates = year + "-" + fields[month].str.zfill(2) + "-" + fields[day].str.zfill(2) + fields[3]
    return dates.where(fields[0].notna(), text)


def _grouped(between: str, times: str = "+") -> str:
    """Digits by threes."""
    return rf"[1-9]\d{{0,2}}(?:{between}\d{{3}}){times}"


def _text(cells: pd.Series) -> pd.Series:
    return cells.astype(str).str.strip()

"""What people write in the cells of a table: nothing, numbers, yes and no, dates, times of day."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

__all__ = [
    "Notation",
    "booleans",
    "composed",
    "composed_names",
    "date_order",
    "days",
    "found_numbers",
    "is_binary",
    "is_missing",
    "numbers",
    "seconds",
    "seconds_of_day",
]

#: In small letters, as people, spreadsheets, pandas, databases and old C libraries write it.
_NO_LABEL = frozenset(
    {"", "?", "na", "n/a", "nan", "-nan", "null", "(null)", "<na>", "\\n"}
    | {"#n/a", "#n/a n/a", "#na", "-1.#ind", "-1.#qnan", "1.#ind", "1.#qnan"}
)
_MISSING = _NO_LABEL | {"-", ".", "none", "nil", "missing", "nat"}
_TRUE, _FALSE = frozenset({"true", "yes", "t", "y"}), frozenset({"false", "no", "f", "n"})
_DAY = 86_400.0
#: Two fields of which each may be the day, the year, and perhaps a time.
_DAY_OR_MONTH_FIRST = r"^(\d{1,2})[-/.](\d{1,2})[-/.](\d{4}|\d{2})(?!\d)(.*)$"
_DAY_FIRST, _MONTH_FIRST, _NO_DAY = "day first", "month first", "months without days"
#: In small letters, as cells are made before they are compared.
_NAME = (
    r"(jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sep(?:t(?:ember)?)?"
    r"|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\.?"
)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_BETWEEN = r"(?:,\s*|[-/ ]\s*)"
#: The month's name, the day and the year, perhaps behind the day of the week.
_NAME_FIRST = (
    rf"^(?:[a-z]+{_BETWEEN})?{_NAME}[-/ ]\s*\d{{1,2}}(?:st|nd|rd|th)?{_BETWEEN}\d{{4}}(?!\d)"
)
#: A year that data are of, and a month: among codes of digits most are not both.
_YEAR, _MONTH = r"((?:1[7-9]|2[01])\d\d)", r"(0[1-9]|1[0-2])"
_YEAR_AND_MONTH = rf"{_YEAR}[-/]{_MONTH}"
#: The year has four digits: in Jan-18 it may be the day.
_WITHOUT_DAY = rf"^(?:{_YEAR_AND_MONTH}|{_MONTH}[-/]{_YEAR}|{_NAME}{_BETWEEN}{_YEAR})$"
_TIME_OF_DAY = r"(\d{1,2}):([0-5]\d)(?::([0-5]\d(?:\.\d+)?))?\s*(?:([ap])\.?m\.?)?"
#: What a date may have beside it: a time, and its zone.
_BESIDE_A_DATE = r"\d{1,2}(?::\d{1,2}){1,2}(?:\.\d+)?(?:\s*[+-]\d{2}:?\d{2})?"
#: What stands before a number, the number, and what stands behind it.
_PARTS = r"^[+-]?([^\d+\-.,]*)[+-]?[.,]?\d(?:.*\d)?[.,]?(\D*)$"
#: A percent sign, degrees, or letters and what units have beside them: kg/m², l/h.
_UNIT = re.compile(r"(?:[^\W\d_]|[%‰°])(?:[^\W\d_]|[%‰°/.· -]){,20}")
_COMMA_BETWEEN_THOUSANDS = "$£"  # where these are money, no comma is that of decimals


class Notation(NamedTuple):
    """
    How the numbers of a column are written.

    :param decimal_comma: whether decimals follow a comma, and points may stand between thousands, rather than
        the other way round.
    :param thousands: whether a mark between thousands may stand where it could be that of decimals.
    :param prefix: what stands before each of them, such as a sign of money.
    :param suffix: what stands behind each of them, such as a percent sign or a unit.
    """

    decimal_comma: bool = False
    thousands: bool = False
    prefix: str = ""
    suffix: str = ""

    @property
    def beside(self) -> str:
        """What stands beside each number, for the user."""
        places = {"after": self.prefix, "before": self.suffix}
        return "".join(f" {place} {text!r}" for place, text in places.items() if text)

    def __str__(self) -> str:
        """For the user, where it is not the usual way."""
        marks = ", decimal comma" if self.decimal_comma else ""
        if self.thousands:
            marks += ", points" if self.decimal_comma else ", commas"
            marks += " between thousands"
        return self.beside + marks


def composed(value: Any) -> Any:
    """Text with each letter and its marks as one character, where there is one; all else as it is."""
    return unicodedata.normalize("NFC", value) if isinstance(value, str) else value


def composed_names(names: Iterable[str]) -> tuple[str, ...]:
    """Names of an older fit as tables are read now, unless two of them would then be one."""
    names = tuple(names)
    made = tuple(map(composed, names))
    return made if len(set(made)) == len(set(names)) else names


def is_binary(cells: pd.Series) -> bool:
    """Whether cells are bytes, as Parquet has them, of which there is no text."""
    return bool(pd.api.types.infer_dtype(cells) == "bytes")


def is_missing(cells: pd.Series, labels: bool = False) -> pd.Series:
    """
    Which cells hold nothing, or what people write for nothing.

    :param labels: whether cells are names of classes, of which "none" is one like others.
    """
    nothing = _NO_LABEL if labels else _MISSING
    missing: pd.Series = cells.isna() | _text(cells).str.lower().isin(nothing)
    return missing


def numbers(
    cells: pd.Series,
    decimal_comma: bool = False,
    thousands: bool = False,
    prefix: str = "",
    suffix: str = "",
) -> pd.Series:
    """
    The finite numbers among cells, NaN for others. The parameters are those of a :class:`Notation`; what
    stands beside a number has to stand beside all.
    """
    if _has_times(cells):  # which pandas would take for counts of its units
        return pd.Series(np.nan, index=cells.index)
    if prefix or suffix:
        cells = _bare(_text(cells), prefix, suffix)
    if (decimal_comma or thousands) and not pd.api.types.is_numeric_dtype(cells):
        decimal, between = (",", r"\.") if decimal_comma else (r"\.", ",")
        ways = [rf"\d*(?:{decimal}\d*)?", _grouped(between) + rf"{decimal}\d+"]
        ways.append(_grouped(between, "+" if thousands else "{2,}"))
        text = _text(cells)
        text = text.where(text.str.fullmatch(rf"[+-]?(?:{'|'.join(ways)})(?:[eE][+-]?\d+)?"))
        cells = text.str.replace(between, "", regex=True).str.replace(",", ".", regex=False)
    values = pd.to_numeric(cells, errors="coerce").astype(float)
    return values.where(np.isfinite(values))


def found_numbers(cells: pd.Series, share: float = 1.0) -> tuple[Notation, pd.Series]:
    """
    The likeliest way in which numbers in the cells may be written, and these.

    :param share: of the cells that must be numbers then. Where they are not, no matter how they are read, it
        is the way by which most of them are.
    """
    tried: list[tuple[Notation, pd.Series]] = []
    for notation in _ways(_text(cells)):
        tried.append((notation, numbers(cells, *notation)))
        if tried[-1][1].notna().mean() >= share:
            return tried[-1]
    return max(reversed(tried), key=lambda way: int(way[1].notna().sum()))


def _ways(text: pd.Series) -> Iterator[Notation]:
    """The likeliest first."""
    yield from _notations(text)
    prefix, suffix = _beside(text)
    if prefix or suffix:
        yield from _notations(_bare(text, prefix, suffix), prefix, suffix)


def _notations(text: pd.Series, prefix: str = "", suffix: str = "") -> Iterator[Notation]:
    """The likeliest first, of numbers that have this beside them."""
    yield Notation(False, False, prefix, suffix)
    comma = text.str.contains(",", regex=False)
    if comma.any() and text[comma].str.fullmatch(rf"[+-]?{_grouped(',')}(?:\.\d+)?").all():
        # Decimals would be three in every cell that has any; 1,234 beside 12.5, 950 or 1,234,567 has none.
        is_sure = text.str.contains(r"\.|,.*,").any()
        is_sure |= any(sign in prefix + suffix for sign in _COMMA_BETWEEN_THOUSANDS)
        if is_sure or not (comma | text.str.contains(r"\d{4}")).all():
            yield Notation(False, True, prefix, suffix)
    points = text.str.fullmatch(r"[+-]?" + _grouped(r"\.") + r"(?:,\d+|\.\d{3})")
    yield Notation(True, bool(points.any()), prefix, suffix)


def _beside(text: pd.Series) -> tuple[str, str]:
    """What stands before and behind most numbers in cells, if that is money or a unit: A12 is a name."""
    parts = text.str.extract(_PARTS).dropna()
    if parts.empty:
        return "", ""
    prefix, suffix = (part.strip() for part in parts.value_counts().index[0])
    if prefix and not _is_money(prefix):
        return "", ""
    is_unit = _UNIT.fullmatch(suffix) and suffix.lower().replace(".", "") not in ("am", "pm")
    return (prefix, suffix) if not suffix or _is_money(suffix) or is_unit else ("", "")


def _is_money(text: str) -> bool:
    """Whether text is a sign of money, or one with letters: US$."""
    kinds = {unicodedata.category(character) for character in text}
    return "Sc" in kinds and kinds <= {"Sc", "Lu"} and len(text) <= 4


def _bare(text: pd.Series, prefix: str, suffix: str) -> pd.Series:
    """Cells without what stands beside numbers; nothing for those that have it not."""
    parts = text.str.extract(rf"^([+-]?)\s*{re.escape(prefix)}\s*(.*?)\s*{re.escape(suffix)}$")
    return (parts[0] + parts[1]).fillna("")


def booleans(cells: pd.Series) -> pd.Series:
    """1 for yes, 0 for no, NaN for others."""
    text = _text(cells).str.lower()
    values = pd.Series(np.nan, index=cells.index)
    return values.mask(text.isin(_TRUE), 1.0).mask(text.isin(_FALSE), 0.0)


def date_order(cells: pd.Series, share: float = 1.0) -> str | None:
    """
    "day first" or "month first" for dates such as 13/02/2020, by those that can be but one of them; of
    none, points say day first. "" for dates that begin with the year, ``None`` where cells contradict.
    "months without days" for months and years such as 2018-01.

    :param share: of the cells that must be months without days, where they are that.
    """
    are_months = _first_days(_text(cells)).notna()
    if are_months.mean() >= share and not _are_seasons(_text(cells)[are_months]):
        return _NO_DAY
    fields = _text(cells).str.extract(_DAY_OR_MONTH_FIRST)
    if fields[0].isna().all():
        return ""
    # Two fields that no month has, as in 31/31/2020, are no date in either order.
    large = fields[[0, 1]].astype(float) > 12
    first, second = ((large[i] & ~large[1 - i]).any() for i in (0, 1))
    if first and second:
        return None
    points = _text(cells).str.contains(r"^\d+\.").any()
    return _DAY_FIRST if first or (points and not second) else _MONTH_FIRST


def days(cells: pd.Series, order: str | None = None) -> pd.Series:
    """
    Dates as days since 1970; NaN for what is none, or is written in another order.

    :param order: see :func:`date_order`: one for all cells, where pandas decides for each by default. Months
        without days are their first days.
    """
    if pd.api.types.is_datetime64_any_dtype(cells):
        pass
    elif order == _NO_DAY:
        cells = _first_days(_text(cells))
    else:
        text = _text(cells)
        # pandas takes much for a date; one has two separators, and more than a time, which would be today's.
        is_date = text.str.contains(r"\d[-/.: ]\w+[-/.: ]\d")
        is_date &= text.str.replace(_BESIDE_A_DATE, "", regex=True).str.contains(r"\d")
        is_date |= text.str.lower().str.match(_NAME_FIRST, na=False)
        text = text.where(is_date)
        if order == "":
            text = text.where(~text.str.match(_DAY_OR_MONTH_FIRST, na=False))
        cells = _year_first(text, order) if order else text
    dates = pd.to_datetime(cells, errors="coerce", format="mixed", utc=True)
    dates = dates.where(dates.dt.year > 1)  # as pandas has those without a year
    epoch = pd.Timestamp("1970-01-01", tz="UTC")
    return (dates - epoch).dt.total_seconds() / _DAY


def seconds_of_day(cells: pd.Series) -> pd.Series:
    """Times of day without a date, such as 9:30, 21:30:00.5 or 9:30 PM, as seconds; NaN for what is none."""
    fields = _text(cells).str.lower().str.extract(f"^{_TIME_OF_DAY}$")
    hour, minute, second = (fields[i].astype(float) for i in range(3))
    of_twelve = fields[3].notna()
    hour = hour.where(hour.between(1, 12).where(of_twelve, hour < 24))
    hour = (hour % 12 + 12 * (fields[3] == "p")).where(of_twelve, hour)
    return 3600 * hour + 60 * minute + second.fillna(0.0)


def seconds(cells: pd.Series) -> pd.Series:
    """Durations, of their own type or such as 1 days 02:00:00, as seconds; NaN for what is none."""
    if not pd.api.types.is_timedelta64_dtype(cells):
        text = _text(cells)
        cells = text.where(text.str.contains("day|:"))  # a number alone has no unit
    return pd.to_timedelta(cells, errors="coerce").dt.total_seconds()


def _year_first(text: pd.Series, order: str) -> pd.Series:
    fields = text.str.extract(_DAY_OR_MONTH_FIRST)
    day, month = (0, 1) if order == _DAY_FIRST else (1, 0)
    year = fields[2].fillna("")
    century = pd.Series(np.where(year <= "68", "20", "19"), index=text.index)  # as POSIX has it
    year = year.where(year.str.len() == 4, century + year)
    dates = year + "-" + fields[month].str.zfill(2) + "-" + fields[day].str.zfill(2) + fields[3]
    return dates.where(fields[0].notna(), text)


def _first_days(text: pd.Series) -> pd.Series:
    """The first days of months that have none, begun with the year; missing for what is no such month."""
    fields = text.str.lower().str.extract(_WITHOUT_DAY).fillna("")
    number = {"": ""} | {name: f"{month:02}" for month, name in enumerate(_MONTHS, start=1)}
    named = fields[4].str[:3].map(number)
    first = fields[0] + fields[3] + fields[5] + "-" + fields[1] + fields[2] + named + "-01"
    return first.where(first.str.len() == len("2018-01-01"))


def _are_seasons(text: pd.Series) -> bool:
    """Whether cells are two years in a row, 2009-10 to 2011-12, which could all be months."""
    fields = text.str.extract(f"^{_YEAR_AND_MONTH}$").astype(float)
    return bool(((fields[0] + 1) % 100 == fields[1]).all())


def _grouped(between: str, times: str = "+") -> str:
    """Digits by threes."""
    return rf"[1-9]\d{{0,2}}(?:{between}\d{{3}}){times}"


def _has_times(cells: pd.Series) -> bool:
    """Whether dates or durations are the column's own type, as in Parquet."""
    types = pd.api.types
    return types.is_datetime64_any_dtype(cells) or types.is_timedelta64_dtype(cells)


def _text(cells: pd.Series) -> pd.Series:
    return cells.astype(str).str.strip()

"""Tables of papers, as they are written down here."""

from __future__ import annotations

__all__ = ["Cell", "Table", "read_table"]

#: Mean over the splits and its standard error; None where it is not known.
Cell = tuple[float, float | None]
#: By model and layers, a cell for each data set; None where there is none.
Table = dict[tuple[str, int], list[Cell | None]]


def read_table(table: str, *, num_layers: int | None = None, splits: int = 1) -> Table:
    """
    Read a table of a line for each model: its name, its layers, and for each data set `mean±error`, or the
    mean where the error is not known, or `-` where there is neither.

    :param table: the lines.
    :param num_layers: of all models; None: each line says its own.
    :param splits: where the errors are standard deviations over so many splits.
    """

    def cell(text: str) -> Cell | None:
        if text == "-":
            return None
        mean, _, error = text.partition("±")
        return float(mean), float(error) / splits**0.5 if error else None

    rows: Table = {}
    for line in table.strip().splitlines():
        name, *cells = line.split()
        layers = int(cells.pop(0)) if num_layers is None else num_layers
        rows[name, layers] = [cell(text) for text in cells]
    return rows

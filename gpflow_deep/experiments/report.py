"""Tables of a benchmark's results beside the published values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from numbers import Real
from pathlib import Path
from typing import Any, TypeVar

from gpflow_deep.experiments.published import PAPERS, PUBLISHED_SHARES, find, published_as
from gpflow_deep.experiments.ranks import average_ranks
from gpflow_deep.experiments.results import Results, warn_of_each
from gpflow_deep.experiments.summary import Group, group, shares

__all__ = ["markdown", "write_report"]

_Value = TypeVar("_Value")

_HEADLINE = "test_log_likelihood"
_PUBLISHED = {
    _HEADLINE: "published log-likelihood",
    "rmse": "published RMSE",
    "objective_per_point": "published objective per point",
}
_COLUMNS = {
    _HEADLINE: "test log-likelihood",
    "rmse": "RMSE",
    "crps": "CRPS",
    "coverage95": "coverage of 95%",
}
_STANDARDISED = {
    "standardised_nll": "NLL; published",
    "standardised_rmse": "RMSE; published",
    "standardised_crps": "CRPS",
    "standardised_crps_as_published": "CRPS by the formula published; published",
}
# Compared in that paper too, without a table. What trains them differs: their size is to be the same.
_SIZE = ("num_layers", "hidden_dim", "hidden_scale")
_MORE_SHARES = (("sghmc", "mean-field", _SIZE), ("fully-coupled", "mean-field", _SIZE))


def write_report(results: Path | str, output: Path | str) -> list[Path]:
    """
    Write `report.md` and a figure for each study.

    :param results: file of JSON lines.
    :param output: folder for the files.
    :return: the files written.
    :raises ValueError: where there are no results.
    """
    # Importing matplotlib takes a while; tables do without.
    from gpflow_deep.experiments.figures import rank_figure, score_figure

    groups = _groups(Results(results))
    output = Path(output)
    output.mkdir(parents=True, exist_ok=True)
    text = markdown(results)
    written = [output / "report.md"]
    for study in _unique(entry.study for entry in groups):
        path = output / f"{study}.png"
        score_figure([entry for entry in groups if entry.study == study], _HEADLINE).savefig(path)
        text += f"\n![{_COLUMNS[_HEADLINE]}, {study}]({path.name})\n"
        written.append(path)
        ranks = average_ranks([entry for entry in groups if entry.study == study], _HEADLINE)
        if ranks is not None:
            path = output / f"{study}-ranks.png"
            rank_figure(ranks).savefig(path)
            text += f"\n![Average ranks, {study}]({path.name})\n"
            written.append(path)
    written[0].write_text(text, encoding="utf-8")
    return written


def markdown(results: Path | str) -> str:
    """
    The tables, in Markdown: one for each study and data set, one of how often a model is ahead.

    :param results: file of JSON lines.
    :raises ValueError: where there are no results.
    """
    store = Results(results)
    groups = _groups(store)
    sources: list[str] = []
    parts = ["# Results\n", "Means over the splits, with their standard errors in brackets.\n"]
    for study in _unique(entry.study for entry in groups):
        for dataset in _unique(entry.dataset for entry in groups if entry.study == study):
            here = [entry for entry in groups if (entry.study, entry.dataset) == (study, dataset)]
            parts += [f"## {study}: {dataset}\n", _score_table(study, dataset, here, sources)]
            standardised = _standardised_table(study, dataset, here, sources)
            if standardised:
                parts += ["Of standardised targets:\n", standardised]
        parts += _rank_table(study, [entry for entry in groups if entry.study == study])
    share_table = _share_table(store, groups, sources)
    if share_table:
        parts += ["## Share of test points with the higher log density\n", share_table]
    parts += [f"[{number}] {source}.\n" for number, source in enumerate(sources, start=1)]
    return "\n".join(parts)


def _groups(results: Results) -> list[Group]:
    complete, wrong = [], []
    for record in results.read():
        missing = _missing(record)
        if missing:
            wrong.append(f": run {record['key']} has no {', '.join(missing)}; it is left out")
        else:
            complete.append(record)
    warn_of_each(results.path, wrong, "run")
    groups = group(complete)
    if not groups:
        raise ValueError(f"results: no finished run in {results.path}.")
    return groups


def _missing(record: dict[str, Any]) -> list[str]:
    """Which of the scores that all tables show a record has not, and of others which are no scores."""
    metrics = record.get("metrics")
    scores = {**(metrics if isinstance(metrics, dict) else {}), "seconds": record.get("seconds")}
    shown = [*_COLUMNS, "seconds"]
    shown += [name for name in (*_PUBLISHED, *_STANDARDISED) if name in scores.keys() - shown]
    return [name for name in shown if not _is_score(scores.get(name))]


def _is_score(value: Any) -> bool:
    try:
        return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # an integer of too many digits
        return False


def _score_table(study: str, dataset: str, groups: Sequence[Group], sources: list[str]) -> str:
    published = {
        name: {(entry.model, entry.num_layers): entry for entry in find(dataset, study, name)}
        for name in _PUBLISHED
    }
    run = {(published_as(entry.model), entry.num_layers) for entry in groups}
    columns = [name for name in _PUBLISHED if name == _HEADLINE or run & published[name].keys()]
    scores = list(_COLUMNS)
    if "objective_per_point" in columns and all(
        "objective_per_point" in r["metrics"] for entry in groups for r in entry.records
    ):
        scores.append("objective_per_point")

    def cited(model: tuple[str, int]) -> list[str]:
        theirs = [published[name].get(model) for name in columns]
        return ["" if x is None else _cited(x.value, x.error, x.source, sources) for x in theirs]

    titles = {**_COLUMNS, "objective_per_point": "objective per point"}
    header = ["model", "splits", *(titles[name] for name in scores), "seconds"]
    rows = [
        [
            entry.label,
            str(entry.num_splits),
            *(str(entry.metric(name)) for name in scores),
            f"{entry.seconds().mean:.0f}",
            *cited((published_as(entry.model), entry.num_layers)),
        ]
        for entry in groups
    ]
    # What the same papers published of models that have not been run here is a yardstick all the same.
    papers = {theirs.source for model, theirs in published[_HEADLINE].items() if model in run}
    for model, theirs in published[_HEADLINE].items():
        if model not in run and (theirs.source in papers or not papers):
            label = f"{model[0]} (L={model[1]})"
            rows.append([label, *[""] * (len(header) - 1), *cited(model)])
    return _table([*header, *(_PUBLISHED[name] for name in columns)], rows)


def _rank_table(study: str, groups: Sequence[Group]) -> list[str]:
    ranks = average_ranks(groups, _HEADLINE)
    if ranks is None:
        return []
    rows = [[label, f"{value:.2f}"] for label, value in ranks.ranks.items()]
    explanation = (
        f"By test log-likelihood, over {', '.join(ranks.datasets)}. Two models differ significantly (Nemenyi"
        f" test at 0.05; Demsar 2006) where their ranks differ by more than {ranks.critical_distance:.2f}.\n"
    )
    return [f"## {study}: average ranks\n", explanation, _table(["model", "average rank"], rows)]


def _standardised_table(
    study: str, dataset: str, groups: Sequence[Group], sources: list[str]
) -> str:
    """Scores of standardised targets, each with the published one; empty where none is published."""
    published = {
        (entry.model, entry.num_layers, name): entry
        for name in _STANDARDISED
        for entry in find(dataset, study, name)
    }
    rows = []
    for entry in groups:
        if not published or not all(
            name in r["metrics"] for r in entry.records for name in _STANDARDISED
        ):
            continue
        cells = [entry.label, str(entry.num_splits)]
        for name in _STANDARDISED:
            theirs = published.get((published_as(entry.model), entry.num_layers, name))
            cells.append(str(entry.metric(name)))
            if theirs is not None:
                cells[-1] += f"; {_cited(theirs.value, theirs.error, theirs.source, sources, 3)}"
        rows.append(cells)
    return _table(["model", "splits", *_STANDARDISED.values()], rows) if rows else ""


def _share_table(results: Results, groups: Sequence[Group], sources: list[str]) -> str:
    header = ["study", "data set", "model", "ahead of", "splits", "share", "published"]
    rows = []
    published = _unique(
        (paper + entry.model, paper + entry.rival, None)
        for paper in ("", *PAPERS)
        for entry in PUBLISHED_SHARES
    )
    for model, rival, alike in (*published, *_MORE_SHARES):
        for ours, share in shares(results, groups, model, rival, alike):
            cited = [
                _cited(entry.value, None, entry.source, sources)
                for entry in PUBLISHED_SHARES
                if (entry.model, entry.rival, entry.dataset, entry.study)
                == (published_as(model), published_as(rival), ours.dataset, ours.study)
            ]
            cells = [ours.study, ours.dataset, ours.label, rival, str(share.count), str(share)]
            rows.append([*cells, " ".join(cited)])
    return _table(header, rows) if rows else ""


def _cited(
    value: float, error: float | None, source: str, sources: list[str], digits: int = 2
) -> str:
    if source not in sources:
        sources.append(source)
    spread = "" if error is None else f" ({error:.{digits}f})"
    return f"{value:.{digits}f}{spread} [{sources.index(source) + 1}]"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def _unique(values: Iterable[_Value]) -> list[_Value]:
    return list(dict.fromkeys(values))

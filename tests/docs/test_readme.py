"""The README runs as it stands, one block after another in one process, and what it says is so."""

from __future__ import annotations

import json
import re
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpflow_deep as gd

_ROOT = Path(__file__).parents[2]
_README = (_ROOT / "README.md").read_text()


def test_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With all of its steps, and the results looked at: half a minute."""
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```$", _README, flags=re.S | re.M)
    names: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*is built on layers of")
        for block in blocks:
            exec(compile(block, "README.md", "exec"), names)
    Y, y, test = names["Y"], names["y"], names["test"]
    assert 0.8 < names["coverage"] < 1.0
    assert gd.metrics.log_density(Y[test], *names["mixture"]).mean() > 0.5  # an exact GP's: -0.1
    mean, sd = names["mean"], names["sd"]
    assert gd.metrics.rmse(y[test], mean[:, None]) < 0.4 * y.std()
    assert 0.8 < np.mean(np.abs(y[test, 0] - mean) < 2.0 * sd) <= 1.0


def test_table_is_of_the_recorded_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """To renew it: ``python docs/recorded.py README.md``."""
    monkeypatch.setattr(sys, "path", [str(_ROOT / "docs"), *sys.path])
    import recorded

    assert recorded.renewed(_README) == _README
    assert recorded.renewed(_README.replace("average rank", "rank")) == _README


def test_the_gap_on_made_tables_is_of_the_recorded_runs() -> None:
    (said,) = re.findall(r"made\s+tables\s+within (\S+) nats of the best on all", _README)
    lines = (_ROOT / "benchmarks" / "results" / "panel.jsonl").read_text().splitlines()
    densities: dict[str, dict[str, float]] = {}
    for run in map(json.loads, lines):
        if run["dataset"].startswith("made-"):
            densities.setdefault(run["dataset"], {})[run["method"]] = run["log_density"]
    gap = max(max(scores.values()) - scores["default"] for scores in densities.values())
    assert len(densities) == 13 and 0.0 <= float(said) - gap < 0.01


def test_links_lead_somewhere() -> None:
    links = [link for link in re.findall(r"\]\(([^)]+)\)", _README) if not link.startswith("http")]
    assert len(links) >= 10
    assert [link for link in links if not (_ROOT / link).exists()] == []

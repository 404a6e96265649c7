"""The description on a package index."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

_SETUP = Path(__file__).parents[2] / "setup.py"


def test_description_has_no_links_to_files() -> None:
    spec = importlib.util.spec_from_file_location("setup_script", _SETUP)
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    readme = (_SETUP.parent / "README.md").read_text()
    targets = re.compile(r"\]\(([^)]+)\)")
    assert any(not target.startswith("http") for target in targets.findall(readme))
    shown = script.long_description()
    assert all(target.startswith(("http", "#")) for target in targets.findall(shown))
    assert "(`notebooks/structured_deep_gp.ipynb`)" in shown

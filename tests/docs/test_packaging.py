"""The description on a package index."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

_SETUP = Path(__file__).parents[2] / "setup.py"


@pytest.fixture
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("setup_script", _SETUP)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _targets(text: str) -> list[str]:
    return re.findall(r"\]\(([^)]+)\)", text)


def test_description_has_no_links_to_files(script: ModuleType) -> None:
    readme = (_SETUP.parent / "README.md").read_text()
    assert any(not target.startswith("http") for target in _targets(readme))
    shown = script.long_description()
    assert all(target.startswith(("http", "#")) for target in _targets(shown))
    assert "(`docs/start.md`)" in shown
    assert "photograph" not in shown.split("## Ten lines")[0].replace("of a photograph along", "")


def test_links_lead_to_the_repository_where_it_has_an_address(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "setup.cfg").write_text("[metadata]\nurl = https://example.org/deep\n")
    (tmp_path / "README.md").write_text("![A picture](docs/a.png) [start](docs/start.md)")
    monkeypatch.setattr(script, "_FOLDER", tmp_path)
    assert script.long_description() == (
        "![A picture](https://example.org/deep/raw/main/docs/a.png)"
        " [start](https://example.org/deep/blob/main/docs/start.md)"
    )

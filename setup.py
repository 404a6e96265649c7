"""What setup.cfg cannot say: the README as a package index shows it, where links to files lead nowhere."""

from __future__ import annotations

import re
from configparser import ConfigParser
from pathlib import Path

from setuptools import setup

_FOLDER = Path(__file__).parent
_RELATIVE = r"\[([^\]]+)\]\((?!https?:|#)([^)]+)\)"


def long_description() -> str:
    """With links into the repository, where setup.cfg has its url; else with files' names and no pictures."""
    config = ConfigParser(interpolation=None)
    config.read(_FOLDER / "setup.cfg")
    url = config["metadata"].get("url")
    picture = rf"![\1]({url}/raw/main/\2)" if url else ""
    link = rf"[\1]({url}/blob/main/\2)" if url else r"\1 (`\2`)"
    readme = (_FOLDER / "README.md").read_text(encoding="utf-8")
    return re.sub(_RELATIVE, link, re.sub("!" + _RELATIVE, picture, readme))


if __name__ == "__main__":
    setup(long_description=long_description(), long_description_content_type="text/markdown")

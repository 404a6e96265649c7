"""
What Sphinx does not look at in the pages that it made: links to files, anchors, pictures without alternative
text, headings that skip a level.

    python docs/check.py docs/_build/html
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class _Page(HTMLParser):
    """What of a page is checked."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.headings: list[int] = []
        self.without_text: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = dict(attributes)
        self.anchors |= {values[key] or "" for key in ("id", "name") if key in values}
        link = values.get("href" if tag in ("a", "link") else "src")
        if link is not None:
            self.links.append(link)
        if tag == "img" and not values.get("alt"):
            self.without_text.append(values.get("src") or "?")
        if len(tag) == 2 and tag[0] == "h" and tag[1].isdigit():
            self.headings.append(int(tag[1]))


def complaints(folder: Path) -> list[str]:
    """All that is wrong in the pages of a folder."""
    pages = {path.resolve(): _Page(path) for path in sorted(folder.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        where = path.relative_to(folder.resolve())
        found += [f"{where}: no alternative text: {image}" for image in page.without_text]
        for above, below in zip(page.headings, page.headings[1:]):
            if below > above + 1:
                found.append(f"{where}: a heading of level {below} under one of level {above}")
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.exists():
                found.append(f"{where}: no such file: {link}")
            elif target in pages and parts.fragment:
                if unquote(parts.fragment) not in pages[target].anchors:
                    found.append(f"{where}: no such place: {link}")
    return found


if __name__ == "__main__":
    errors = complaints(Path(sys.argv[1]))
    print(*errors, sep="\n", end="\n" if errors else "")
    sys.exit(bool(errors))

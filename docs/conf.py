"""How Sphinx makes the site: pages in Markdown, the reference from docstrings, notebooks as stored."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

_DOCS = Path(__file__).parent
_COPIED = _DOCS / "_copied"
sys.path.insert(0, str(_DOCS))

import gather  # noqa: E402

gather.gather(_COPIED)

import gpflow_deep  # noqa: E402

project = "gpflow_deep"
author = "The gpflow_deep contributors"
copyright = author
version = release = gpflow_deep.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.mathjax", "sphinx.ext.viewcode"]
exclude_patterns = ["_build", "examples"]
nitpicky = False

# Pages.
myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "off"
# Recorded reports begin each table with a heading of its own depth.
suppress_warnings = ["myst.header"]

# The reference.
autodoc_member_order = "bysource"
# The types are GPflow's long unions: what is meant is said by shapes and words.
autodoc_typehints = "none"
autodoc_preserve_defaults = True
add_module_names = False

# Equations: of MathJax the one file that needs no other, from the site itself and not from some server.
_package = find_spec("sphinx-mathjax-offline")
assert _package is not None and _package.origin is not None, "pip install sphinx-mathjax-offline"
_MATHJAX = Path(_package.origin).parent / "static" / "mathjax" / "tex-svg.js"
mathjax_path = _MATHJAX.name

# The look.
html_theme = "furo"
html_title = "gpflow_deep"
html_static_path = ["_static", str(_MATHJAX)]
html_css_files = ["site.css"]
html_copy_source = False
pygments_style = "friendly"
pygments_dark_style = "native"


def _describe_pictures(app: Sphinx, doctree: nodes.document) -> None:
    """Pictures drawn by a notebook's cells have no alternative text: the heading above is theirs."""
    for image in doctree.findall(nodes.image):
        if image.get("alt"):
            continue
        section = image.parent
        while section is not None and not isinstance(section, nodes.section):
            section = section.parent
        heading = section.next_node(nodes.title).astext() if section is not None else "this page"
        image["alt"] = f"Figure of “{heading}”"


def _skip(app: Sphinx, what: str, name: str, member: Any, skip: bool, *_: Any) -> bool:
    """Fields of named tuples, which the signature has, and members that other packages put in."""
    is_field = (getattr(member, "__doc__", None) or "").startswith("Alias for field number")
    module = getattr(member, "__module__", None) or type(member).__module__
    return skip or is_field or module.startswith(("sklearn.", "tensorflow_probability."))


def setup(app: Sphinx) -> dict[str, Any]:
    """Sphinx calls it when it starts."""
    app.connect("autodoc-skip-member", _skip)
    app.connect("doctree-read", _describe_pictures)
    return {"parallel_read_safe": True}

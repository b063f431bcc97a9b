"""How the documentation is built: `make docs`, then open docs/_build/html/index.html."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent / "src")]

import offcut  # noqa: E402  (its place has just been added to the path)

project = "offcut"
author = "the offcut developers"
version = release = offcut.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "command_reference",
    "example_pairs",
    "job_file_reference",
    "mathml",
    "settings_reference",
]
exclude_patterns = ["_build", "_ext"]

myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 3

# Docstrings are written for the terminal and the editor: what stands in single backticks is code.
default_role = "code"
autodoc_member_order = "bysource"
napoleon_numpy_docstring = False
autodoc_typehints = "signature"
autodoc_class_signature = "separated"
python_use_unqualified_type_names = True

# No page needs the network: formulas are MathML, fonts are the system's.
html_math_renderer = "mathml"
html_theme = "furo"
html_title = f"offcut {release}"
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
html_static_path = ["_static"]
html_css_files = ["offcut.css"]


def _without_signature(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Clear the docstring of a dataclass that has none of its own: Sphinx shows its signature already."""
    if what == "class" and lines and lines[0].startswith(f"{name.rpartition('.')[2]}("):
        lines.clear()


def setup(app: Sphinx) -> None:
    app.connect("autodoc-process-docstring", _without_signature)

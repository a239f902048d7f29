"""Configure Sphinx: Markdown through MyST, public docstrings through autodoc."""

import importlib.util
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # docstrings.py, drawn.py, mathml.py

import sgld

project = "sgld"
author = "the sgld developers"
version = release = sgld.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "docstrings", "drawn", "mathml"]
html_math_renderer = "mathml"
html_theme = "furo"
html_title = f"sgld {version}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
smartquotes = False  # quoted text is meant to be typed
exclude_patterns = ["_build"]
myst_heading_anchors = 3
myst_enable_extensions = ["dollarmath"]
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints = "none"  # docstrings describe shapes and types
maximum_signature_line_length = 88
# the reference of sgld.torch can be built without PyTorch, which is large
autodoc_mock_imports = [] if importlib.util.find_spec("torch") else ["torch"]

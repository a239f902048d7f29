"""Sphinx configuration: plain Markdown through myst, public docstrings through autodoc."""

project = "sgld"
author = "the sgld developers"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
exclude_patterns = ["_build"]
myst_heading_anchors = 3
autodoc_typehints = "description"

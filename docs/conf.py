"""The settings of the site, which `make docs` builds into docs/_build/html."""

import locale
import os
import sys
import warnings
from pathlib import Path

from sphinx.deprecation import RemovedInSphinx10Warning

HERE = Path(__file__).parent
locale.setlocale(locale.LC_NUMERIC, "C")  # cf-units cannot restore C.UTF-8, which Sphinx has set
sys.path.insert(0, str(HERE / "extensions"))

from docstrings import shapes  # noqa: E402

from aenp import __version__ as release  # noqa: E402

project = "aenp"
copyright = "the aenp maintainers"
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_autodoc_typehints",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "docstrings",
    "mathml",
    "written_pages",
]
default_role = "code"
exclude_patterns = ["_build", "tutorials"]
nitpicky = True
nitpick_ignore_regex = [
    ("py:.*", r"(abc|collections|contextlib|dask|jaxtyping|numpy|os|pandas|pathlib|sklearn|torch|typing|xarray)\..*"),
    ("py:.*", r"(int|float|str|bool|bytes|object|dict|list|tuple|type|None|\.\.\.|Any|Ellipsis|slice)"),
    ("py:.*", r"Tensor|aenp\.configured\.Configured"),
]
suppress_warnings = ["config.cache"]
warnings.filterwarnings("ignore", category=RemovedInSphinx10Warning, module="sphinx_autodoc_typehints")

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_inherit_docstrings = False
napoleon_use_rtype = False
always_document_param_types = False
always_use_bars_union = True
typehints_formatter = shapes
typehints_use_rtype = False
typehints_defaults = None
viewcode_line_numbers = True

tutorials = sorted((HERE / "tutorials").glob("*.py"))
if "TUTORIALS" not in os.environ:
    tutorials = [file for file in tutorials if "AENP_TUTORIAL_STEPS" not in file.read_text()]
sphinx_gallery_conf = {
    "examples_dirs": "tutorials",
    "gallery_dirs": "generated/tutorials",
    "filename_pattern": f"/({'|'.join(file.stem for file in tutorials)})\\.py$",
    "plot_gallery": bool(tutorials),
    "within_subsection_order": "FileNameSortKey",
    "capture_repr": (),
    "download_all_examples": False,
    "show_signature": False,
    "show_memory": False,
    "remove_config_comments": True,
    "write_computation_times": False,
}

html_theme = "furo"
html_title = f"aenp {release}"
html_static_path = ["style"]
html_css_files = ["site.css"]
html_math_renderer = "mathml"
html_show_sphinx = False
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
pygments_style = "friendly"
pygments_dark_style = "github-dark"
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b5f73", "color-brand-content": "#0b6f86"},
    "dark_css_variables": {"color-brand-primary": "#6fd0e0", "color-brand-content": "#6fd0e0"},
}

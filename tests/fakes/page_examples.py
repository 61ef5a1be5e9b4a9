"""Examples on the contributor pages, as modules and text that tests run."""

import importlib.util
import re
import sys
from pathlib import Path

PAGES = Path(__file__).parents[2] / "docs/contributing"
_BLOCK = re.compile(
    r'^```\w+ title="(?P<title>[^"]+)"\n(?P<text>.*?)^```$', re.DOTALL | re.MULTILINE
)


def example(page, title):
    """The text of the block with a title on a page."""
    found = {match["title"]: match["text"] for match in _BLOCK.finditer((PAGES / page).read_text())}
    return found[title]


def example_module(page, title, folder):
    """The block with a title, written to a folder and imported from there."""
    path = Path(folder) / title
    path.write_text(example(page, title))
    spec = importlib.util.spec_from_file_location(f"example_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module

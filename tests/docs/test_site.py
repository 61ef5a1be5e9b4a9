"""The site builds without a warning, requests nothing from other hosts, and its links resolve."""

import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest
import yaml
from docs_pages import DOCS, ROOT, page_name, pages

# A file of the documentation, as pages and programs name it.
NAMED = re.compile(r"\b(?:docs/[\w./-]+\.(?:md|json|yaml)|tests/[\w/]+\.py)\b")
LINK = re.compile(r"\]\((?!https?://|#)([^)\s#]+)(?:#([^)\s]+))?\)")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the site, built once."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stderr}\nA new page needs a line in the nav of mkdocs.yml."
    assert "WARNING" not in done.stderr, done.stderr
    return folder


class Requests(HTMLParser):
    """The addresses that a browser requests for a page."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        """Collect the address of a tag."""
        values = dict(attrs)
        if tag in ("script", "img", "iframe", "source", "video", "audio"):
            self.found.append(values.get("src"))
        elif tag == "link" and values.get("rel") not in ("prev", "next", "canonical"):
            self.found.append(values.get("href"))


def test_site_requests_nothing_from_other_hosts(site):
    outside = []
    for page in site.rglob("*.html"):
        parser = Requests()
        parser.feed(page.read_text())
        outside += [(page.name, u) for u in parser.found if u and re.match(r"(\w+:)?//", u)]
        # The theme loads mermaid from a CDN if a page uses it.
        outside += [(page.name, "mermaid")] * ('class="mermaid"' in page.read_text())
    for sheet in site.rglob("*.css"):
        urls = re.findall(r"(?:url\(|@import )['\"]?(?:https?:)?//[^)\s]+", sheet.read_text())
        outside += [(sheet.name, url) for url in urls]
    assert outside == []


def test_site_contains_no_unrendered_markdown(site):
    unrendered = []
    for page in site.rglob("*.html"):
        body = re.sub(r"<pre.*?</pre>", "", page.read_text(), flags=re.DOTALL)
        patterns = (r"<p>[^<]*\n- ", r"<p>\s*\|", "```", r"<code>[^<]*\\\|")
        unrendered += [(page.name, pattern) for pattern in patterns if re.search(pattern, body)]
    assert unrendered == []


def test_search_finds_installation_troubleshooting_and_faq(site):
    index = json.loads((site / "search" / "search_index.json").read_text())
    locations = {entry["location"].partition("#")[0] for entry in index["docs"]}
    assert {"installation.html", "troubleshooting.html", "faq.html", "glossary.html"} <= locations


def nav_pages(entries):
    """The pages of a navigation tree."""
    for entry in entries:
        value = next(iter(entry.values())) if isinstance(entry, dict) else entry
        if isinstance(value, list):
            yield from nav_pages(value)
        else:
            yield value


def test_navigation_lists_every_page():
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    assert nav[0] == {"Home": "index.md"}
    assert sorted(nav_pages(nav)) == sorted(str(p.relative_to(DOCS)) for p in DOCS.rglob("*.md"))


def test_links_and_named_files_exist():
    missing = []
    for path in pages():
        text = path.read_text()
        for target, anchor in LINK.findall(text):
            file = (path.parent / target).resolve()
            if not file.exists() or (anchor and anchor not in anchors(file)):
                missing.append((page_name(path), target, anchor))
        missing += [(page_name(path), n) for n in NAMED.findall(text) if not (ROOT / n).exists()]
    assert missing == []


def test_files_named_in_programs_exist():
    missing = []
    for folder in ("agent", "probes", "scripts", "systemd"):
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and path.suffix in (".py", ".service", ".example", ""):
                named = NAMED.findall(path.read_text())
                missing += [(page_name(path), n) for n in named if not (ROOT / n).exists()]
    assert missing == []


def anchors(path):
    """The anchors of a page's headings, as GitHub and the site make them."""
    found = set()
    for heading in re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE):
        plain = re.sub(r"[^\w\s-]", "", heading.lower()).strip()
        found.add(re.sub(r"\s", "-", plain))
    return found

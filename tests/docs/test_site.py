"""The site builds without a warning, asks for nothing from outside, and its links hold."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest
import yaml
from docs_pages import DOCS, ROOT, page_name, pages

# A file of ours, as texts and programs name it.
NAMED = re.compile(r"\bdocs/[\w./-]+\.(?:md|json|yaml)\b")
LINK = re.compile(r"\]\((?!https?://|#)([^)\s#]+)(?:#([^)\s]+))?\)")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the built site."""
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
    """What a browser fetches for a page."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        """Takes a tag."""
        values = dict(attrs)
        if tag in ("script", "img", "iframe", "source", "video", "audio"):
            self.found.append(values.get("src"))
        elif tag == "link" and values.get("rel") not in ("prev", "next", "canonical"):
            self.found.append(values.get("href"))


def test_it_asks_for_nothing_from_outside(site):
    for page in site.rglob("*.html"):
        parser = Requests()
        parser.feed(page.read_text())
        outside = [url for url in parser.found if url and re.match(r"(\w+:)?//", url)]
        assert not outside, (page.name, outside)
        # What the pages themselves do not use, the theme would fetch from elsewhere.
        assert 'class="mermaid"' not in page.read_text(), page.name
    for sheet in site.rglob("*.css"):
        assert not re.findall(r"(?:url\(|@import )['\"]?(?:https?:)?//[^)\s]+", sheet.read_text())


def test_no_markdown_is_left_in_it(site):
    for page in site.rglob("*.html"):
        body = re.sub(r"<pre.*?</pre>", "", page.read_text(), flags=re.DOTALL)
        for left in (r"<p>[^<]*\n- ", r"<p>\s*\|", "```", r"<code>[^<]*\\\|"):
            assert not re.search(left, body), (page.name, left)


def test_every_page_is_in_the_navigation():
    text = (ROOT / "mkdocs.yml").read_text()
    assert yaml.safe_load(text)["nav"][0] == {"Home": "index.md"}
    named = set(re.findall(r": ([\w/]+\.md)$", text, re.MULTILINE))
    there = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")}
    assert named == there, "add new pages to nav in mkdocs.yml, and take out those that are gone"


@pytest.mark.parametrize("path", pages(), ids=page_name)
def test_links_and_named_files_are_there(path):
    text = path.read_text()
    for target, anchor in LINK.findall(text):
        file = (path.parent / target).resolve()
        assert file.exists(), f"{page_name(path)} links to {target}, which is not there"
        assert not anchor or anchor in anchors(file), (page_name(path), target, anchor)
    for named in NAMED.findall(text):
        assert (ROOT / named).exists(), (page_name(path), named)


def test_files_that_programs_name_are_there():
    for folder in ("agent", "probes", "scripts", "systemd"):
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and path.suffix in (".py", ".service", ".example", ""):
                for named in NAMED.findall(path.read_text()):
                    assert (ROOT / named).exists(), f"{page_name(path)} names {named}"


def anchors(path):
    """The anchors of a page's headings, as GitHub and the site make them."""
    found = set()
    for heading in re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE):
        plain = re.sub(r"[^\w\s-]", "", heading.lower()).strip()
        found.add(re.sub(r"\s", "-", plain))
    return found

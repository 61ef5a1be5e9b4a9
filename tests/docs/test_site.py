"""The site builds without a warning, requests nothing from other hosts, and its links resolve."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest
from docs_pages import DOCS, ROOT, page_name, pages

# A file of the documentation, as pages and programs name it.
NAMED = re.compile(r"(?<!/)\b(?:docs/[\w./-]+\.(?:md|json|yaml)|tests/[\w/]+\.py)\b")
# Where programs name such files.
FOLDERS = ("agent", "probes", "scripts", "systemd", "docs/howto/kustomize", "docs/howto/helm")
LINK_TEXT = re.compile(r"\[([^\]]+)\]\(([^)]+)\)")
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


# Words typed into the search, and the first page that it must find.
SEARCHES = {
    "install": "installation.html",
    "troubleshooting": "troubleshooting.html",
    "budget": "budgets.html",
    "email": "howto/first_hour.html",
    "upgrade": "installation.html",
    "docker": "howto/kubernetes.html",
    "false alarm": "troubleshooting.html",
    "silence": "alerting.html",
}
FIRST_HIT = "(page) => document.querySelector('.md-search-result__item a')?.href.includes(page)"


def test_search_in_a_browser_finds_the_pages(site, browser):
    address = site.as_uri()
    page = browser.new_page()
    errors, requested = [], []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: requested.append(request.url))
    page.goto(f"{address}/index.html")
    field = page.locator("input[name=query]")
    for word, found in SEARCHES.items():
        field.fill("")
        field.press_sequentially(word)
        page.wait_for_function(FIRST_HIT, arg=found)
    assert errors == []
    own = (address, "about:", "data:", "blob:")
    assert [url for url in requested if not url.startswith(own)] == []
    page.close()


# What a stranger looks for, and a word of the page's part that answers it.
WANTED = {
    "alerted on drift": "[[notifier]]",
    "my price": "[[price]]",
    "Grafana": "grafana provision",
    "Kubernetes": "kubectl apply",
    "Triton": 'engine = "triton"',
}


def test_home_page_leads_to_what_a_stranger_looks_for():
    home = (DOCS / "index.md").read_text()
    table = home[home.index("| I want to |") :].partition("\n\n")[0]
    assert len(home.partition(table)[0].split()) + len(table.split()) < 400
    for word, answer in WANTED.items():
        (row,) = (line for line in table.splitlines() if word in line)
        (target,) = [target for _, target in LINK_TEXT.findall(row)][:1]
        assert answer in (DOCS / target.partition("#")[0]).read_text(), word


def test_links_of_the_readme_and_named_files_exist():
    """mkdocs checks the links between pages."""
    readme = ROOT / "README.md"
    missing = []
    for target, anchor in LINK.findall(readme.read_text()):
        file = (ROOT / target).resolve()
        if not file.exists() or (anchor and anchor not in anchors(file)):
            missing.append((target, anchor))
    programs = (p for folder in FOLDERS for p in (ROOT / folder).rglob("*") if p.is_file())
    texts = [p for p in programs if p.suffix in (".py", ".service", ".example", ".yaml", "")]
    for path in (*pages(), *texts):
        named = NAMED.findall(path.read_text())
        missing += [(page_name(path), name) for name in named if not (ROOT / name).exists()]
    assert missing == []


def anchors(path):
    """The anchors of a page's headings, as GitHub and the site make them."""
    found = set()
    for heading in re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE):
        plain = re.sub(r"[^\w\s-]", "", heading.lower()).strip()
        found.add(re.sub(r"\s", "-", plain))
    return found

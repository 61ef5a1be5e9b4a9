"""The dashboard in a tab of Chromium."""

from pathlib import Path

AXE = Path(__file__).parent / "vendor" / "axe.min.js"
# A first start in a sandbox on a busy machine is slow.
TIMEOUT_MS = 60_000


def blank_page(browser, **options):
    """A new tab without a page."""
    context = browser.new_context(**options)
    context.set_default_timeout(TIMEOUT_MS)
    return context.new_page()


class Tab:
    """The page in a tab, with its console messages and the URLs of its requests."""

    def __init__(self, page, url, *, is_live=True):
        self.page = page
        self.console, self.requested = [], []
        self._listeners = {
            "console": lambda entry: self.console.append((entry.type, entry.text)),
            "pageerror": lambda error: self.console.append(("error", str(error))),
            "request": lambda request: self.requested.append(request.url),
        }
        for event, listener in self._listeners.items():
            page.on(event, listener)
        page.goto(url)
        self.page.wait_for_selector("#units data")
        if is_live:
            self.page.wait_for_function(
                "() => document.getElementById('live').textContent === 'live'"
            )

    def costs(self):
        """The exact cost in each row of the first table, by its name."""
        pairs = self.page.eval_on_selector_all(
            "#units tbody tr",
            "rows => rows.map(row => [row.dataset.row, Number(row.querySelector('data').value)])",
        )
        return dict(map(tuple, pairs))

    def text(self, selector):
        """The visible text of an element, in one line."""
        return " ".join(self.page.inner_text(selector).split())

    def violations(self, within="html"):
        """The accessibility violations that axe-core finds in an element of the page."""
        self.page.evaluate(AXE.read_text())
        found = self.page.evaluate("within => axe.run(within)", within)
        return [
            (violation["id"], [node["html"] for node in violation["nodes"]])
            for violation in found["violations"]
        ]

    def leave(self):
        """Close the page; another URL may be opened in its tab."""
        for event, listener in self._listeners.items():
            self.page.remove_listener(event, listener)
        self.page.unroute_all(behavior="ignoreErrors")
        self.page.goto("about:blank")

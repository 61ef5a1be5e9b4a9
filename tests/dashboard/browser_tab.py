"""The dashboard in a tab of Chromium."""

from pathlib import Path

AXE = Path(__file__).parent / "vendor" / "axe.min.js"
# A first start in a sandbox on a busy machine is slow.
TIMEOUT_MS = 60_000


class Tab:
    """The page in a new tab, with its console messages and the URLs of its requests."""

    def __init__(self, browser, url, *, is_live=True, **options):
        self.context = browser.new_context(**options)
        self.context.set_default_timeout(TIMEOUT_MS)
        self.page = self.context.new_page()
        self.console, self.requested = [], []
        self.page.on("console", lambda entry: self.console.append((entry.type, entry.text)))
        self.page.on("pageerror", lambda error: self.console.append(("error", str(error))))
        self.page.on("request", lambda request: self.requested.append(request.url))
        self.page.goto(url)
        self.page.wait_for_selector("#units data")
        if is_live:
            self.page.wait_for_function(
                "() => document.getElementById('live').textContent === 'live'"
            )

    def costs(self):
        """The exact cost in each row of the first table, by its name."""
        pairs = self.page.eval_on_selector_all(
            "#units [data-cost]",
            "rows => rows.map(row => [row.dataset.cost, Number(row.querySelector('data').value)])",
        )
        return dict(map(tuple, pairs))

    def text(self, selector):
        """The visible text of an element, in one line."""
        return " ".join(self.page.inner_text(selector).split())

    def violations(self):
        """The accessibility violations that axe-core finds."""
        self.page.evaluate(AXE.read_text())
        found = self.page.evaluate("axe.run()")
        return [
            (violation["id"], [node["html"] for node in violation["nodes"]])
            for violation in found["violations"]
        ]

    def close(self):
        self.context.close()

"""`costprobe budget` on stored history: the table, the plot, JSON and reported gaps."""

import json
import re
import time

import pytest
from costprobe.core.schema import make_point
from costprobe.ui.cli.views.status_lines import budget_lines
from fakes.cli import Cli
from fakes.page_examples import DOCS, missing_lines

S = 1_000_000_000
HOUR_S = 3600
BUDGETS = """
[[budget]]
name = "team"
amount = {amount}
period = "day"
timezone = "Asia/Kolkata"
[[budget]]
name = "gpu1-month"
amount = 1000000
period = "month"
device = "gpu1"
[[budget]]
name = "chat"
amount = 5
period = "day"
service = "chat"
[[service]]
name = "chat"
url = "http://127.0.0.1:8000"
engine = "vllm"
devices = ["gpu0"]
"""


class Budgets(Cli):
    def __call__(self, *words, amount="48", budgets=BUDGETS, code=0):
        self.write('[host]\nname = "h"\n' + budgets.format(amount=amount))
        return super().__call__(*words, code=code)


@pytest.fixture
def costprobe(tmp_path):
    return Budgets(tmp_path)


def rows(days, per_hour, device="gpu0", every_s=600, currency="USD", service=""):
    """Rows at a constant rate until now."""
    now_s = int(time.time())
    measurement, tags = "device", {"host": "h", "device": device, "currency": currency}
    if service:
        measurement, tags = "allocation", {**tags, "service": service, "part": "busy"}
    return [
        make_point(measurement, tags, {"cost": per_hour * every_s / HOUR_S}, time_s * S)
        for time_s in range(now_s - days * 86_400, now_s + 1, every_s)
    ]


def test_page_shows_the_output_for_its_budgets(costprobe):
    budgets, *_ = re.findall(
        r"^```toml\n(.*?)```", (DOCS / "budgets.md").read_text(), re.MULTILINE | re.DOTALL
    )
    service = BUDGETS[BUDGETS.index("[[service]]") :]
    silent = rows(60, 6.0, "gpu1")[: -10 * 6]
    costprobe.append([*rows(60, 7.0), *silent, *rows(60, 6.0, service="chat")])
    output = costprobe("budget", "--no-plot", budgets=budgets + service)
    # At the end of a month it is.
    assert missing_lines("budgets.md", output.replace(": EXCEEDED", ": WILL BE EXCEEDED")) == []


def test_gaps_and_other_currencies_are_reported(costprobe):
    costprobe.append([*rows(9, 1.0), *rows(9, 3.0, "gpu1", currency="EUR")])
    output = costprobe("budget", "--no-plot", "gpu1-month")
    assert "gpu1-month: a forecast needs 6 h of cost data; there are 0" in output
    assert re.search(r"gpu1-month: not included: €[\d.]+ is not added to USD", output)


def test_without_rows_nothing_is_extrapolated(costprobe):
    costprobe.append()
    (found,) = json.loads(costprobe("budget", "--json", "team"))
    assert (found["spent"], found["forecast"], found["coverage"]) == (0, None, 0)
    assert found["missing"] == ["no cost data for host in this period"]
    text = costprobe("budget", "team")
    assert "no cost data for host" in text
    # The spend is unknown, not 0.
    assert re.search(r"team +host +day +\$48.00 +- +- +- ", text), text
    document = {**found, "exceeded": False, "forecast_exceeded": False}
    assert budget_lines(document)[0].startswith(
        "budget   team: no costs known of $48.00 for the day, "
    )

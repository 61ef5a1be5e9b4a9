"""`costprobe budget` on stored history: the table, the plot, JSON and reported gaps."""

import re

import pytest
from costprobe.core.schema import make_point
from costprobe.ui.cli.views.status_lines import budget_lines
from fakes.cli import NOW_S, host, session
from fakes.page_examples import DOCS, missing_lines

S = 1_000_000_000
HOUR_S = 3600


def rows(days, per_hour, device="gpu0", every_s=600, currency="USD", service=""):
    """Rows at a constant rate until now."""
    measurement, tags = "device", {"host": "h", "device": device, "currency": currency}
    if service:
        measurement, tags = "allocation", {**tags, "service": service, "part": "busy"}
    return [
        make_point(measurement, tags, {"cost": per_hour * every_s / HOUR_S}, time_s * S)
        for time_s in range(NOW_S - days * 86_400, NOW_S + 1, every_s)
    ]


@pytest.mark.usefixtures("stopped")
def test_budgets_of_the_page(costprobe):
    page = (DOCS / "budgets.md").read_text()
    budgets, *_ = re.findall(r"^```toml\n(.*?)```", page, re.MULTILINE | re.DOTALL)
    costprobe.write('[host]\nname = "h"\n' + budgets + host("budgets_service"))
    silent = rows(60, 6.0, "gpu1")[: -10 * 6]
    costprobe.append(rows(60, 7.0), silent, rows(60, 6.0, service="chat"))
    session("budget_page", costprobe.config)
    assert missing_lines("budgets.md", costprobe("budget", "--no-plot")) == []


@pytest.mark.usefixtures("stopped")
def test_gaps_other_currencies_and_unknown_spend_are_reported(costprobe):
    costprobe.write('[host]\nname = "h"\n' + host("budgets") + host("budgets_service"))
    costprobe.append(rows(9, 1.0, "gpu2"), rows(9, 3.0, "gpu1", currency="EUR"))
    session("budget_gaps", costprobe.config)
    (found,) = costprobe.json("budget", "chat")
    (line, *_) = budget_lines({**found, "exceeded": False, "forecast_exceeded": False})
    assert line.startswith("budget   chat: no costs known of $5.00 for the day, ")

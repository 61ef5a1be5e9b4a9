"""A month of a host with eight GPUs, probes and a service, until what the commands print of it."""

from datetime import UTC, datetime

import pytest
from costprobe.core.records import NS_PER_S
from fakes.documents import checked
from fakes.sample_host import COARSE, DAY_NS, made, settled
from record_files import check, printed

NOW_NS = int(datetime(2026, 6, 22, 10, 25, tzinfo=UTC).timestamp()) * NS_PER_S
DAYS = 33
SINCE = ("--since", "30d")
# Name of the file, and the command.
COMMANDS = (
    ("allocation_service.json", ("spend", *SINCE, "--by", "service", "--json")),
    ("allocation_model.json", ("spend", *SINCE, "--by", "model", "--json")),
    ("allocation_tenant.json", ("spend", *SINCE, "--by", "tenant", "--json")),
    ("allocation_tenant.txt", ("spend", *SINCE, "--by", "tenant")),
    ("budget.json", ("budget", "--json")),
    ("budget.txt", ("budget",)),
    ("focus_day.csv", ("export", "--since", "4d", "--format", "focus")),
    ("focus_hour.csv", ("export", "--since", "12h", "--format", "focus", "--period", "hour")),
    ("report.json", ("report", "--since", "7d", "--format", "json")),
    ("report.md", ("report", "--since", "7d", "--format", "md")),
    ("report_whole.md", ("report", "--format", "md")),
    ("report.csv", ("report", "--since", "7d", "--format", "csv")),
    ("savings.json", ("savings", "--json")),
    ("savings.txt", ("savings",)),
    ("explain.json", ("explain", "--json")),
    ("explain.txt", ("explain", "--since", "9d", "--probe", "encoder")),
    ("forecast.json", ("forecast", "--json")),
    ("forecast.txt", ("forecast", "--horizon", "30d")),
    ("compare.json", ("compare", "--json")),
    ("compare.txt", ("compare", "--plot")),
    ("price_list.txt", ("price", "list", "--gpu", "H100", "--cloud", "aws")),
    ("price_history.txt", ("price", "history")),
    ("price_history.json", ("price", "history", "--json")),
    ("price_export.json", ("price", "export", "--for", "litellm", "--usd", "1")),
    ("top.json", ("status", "--watch", "--json")),
    ("top.txt", ("status", "--watch")),
    ("trend.json", ("trend", "--since", "2d", "--json")),
    ("trend.txt", ("trend", "--since", "2d")),
)


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    folder = tmp_path_factory.mktemp("month")
    file = made(folder, NOW_NS, DAYS, COARSE)
    # The host of the tests may be an instance of a cloud. Savings need no power of a model that nobody measured.
    text = file.read_text().replace("[host]\n", '[host]\ndetect = "off"\n')
    file.write_text(text.replace("electricity_included = false\n", ""))
    settled(file, NOW_NS - 2 * DAY_NS, keeps_rows=False)
    return settled(file, NOW_NS)


def test_month_of_a_host(config):
    for name, words in COMMANDS:
        # No daemon is running.
        code = 3 if "--watch" in words else 0
        made_text = printed(config, NOW_NS, *words, code=code)
        check(f"month_{name}", made_text, [(config.parent, "/store")])
        if name in ("compare.json", "report.json"):
            checked(words[0], made_text)

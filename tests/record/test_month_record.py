"""A month of a host with eight GPUs, probes and a service, until what the commands print of it."""

from datetime import UTC, datetime

import pytest
from costprobe.core.records import NS_PER_S
from fakes.documents import checked
from fakes.sample_host import COARSE, DAY_NS, made, settled
from record_files import check, input_text, printed

NOW_NS = int(datetime(2026, 6, 22, 10, 25, tzinfo=UTC).timestamp()) * NS_PER_S
DAYS = 33


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
    """Each line of the input is the name of a file, and the command that it is of."""
    for line in input_text("month_commands.txt").splitlines():
        name, _, words = line.partition(": ")
        # No daemon is running.
        code = 3 if "--watch" in words else 0
        made_text = printed(config, NOW_NS, *words.split(), code=code)
        check(f"month_{name}", made_text, [(config.parent, "/store")])
        if name in ("compare.json", "report.json"):
            checked(words.partition(" ")[0], made_text)

"""The first cause in an alert is the scripted GPU change, end to end through the pipeline."""

from datetime import UTC, datetime, timedelta

from costprobe.core.records import NS_PER_S
from costprobe.drift.actions import LOWERED, action_of
from fakes.host import START_NS, metered, owned, rented, seeded, simulated_host

RUNS_PER_DAY = 288
QUIET_RUNS = int(1.6 * RUNS_PER_DAY)
DAY = datetime.fromtimestamp(START_NS // NS_PER_S, UTC).date()


def test_changed_price_is_an_event_and_no_drift(tmp_path):
    hours = [{"start": "12:00", "end": "15:00", "tariff_per_kwh": "0.51"}]
    dearer = rented("4.50", valid_from=(DAY + timedelta(days=2)).isoformat())
    found = {}
    for plans, electricity in (([owned()], metered(hours=hours)), ([rented(), dearer], None)):
        folder = tmp_path / str(len(plans))
        with simulated_host(folder, seeded(3), plans, electricity) as host:
            for _ in range(QUIET_RUNS + RUNS_PER_DAY):
                host.run()
            cause = host.price_events()[0].fields["cause"]
            found[cause] = [event.detail for event in host.events if event.kind == "drift"]
    assert found == {"electricity tariff": [], "price plan": []}


def test_advice_about_a_board_of_amd_names_the_tools_of_amd():
    causes = ("board", "neighbour: vllm", "memory errors", "cooling", "power limit", LOWERED)
    causes += ("clock", "memory pressure", "thermal throttling")
    assert all("nvidia-smi" in action_of(cause, "gpu0") for cause in causes)
    assert all("`amd-smi " in action_of(cause, "amd1.xcp3") for cause in causes)
    assert not any("nvidia" in action_of(cause, "amd0+amd1") for cause in causes)

"""A real daemon follows prices and carbon intensities, and reports an exceeded budget."""

import json
import time
from contextlib import closing

import pytest
from costprobe.adapters.store.write import Store
from costprobe.core.clock import SystemClock
from costprobe.core.records import NS_PER_S
from costprobe.core.schema import make_point
from fakes.daemon import DaemonProcess
from fakes.nvml import FakeNvml
from fakes.scenes import QUICK
from fakes.servers import Scripted

HEAD = '[host]\nname = "h"\n[alerting]\nevaluate_every = "500ms"\n'
BUDGET = '[[budget]]\nname = "team"\namount = 10.5\nperiod = "month"\n'
HOUR_NS = 3600 * NS_PER_S


@pytest.fixture(scope="module")
def receiver():
    with Scripted(lambda *_: (200, {}, b"{}")) as server:
        yield server


@pytest.fixture(scope="module")
def daemon(tmp_path_factory, receiver):
    """A daemon with a spot price, a carbon series, and a budget that was exceeded before."""
    folder = tmp_path_factory.mktemp("daemon")
    (folder / "prices").write_text("1.00")
    (folder / "intensities").write_text("400")
    gpus = FakeNvml(folder, gpus=2)
    gpus.gpus[0].set_power(300.0)
    with DaemonProcess(folder, gpus.env()) as daemon:
        now_ns = time.time_ns()
        tags = {"host": "h", "device": "gpu7", "kind": "gpu", "currency": "USD"}
        times = range(now_ns - 6 * HOUR_NS, now_ns + 1, 60 * NS_PER_S)
        with closing(Store.open(daemon.store, SystemClock())) as store:
            store.append([make_point("device", tags, {"cost": 1e6}, time_ns) for time_ns in times])
        daemon.start(
            QUICK
            + HEAD
            + BUDGET
            + f'[[notifier]]\nname = "ops"\nkind = "webhook"\nurl = "{receiver.url}/ops"\n'
            + f'[[price]]\nplan = "spot"\nfile = "{folder}/prices"\nevery = "1s"\n'
            + f'[carbon]\nfile = "{folder}/intensities"\nevery = "1s"\n'
        )
        yield daemon


def test_spot_price_appears_in_rows_events_status_and_history(daemon):
    prices = daemon.folder / "prices"

    def rate():
        rows = [r for r in daemon.points("device", device="gpu0") if "price_rate_per_h" in r.fields]
        return rows[-1].fields["price_rate_per_h"] if rows else None

    daemon.wait_for(lambda: rate() == 0.5)
    prices.write_text("3.00")
    daemon.wait_for(lambda: rate() == 1.5)
    events = daemon.wait_for(lambda: daemon.points("event", kind="price", device="gpu0"))
    assert (events[0].fields["before"], events[0].fields["after"]) == ("$0.50/h", "$1.50/h")
    prices.unlink()
    daemon.wait_for(
        lambda: any(
            "returns no price" in event.fields["title"]
            for event in daemon.points("event", kind="fault")
        )
    )
    daemon.wait_for(lambda: daemon.status()["spot_prices"]["spot"]["last_error"])
    text = daemon.look("status")
    assert "spot spot: $3.00/h" in text
    assert "the source fails" in text
    (row, *_) = json.loads(daemon.look("price", "history", "--json"))
    assert row["after"] == "$1.50/h"
    assert "$0.50/h  $1.50/h" in daemon.look("price", "history")
    shown = json.loads(daemon.look("price", "show", "--json"))["devices"]
    assert [(d["plan"], d["price_rate_per_h"]) for d in shown] == [("spot", "1.50")] * 2
    assert "gpu1  NVIDIA Fake 80GB: $1.50/h (spot)" in daemon.look("price", "show")


def test_carbon_series_appears_in_rows_and_status(daemon):
    row = daemon.wait_for(
        lambda: [r for r in daemon.points("device", device="gpu0") if r.fields.get("carbon_g")]
    )[0]
    assert row.fields["carbon_g"] == pytest.approx(row.fields["energy_j"] * 400 / 3.6e6)
    assert row.fields["carbon_method"] == "series"
    (daemon.folder / "intensities").unlink()
    daemon.wait_for(lambda: daemon.status()["carbon"]["last_error"])
    assert "carbon   400 g/kWh" in daemon.look("status")
    assert "carbon: 400 g CO2e/kWh (grid 400 of " in daemon.look("price", "show")


def test_exceeded_budget_has_alert_event_and_row(daemon, receiver):
    def alerts():
        found = [json.loads(body)["alert"] for _, _, _, body in list(receiver.requests)]
        return [alert for alert in found if alert["name"] == "budget"]

    (alert, *_) = daemon.wait_for(alerts)
    assert (alert["state"], alert["severity"]) == ("firing", "critical")
    assert "of $10.50 " in alert["summary"]
    (event,) = daemon.wait_for(lambda: daemon.points("event", kind="budget"))
    assert event.tags["metric"] == "budget_exceeded"
    assert daemon.points("budget", budget="team")[-1].fields["exceeded"] is True
    daemon.wait_for(lambda: daemon.status()["budgets"])
    output = daemon.look("status")
    assert "budget   team: $" in output
    assert "budget team is exceeded" in output

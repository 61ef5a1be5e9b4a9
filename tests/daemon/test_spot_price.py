"""A price that moves under a running daemon."""

import json

from fakes.nvml import FakeNvml
from fakes.scenes import QUICK


def test_a_spot_price_is_followed_into_rows_events_status_and_history(daemon_in, tmp_path):
    fake = FakeNvml(tmp_path, gpus=2)
    prices = tmp_path / "spot.csv"
    prices.write_text("1.00")
    daemon = daemon_in(**fake.env())
    daemon.start(QUICK + f'[[price]]\nplan = "spot"\nfile = "{prices}"\nevery = "1s"\n')

    def rate():
        rows = [r for r in daemon.points("device", device="gpu0") if "price_rate_per_h" in r.fields]
        return rows[-1].fields["price_rate_per_h"] if rows else None

    daemon.wait_for(lambda: rate() == 0.5)
    prices.write_text("3.00")
    daemon.wait_for(lambda: rate() == 1.5)
    events = daemon.wait_for(lambda: daemon.points("event", kind="price", device="gpu0"))
    assert (events[0].fields["before"], events[0].fields["after"]) == ("0.50 USD/h", "1.50 USD/h")
    prices.unlink()
    fault = daemon.wait_for(lambda: daemon.points("event", kind="fault"))
    assert any("gives no price" in event.fields["title"] for event in fault)
    daemon.wait_for(lambda: daemon.state("status")["spot_prices"]["spot"]["last_error"])
    text = daemon.run("status")
    assert "spot spot: 3.00 an hour" in text
    assert "its source fails" in text
    (row, *_) = json.loads(daemon.run("price", "history", "--json"))
    assert row["after"] == "1.50 USD/h"
    assert "0.50 USD/h -> 1.50 USD/h" in daemon.run("price", "history")
    shown = json.loads(daemon.run("price", "show", "--json"))["devices"]
    assert [(d["plan"], d["per_hour"]) for d in shown] == [("spot", "1.50")] * 2
    assert "gpu1  NVIDIA Fake 80GB: $1.5/h (spot)" in daemon.run("price", "show")

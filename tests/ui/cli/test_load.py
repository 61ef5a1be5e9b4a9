"""`costprobe probe NAME --load`: consent, what is shown and stored."""

from dataclasses import asdict, replace

import pytest
from costprobe.configuration import Config
from costprobe.daemon.control import measured_rows
from costprobe.probing.load_curve import FIGURES, LoadCurve, LoadPoint, curve_rows
from costprobe.ui.cli.load import in_maintenance, rows_of
from costprobe.ui.cli.support.place import Settings
from fakes.cli import Cli, session

TIME_NS = 1_780_000_000 * 10**9


@pytest.fixture
def costprobe(tmp_path):
    return Cli(
        tmp_path,
        '[[price]]\nplan = "on_demand"\nper_hour = 3.6\n'
        '[[probe]]\nname = "ranker"\nkind = "cnn"\n'
        '[[probe]]\nname = "chat"\nkind = "openai"\nmodel = "m"\nurl = "http://127.0.0.1:9"\n'
        'timeout = "10s"\nslo = { latency_p50 = "3s" }\n'
        "[probe.load]\nconcurrencies = [1, 2]\nrates = []\n",
    )


def curve():
    points = []
    for number, cost in ((1, 9.0), (2, 5.0)):
        figures = {
            "latency_p50_ms": 2000.0 * number, "tokens_out_per_s": 100.0 * number, "requests": 90.0,
            "errors": 0.0, "throughput_per_s": 1.0 * number, "tokens_per_s_user": 100.0 / number,
            "cost_per_million_tokens_out": cost,
        }  # fmt: skip
        points.append(LoadPoint("closed", number, number, {**dict.fromkeys(FIGURES), **figures}))
    return LoadCurve(
        "chat", "cpu", "USD", "abc", TIME_NS, {"latency_p50": 3000.0}, tuple(points),
        {"closed": "complete"},
    )  # fmt: skip


@pytest.mark.processes
def test_load_needs_consent_and_says_what_it_takes(costprobe):
    refused = costprobe("probe", "chat", "--load", code=2)
    assert "load curve of chat on cpu: up to 2 points, about 62 s, at most 3 min" in refused
    assert "$0.0620 at the present price, at most $0.202" in refused
    assert "add --yes, or run it within a [[maintenance]] window" in refused


@pytest.mark.processes
def test_file_of_prompts_that_cannot_be_read_is_bad_input(costprobe):
    path = costprobe.folder / "none.jsonl"
    with costprobe.config.open("a") as file:
        file.write(f'when_busy = "run"\nprompts = "{path}"\n')
    refused = costprobe("probe", "chat", "--load", "--yes", code=2)
    assert f"load.prompts {path}: cannot be read (No such file" in refused


@pytest.mark.usefixtures("stopped")
def test_stored_curves_are_shown_with_the_change_between_them(costprobe):
    costprobe.append(curve_rows(curve()))
    text = costprobe("probe", "chat", "--load", "--stored")
    assert "1 in flight costs least within latency_p50 3000 ms: $9.00 per million" in text
    assert "since" not in text
    slower = [
        replace(point, figures={**point.figures, "tokens_out_per_s": point.work_per_s / 2})
        for point in curve().points
    ]
    newest = replace(curve(), time_ns=TIME_NS + 10**9, points=tuple(slower))
    rows = rows_of(Settings(str(costprobe.config)), [curve(), newest])
    assert [row.measurement for row in rows] == ["sweep", "sweep", "event"]
    # As the daemon checks them, and in the store.
    documents = [asdict(row) for row in rows]
    assert measured_rows({"rows": documents}) == rows
    other = {**documents[2], "tags": {**documents[2]["tags"], "metric": "cost"}}
    with pytest.raises(ValueError, match="written by the daemon only"):
        measured_rows({"rows": [other]})
    costprobe.append(rows)
    session("load_curve", costprobe.config)
    text = costprobe("probe", "chat", "--load", "--stored")
    assert "throughput -50.0 % ±0.0 % at 2 common points" in text


def test_maintenance_window_permits_the_load():
    window = {
        "name": "nightly", "start": "02:00", "end": "04:00", "match": {"probe": "ch*"},
        "days": ["thu"],
    }  # fmt: skip
    config = Config.model_validate({"maintenance": [window]})
    two = 1_767_225_600 * 10**9 + 2 * 3600 * 10**9  # 2026-01-01, a Thursday
    labels = {"host": "h", "device": "gpu0", "probe": "chat"}
    assert in_maintenance(config, labels, two)
    assert not in_maintenance(config, labels, two - 1)
    assert not in_maintenance(config, {**labels, "probe": "ranker"}, two)

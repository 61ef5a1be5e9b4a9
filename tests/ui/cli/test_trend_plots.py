"""Plots of `costprobe trend`: one for each model, and series that continue under another plan."""

import re

import pytest
from costprobe.adapters.store.read import SeriesValues
from costprobe.core.records import Point
from costprobe.ui.cli.views.plots import series_names, trend_plots
from fakes.cases import check_all
from fakes.cli import NOW_S, Cli, same, stopped_clock
from fakes.command import called
from fakes.terminal import on_terminal

S = 10**9
HOUR_NS = 3600 * S
PLAIN = {"NO_COLOR": "1"}
FRAME = re.compile(r"[┤│](.*)│")


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    """Eight devices with an encoder, two with a model of 6,000 times its cost; half-way another plan."""
    cli, now_ns = Cli(tmp_path_factory.mktemp("trend")), NOW_S * S
    rows = []
    for probe, cost, devices in (("encoder", 1e-6, 8), ("llama", 6e-3, 2)):
        for number in range(devices):
            for hour in range(24, 0, -1):
                # The large model rises steadily by a tenth.
                value = cost * (1 + (24 - hour) / 240) if probe == "llama" else cost * (1 + number)
                tags = {
                    "device": f"gpu{number}",
                    "probe": probe,
                    "basis": "probe",
                    "currency": "USD",
                    "plan": "on_demand" if hour > 12 else "reserved",
                }
                fields = {"cost_per_inference": value}
                rows.append(Point("cost", tags, fields, now_ns - hour * HOUR_NS))
    cli.append(rows, time_ns=now_ns)
    with stopped_clock():
        yield cli.config


def test_each_model_has_an_axis_of_its_own_and_a_change_of_plan_is_named(config):
    """The rise of a tenth fills the plot of the large model; what is not drawn is stated."""
    texts = [
        on_terminal(
            config, "trend", "--since", "2d", *words, env=PLAIN.items(), columns=80
        ).decode()
        for words in ((), ("--no-plot", "--probe", "llama"))
    ]
    same("trend", "\n".join(texts).replace("\r", ""), masked=False)
    # Every stored series is in JSON, with its tags.
    stored = called(config, "trend", "--since", "2d", "--probe", "llama", "--json").stdout
    assert stored.count('"plan": "on_demand"') == stored.count('"plan": "reserved"') == 2


def test_curves_of_very_different_size_are_divided():
    series = [
        SeriesValues({"device": f"d{number}", "probe": "p"}, [0, S], [value, value])
        for number, value in enumerate((1.0, 2.0, 100.0))
    ]
    lines = trend_plots("cost", series)
    assert [line.strip() for line in lines if line.strip() in {"p", "p d2"}] == ["p", "p d2"]
    assert not any("not drawn" in line for line in lines)


def test_names_of_different_series_differ():
    tags = {"device": "gpu0", "service": "chat"}
    assert series_names([tags, {**tags, "service": "rank"}]) == ["gpu0 chat", "gpu0 rank"]
    names = series_names([{**tags, "team": "a", "rack": "1"}, {**tags, "team": "b", "rack": "1"}])
    assert names == ["gpu0 chat team=a", "gpu0 chat team=b"]
    # What all have in common is left out.
    paid = {**tags, "basis": "serving", "plan": "spot", "currency": "USD"}
    assert series_names([paid, {**paid, "plan": "owned"}]) == ["gpu0 chat spot", "gpu0 chat owned"]


def test_any_finite_values_keep_the_frame():
    cases = [
        [5.0],
        [0.0, 0.0],
        [-1.234e-5, -1.2e-5],
        [-1.7e308, 1.7e308],
        [0.0, 2.225073858507203e-309],
        [1.0] * 5_000,
    ]

    def check(values):
        times_ns = [number * S for number in range(len(values))]
        lines = trend_plots("power_w", [SeriesValues({"device": "gpu0"}, times_ns, values)])
        inside = [found[1] for line in lines if (found := FRAME.search(line))]
        assert len(inside) == 12
        assert len({len(line) for line in inside}) == 1
        assert any(line.strip() for line in inside)

    check_all(check, cases)


def test_plot_names_its_first_and_last_time_without_trailing_blanks(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    times = [index * HOUR_NS for index in range(24)]
    for columns in (40, 60, 80, 120):
        monkeypatch.setenv("COLUMNS", str(columns))
        lines = trend_plots("temp_c", [SeriesValues({"device": "gpu0"}, times, [60.0] * 24)])
        named = re.findall(r"\d\d-\d\d \d\d:\d\d", "\n".join(lines))
        assert (named[0], named[-1]) == ("01-01 00:00", "01-01 23:00"), columns
        assert lines == [line.rstrip() for line in lines]

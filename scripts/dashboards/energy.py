"""Energy and carbon: power of devices, energy per inference, and emissions."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard, stat

from scripts.dashboards.parts import bounds, choice, figure, graph, page, target
from scripts.dashboards.queries import PER_PANEL, Query, Tag
from scripts.dashboards.tables import listing

ABOUT = "Power of devices, energy per inference, and emissions."
HERE = ("host", "device")
RUN = ("host", "device", "probe")
NAME = "$tag_host $tag_device"
KWH = "/ 3600000"
# Of the energy whose intensity is known: other energy would lower it.
PER_KWH = 'sum("carbon_g") / sum("carbon_energy_j") * 3600000'


def build() -> dashboard.Dashboard:
    """Totals, then devices, then inferences."""
    variables = [
        choice("host"),
        choice("device"),
        choice("probe"),
        choice("currency", several=False),
    ]
    board = page("energy", "energy and carbon", ABOUT, variables)
    _figures(board)
    _devices(board)
    _inferences(board)
    return board


def _figures(board: dashboard.Dashboard) -> None:
    def whole(select: str) -> Query:
        return Query(select, "device", over=HERE, every=None)

    power = Query('mean("power_w") AS "power"', "device", over=HERE, by=HERE, every=None)
    board.with_panel(figure("Energy", "kwatth", whole(f'sum("energy_j") {KWH}'), span=3))
    board.with_panel(
        figure(
            "CO2-equivalent",
            "massg",
            whole('sum("carbon_g")'),
            about="Electricity only, of rows whose carbon intensity is known; embodied emissions of"
            " the hardware are not included.",
            span=3,
        )
    )
    board.with_panel(figure("Mean power, all devices", "watt", power.of('sum("power")')))
    board.with_panel(
        figure(
            "CO2-equivalent per kWh",
            "massg",
            whole(PER_KWH),
            about="Grid intensity times PUE, of rows whose intensity is known.",
            span=3,
        )
    )
    board.with_panel(
        figure(
            "Energy with CO2-equivalent",
            "percent",
            whole('100 * sum("carbon_energy_j") / sum("energy_j")'),
            about="Share of the energy whose carbon intensity is known: the coverage of the panels"
            " of CO2-equivalent.",
            span=3,
        )
    )
    board.with_panel(_uncertainty())
    boards = Query('max("power_max_w")', "device", over=HERE, every=None)
    board.with_panel(figure("Maximum device power", "watt", boards))


def _uncertainty() -> stat.Panel:
    """Return the panel of probes and of services: a host may have only one of them."""
    probes = Query('mean("energy_rel_err") * 100', "probe", over=RUN, every=None, alias="probes")
    services = Query(
        'mean("energy_rel_err") * 100',
        "cost",
        where=(Tag("basis", "serving"),),
        every=None,
        alias="services",
    )
    panel = figure(
        "Uncertainty of the energy",
        "percent",
        probes,
        steps=bounds(15, 40),
        about="Relative, about 95 % confidence; 50 % for modelled energy. Of the chosen probes, and of all services of the hosts.",
    )
    return panel.with_target(target(services, 1, "time_series"))


def _devices(board: dashboard.Dashboard) -> None:
    board.with_row(dashboard.Row("Devices"))
    power = Query('mean("power_w") AS "power"', "device", over=HERE, by=HERE)
    energy = Query(f'sum("energy_j") {KWH}', "device", over=HERE, by=HERE, every="1h", alias=NAME)
    carbon = Query('sum("carbon_g")', "device", over=HERE, by=HERE, every="1h", alias=NAME)
    intensity = Query(
        PER_KWH,
        "device",
        over=HERE,
        by=("host",),
        alias="$tag_host",
    )
    by_device = power.of('sum("power")', *HERE, every=PER_PANEL, alias=NAME)
    board.with_panel(graph("Power", "watt", by_device, style="areas"))
    board.with_panel(graph("Energy per hour", "kwatth", energy, style="bars"))
    board.with_panel(graph("CO2-equivalent per hour", "massg", carbon, style="bars"))
    board.with_panel(graph("CO2-equivalent per kWh, with PUE", "massg", intensity))


def _inferences(board: dashboard.Dashboard) -> None:
    board.with_row(dashboard.Row("Inferences"))
    name = f"{NAME} $tag_probe"

    def probe_of(field: str, what: str) -> Query:
        return Query(f'median("{field}")', "probe", over=RUN, by=RUN, alias=f"{name} {what}")

    carbon = Query('median("carbon_per_inference_g") * 1000', "cost", over=RUN, by=RUN, alias=name)
    paid = Query(
        'median("cost_energy") * 1000',
        "cost",
        over=(*RUN, "currency"),
        where=(Tag("basis", "probe"),),
        by=RUN,
        alias=name,
    )
    methods = Query(
        'last("energy_method") AS "energy method", last("energy_per_inference_j") AS "energy",'
        ' last("energy_rel_err") AS "uncertainty", last("energy_above_idle_j") AS "above idle"',
        "probe",
        over=RUN,
        by=RUN,
        every=None,
    )
    board.with_panel(
        graph(
            "Energy per inference",
            "joule",
            probe_of("energy_per_inference_j", "gross"),
            probe_of("energy_above_idle_j", "above idle"),
        )
    )
    board.with_panel(graph("CO2-equivalent per 1,000 inferences", "massg", carbon))
    board.with_panel(
        graph(
            "Electricity cost per 1,000 inferences ($currency)",
            "short",
            paid,
            about="Zero where the plan includes it.",
        )
    )
    board.with_panel(
        listing(
            "Energy method",
            methods,
            units={"energy": "joule", "above idle": "joule", "uncertainty": "percentunit"},
            steps={"uncertainty": bounds(0.15, 0.4)},
            hide=("Time",),
            span=12,
        )
    )

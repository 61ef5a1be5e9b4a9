"""`costprobe probe`: one probe run without a daemon, or a sweep over batch sizes."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
from pydantic import ValidationError

from costprobe.adapters.probe_child.results import MISTAKES, ModelStart, NaiveTiming
from costprobe.configuration import Config
from costprobe.core.outside import one_line
from costprobe.core.records import Point
from costprobe.core.units import counted, percent
from costprobe.drift.load_curve import curve_change
from costprobe.probing.cost import ProbeRun
from costprobe.probing.load_curve import LoadCurve
from costprobe.probing.repeated import RUNS_MIN, ProbeRuns
from costprobe.probing.rows import PageCache, report_document, start_point
from costprobe.probing.run import MIB, AnyProbe, ColdStarts
from costprobe.probing.settings import (
    BUILT_IN_MODELS,
    HttpProbeConfig,
    OpenAiProbeConfig,
    ProbeConfig,
    section_of,
)
from costprobe.ui.cli import gate as gates
from costprobe.ui.cli import load as loads
from costprobe.ui.cli import sweep as sweeps
from costprobe.ui.cli.bench import Bench, keep, open_bench
from costprobe.ui.cli.load import shown as load_shown
from costprobe.ui.cli.support.command_classes import ExampleCommand
from costprobe.ui.cli.support.fitting import table_lines
from costprobe.ui.cli.support.known_names import NAMES_SHOWN, PROBES, STORED_DEVICES, unknown_name
from costprobe.ui.cli.support.option_types import PERCENT
from costprobe.ui.cli.support.output import echo_answer
from costprobe.ui.cli.support.place import Settings, bad_input
from costprobe.ui.cli.sweep import shown
from costprobe.ui.cli.views.status_lines import probe_line
from costprobe.ui.text import local
from costprobe.unit_costs.compare import summarized


@dataclass(frozen=True, slots=True)
class NaiveReport:
    """A run that also measured with common mistakes.

    Attributes:
        run: The run.
        time_ns: UTC in ns of its end.
    """

    run: ProbeRun
    time_ns: int

    def document(self) -> dict[str, Any]:
        """Return the latency, and that of each mistake with its error, as JSON."""
        result = self.run
        return {
            "probe": result.probe,
            "device": result.device,
            "time_ns": self.time_ns,
            "fingerprint": result.fingerprint,
            "batch": result.batch,
            "threads": result.threads,
            "latency_p50_ms": self._ours_ms,
            "latency_rel_err": result.latency_rel_err,
            "samples": result.samples,
            "contended": result.contention.contended,
            "mistakes": [
                {
                    "mistake": timing.mistake,
                    "latency_ms": timing.latency_ms,
                    "error_pct": timing.error_pct(self._ours_ms),
                    "samples": timing.samples,
                    "not_applicable": timing.not_applicable or None,
                }
                for timing in self.run.naive
            ],
        }

    def lines(self) -> list[str]:
        """Return a table, and why mistakes are missing from it."""
        result = self.run
        rows: list[tuple[str, ...]] = [
            ("timing", "passes", "ms", "error"),
            ("costprobe: median", f"{result.samples:,}", f"{self._ours_ms:.4g}", "-"),
        ]
        rows += [self._cells(timing) for timing in self.run.naive if not timing.not_applicable]
        lines = [
            f"{result.probe} on {result.device}, {local(self.time_ns)}: batch {result.batch}",
            *table_lines(rows),
            *(
                f"{MISTAKES[timing.mistake]}: {timing.not_applicable}"
                for timing in self.run.naive
                if timing.not_applicable
            ),
        ]
        if result.latency_rel_err is not None:
            known = percent(result.latency_rel_err)
            lines.append(f"the median is known to ±{known} within this run (95 %)")
        if result.contention.contended:
            lines.append("measured beside other work: repeat it on an idle device")
        return lines

    @property
    def _ours_ms(self) -> float:
        return self.run.latency_ms["p50"]

    def _cells(self, timing: NaiveTiming) -> tuple[str, ...]:
        error_pct = timing.error_pct(self._ours_ms)
        return (
            MISTAKES[timing.mistake],
            f"{timing.samples:,}",
            "-" if timing.latency_ms is None else f"{timing.latency_ms:.4g}",
            "-" if error_pct is None else f"{error_pct:+,.1f} %",
        )


# Starts with each state of the page cache; both are stored in one request to the daemon.
RUNS_MAX: Final = 32
_PARTS: Final = ("process_start_s", "load_s", "first_answer_s", "total_s")


@dataclass(frozen=True, slots=True)
class StartReport:
    """Starts of a probe's model.

    Attributes:
        probe: Name of the probe.
        device: Name of the device.
        time_ns: UTC in ns of their end.
        starts: The starts.
    """

    probe: str
    device: str
    time_ns: int
    starts: ColdStarts

    @property
    def _by_cache(self) -> dict[PageCache, Sequence[ModelStart]]:
        return {"warm": self.starts.warm, "cold": self.starts.cold}

    def document(self) -> dict[str, Any]:
        """Return medians and interquartile ranges as JSON."""
        return {
            "probe": self.probe,
            "device": self.device,
            "time_ns": self.time_ns,
            "fingerprint": self.starts.warm[-1].fingerprint,
            **{cache: _summary(starts) for cache, starts in self._by_cache.items()},
            "not_cold": self.starts.not_cold or None,
        }

    def rows(self, tags: Mapping[str, str]) -> list[Point]:
        """Return a row for each start; one nanosecond apart, because a row is known by its time.

        Args:
            tags: Host and static labels.
        """
        own = {**tags, "device": self.device, "probe": self.probe}
        return [
            start_point(start, cache, own, self.time_ns - len(starts) + number)
            for cache, starts in self._by_cache.items()
            for number, start in enumerate(starts, 1)
        ]

    def lines(self) -> list[str]:
        """Return a table of medians and interquartile ranges."""
        heads = (
            "page cache",
            "starts",
            *(part.replace("_s", " s").replace("_", " ") for part in _PARTS),
        )
        rows = [(*heads, "read MiB")]
        rows += [_cells(cache, starts) for cache, starts in self._by_cache.items() if starts]
        lines = [
            f"{self.probe} on {self.device}, {local(self.time_ns)}: median ± interquartile range"
        ]
        lines += table_lines(rows)
        if self.starts.not_cold:
            missing = len(self.starts.warm) - len(self.starts.cold)
            starts = counted(missing, "start")
            lines.append(f"cold page cache not measured in {starts}: {self.starts.not_cold}")
        return lines


def _cells(cache: PageCache, starts: Sequence[ModelStart]) -> tuple[str, ...]:
    found = _summary(starts) or {}
    durations = [f"{found[part]:.3f} ±{found[_spread(part)]:.3f}" for part in _PARTS]
    read_bytes = found["read_bytes"]
    return (
        cache,
        str(len(starts)),
        *durations,
        "-" if read_bytes is None else f"{read_bytes / MIB:,.0f}",
    )


def _summary(starts: Sequence[ModelStart]) -> dict[str, Any] | None:
    """Return medians, and interquartile ranges of durations; None without a start."""
    if not starts:
        return None
    found: dict[str, Any] = {"runs": len(starts)}
    for part in _PARTS:
        summary = summarized([getattr(start, part) for start in starts])
        if summary is not None:
            found |= {part: summary.value, _spread(part): summary.iqr}
    read = summarized([start.read_bytes for start in starts if start.read_bytes is not None])
    found["read_bytes"] = None if read is None else int(read.value)
    return found


def _spread(part: str) -> str:
    return f"{part.removesuffix('_s')}_iqr_s"


RUNS = 5
MODELS_TIMEOUT_S = 5.0
# The measurements to which an option belongs.
_OPTIONS = {
    "--stored": ("--sweep", "--load"),
    "--yes": ("--load",),
    "--runs": ("--cold-start", "--save", "--against"),
    "--fail-above": ("--against",),
}


@click.command(
    cls=ExampleCommand,
    examples=(
        "costprobe probe quick  # run the probe `quick` of the file once",
        "costprobe probe ./model.py:make  # your own model: the function `make` of a file",
        "costprobe probe ranker --sweep --stored  # the stored result of the last sweep",
        "costprobe probe quick --naive  # what common mistakes of timing would report",
        "costprobe probe quick --cold-start --runs 1  # how long a start takes until the first answer",
        "costprobe probe ./model.py:make --against ../main/model.py:make --fail-above 5%  # in CI",
    ),
)
@click.argument("name", required=False, shell_complete=PROBES)
@click.option(
    "--device", shell_complete=STORED_DEVICES, help="Device to probe (default: the first)."
)
@click.option(
    "--sweep", is_flag=True, help="Measure each batch size: latency, throughput, energy, cost."
)
@click.option(
    "--load",
    is_flag=True,
    help="Measure a server at rising load: latency, throughput, energy, cost.",
)
@click.option("--yes", is_flag=True, help="With --load: put the server under full load.")
@click.option(
    "--stored",
    is_flag=True,
    help="With --sweep or --load: show the stored curve, measure nothing.",
)
@click.option(
    "--cold-start",
    is_flag=True,
    help="Measure starts of the model: process, load, first answer; page cache warm and cold.",
)
@click.option(
    "--runs",
    type=click.IntRange(1, gates.RUNS_MAX),
    help=f"With --cold-start: starts with each page cache (default: {RUNS}). With --save and --against:"
    f" runs of each (default: {gates.RUNS}).",
)
@click.option(
    "--save",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Run several times and write the runs to this file, *.json.",
)
@click.option(
    "--against",
    help="Run several times, and test whether an inference is more expensive than in a file of --save, or"
    " than that of another probe, which is run in turn.",
)
@click.option(
    "--fail-above",
    type=PERCENT,
    help='With --against: exit with 1 if it is more expensive by more than this, such as "5%".',
)
@click.option(
    "--naive",
    is_flag=True,
    help="Measure also with common mistakes of timing; the error of each.",
)
@click.option(
    "--body",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="With a URL: file with the body of the request.",
)
@click.option("--model", help="With a URL that ends in /v1: model to ask for.")
@click.option("--json", "as_json", is_flag=True, help="Print the whole result as JSON.")
@click.pass_obj
def command(  # noqa: PLR0913 - click passes each option
    config: str | None,
    *,
    name: str | None,
    device: str | None,
    sweep: bool,
    load: bool,
    yes: bool,
    stored: bool,
    cold_start: bool,
    runs: int | None,
    save: Path | None,
    against: str | None,
    fail_above: float | None,
    naive: bool,
    body: Path | None,
    model: str | None,
    as_json: bool,
) -> None:
    """Run the probe NAME once: a configured one, or a built-in one.

    NAME is a configured probe; a built-in model: "transformer", "cnn", and prefill and decode of a
    decoder of three sizes, such as "decoder:small/decode"; a model of a library or file, such as
    "timm:resnet50", "transformers:/folder"; your own as "FILE.py:FUNCTION" or "MODULE:FUNCTION",
    which returns (torch module, example inputs); or a server: the URL of OpenAI's API, which ends in
    /v1, or any other URL.

    With --sweep it searches the batch size, measures each batch size with its energy, finds the
    cheapest one within the probe's latency_bound, and stores the curve.

    With --load it puts a server under rising load, in a closed and in an open loop, measures each
    load, finds the cheapest one that meets the probe's slo, and stores the curve.

    With --cold-start it starts the model in new processes, and stores how long each took.

    With --naive it shows what common mistakes of timing report on this machine: nothing is stored.

    With --against it answers whether a change made an inference more expensive: exit code 1 if it did,
    by more than --fail-above, and 0 if not, or if the runs do not decide it. Nothing is stored.
    """
    settings = Settings(config)
    probe = _chosen(settings.config, name, body, model)
    gate = "--save" if against is None else "--against"
    kinds = {"--cold-start": cold_start, "--load": load, "--naive": naive, "--sweep": sweep}
    kinds[gate] = save is not None or against is not None
    more = {"--stored": stored, "--yes": yes, "--runs": runs is not None}
    more["--fail-above"] = fail_above is not None
    _check_options([option for option, is_set in kinds.items() if is_set], more)
    if kinds[gate]:
        base: ProbeRuns | AnyProbe | None = None
        if against is not None and against.endswith(gates.SUFFIX):
            base = gates.load(Path(against))
        elif against is not None:
            base = _chosen(settings.config, against, body, model)
        wanted = gates.RUNS if runs is None else runs
        gated = _gated(settings, probe, device, base, runs=wanted, save=save, limit=fail_above)
        echo_answer(gated.document(), gated.lines(), as_json=as_json)
        if gated.verdict == "more_expensive":
            raise SystemExit(1)
        return
    if cold_start:
        report = _measured_starts(settings, probe, device, runs or RUNS)
        echo_answer(report.document(), report.lines(), as_json=as_json)
        return
    if naive:
        mistakes = _measured_mistakes(settings, probe, device)
        echo_answer(mistakes.document(), mistakes.lines(), as_json=as_json)
        return
    if load:
        curves = _load_curves(settings, probe, device, stored=stored, agreed=yes)
        change = curve_change(*curves[-2:]) if len(curves) > 1 else None
        document = loads.curve_document(curves[-1], change)
        echo_answer(document, load_shown(curves[-1], change), as_json=as_json)
        return
    if not sweep:
        with open_bench(settings, probe, device) as bench:
            document = report_document(bench.measured(probe))
            bench.bar.clear()
            lines = [probe_line(document)]
            if probe.name not in {known.name for known in settings.config.probe}:
                lines += _section_lines(probe)
            echo_answer(document, lines, as_json=as_json)
        return
    curve = _swept(settings, probe, device, stored=stored)
    echo_answer(curve.document(), shown(curve), as_json=as_json)


def _gated(
    settings: Settings,
    probe: AnyProbe,
    device: str | None,
    base: ProbeRuns | AnyProbe | None,
    *,
    runs: int,
    save: Path | None,
    limit: float | None,
) -> gates.GateReport:
    """Run a probe several times; save the runs, and compare them with those of a base, if there is one."""
    if runs < RUNS_MIN:
        raise bad_input(f"--runs {runs}: fewer than {RUNS_MIN} runs do not show how runs differ")
    if save is not None and save.suffix != gates.SUFFIX:
        raise bad_input(f"--save {save}: name the file *{gates.SUFFIX}")
    saved = base if isinstance(base, ProbeRuns) else None
    other = None if isinstance(base, ProbeRuns) else base
    with open_bench(settings, probe, device) as bench:
        before, now = gates.measured_runs(bench, probe, saved or other, runs)
        terms = bench.terms
    if save is not None:
        gates.save(now, save)
    return gates.GateReport(before, now, other is not None, limit, terms)


def _check_options(chosen: Sequence[str], more: Mapping[str, bool]) -> None:
    """Check that options fit together.

    Args:
        chosen: The measurements that were asked for.
        more: Whether each option is given that belongs to some measurements.

    Raises:
        click.ClickException: They do not.
    """
    for option, is_given in more.items():
        if is_given and not set(chosen) & set(_OPTIONS[option]):
            raise bad_input(f"{option} needs {' or '.join(_OPTIONS[option])}")
    if len(chosen) > 1:
        raise bad_input(f"{' and '.join(chosen)} are different measurements: keep one")


def _swept(
    settings: Settings, probe: AnyProbe, device: str | None, *, stored: bool
) -> sweeps.SweepCurve:
    """Return the stored sweep of a model, or measure and store it."""
    if not isinstance(probe, ProbeConfig):
        raise bad_input(f"{probe.name}: a server chooses its own batches; use --load")
    if stored:
        return sweeps.stored(settings, probe, device)
    with open_bench(settings, probe, device) as bench:
        curve = _measured_curve(bench, probe)
    keep(settings, sweeps.rows_of(curve))
    return curve


def _load_curves(
    settings: Settings, probe: AnyProbe, device: str | None, *, stored: bool, agreed: bool
) -> list[LoadCurve]:
    """Return the load curves of a server in order of time; unless `stored`, measure and store one."""
    if isinstance(probe, ProbeConfig):
        raise bad_input(
            f"{probe.name}: only a server has a load curve; use --sweep for the batch sizes of a"
            " model"
        )
    if stored:
        return loads.stored(settings, probe, device)
    curve = loads.measured_curve(settings, probe, device, agreed=agreed)
    curves = [*loads.earlier(settings, probe, curve), curve]
    keep(settings, loads.rows_of(settings, curves))
    return curves


def _measured_starts(
    settings: Settings, probe: AnyProbe, device: str | None, runs: int
) -> StartReport:
    """Measure and store starts of a probe's model."""
    if not isinstance(probe, ProbeConfig):
        raise bad_input(
            f"{probe.name}: costprobe does not start the server; remove --cold-start, and set"
            " cold_start in [[service]]"
        )
    with open_bench(settings, probe, device) as bench:
        starts = bench.starts(probe, runs)
        report = StartReport(probe.name, bench.device, time.time_ns(), starts)
    keep(settings, report.rows({**bench.tags, **probe.labels}))
    return report


def _measured_mistakes(settings: Settings, probe: AnyProbe, device: str | None) -> NaiveReport:
    """Measure a probe's model in a new process, correctly and with common mistakes."""
    if not isinstance(probe, ProbeConfig):
        raise bad_input(
            f"{probe.name}: --naive measures passes of a model, not requests to a server; remove it"
        )
    # A process that keeps a model, or searches its batch, has no first pass any more.
    probe = probe.model_copy(update={"energy": False, "keep_alive": False})
    with open_bench(settings, probe, device) as bench:
        if probe.batch == "auto":
            batch = bench.run(probe).batch
            probe = probe.model_copy(update={"batch": batch})
        run = bench.run(probe, naive=True)
        bench.bar.clear()
    return NaiveReport(run, time.time_ns())


def _measured_curve(bench: Bench, probe: ProbeConfig) -> sweeps.SweepCurve:
    """Search the batch size, then measure every batch size of the search in full.

    On a CPU without configured threads it does so for 1, 2, 4, ... threads up to all processors.
    """
    peaks: dict[tuple[int | None, int], int] = {}
    reports = []
    for threads in _thread_counts(bench, probe):
        own = {"keep_alive": True, "threads": threads}
        search = {**own, "batch": "auto", "energy": False}
        curve = bench.run(probe.model_copy(update=search), search_anew=True)
        found = {int(point["batch"]): int(point["peak_memory_bytes"]) for point in curve.curve}
        peaks |= {(curve.threads, batch): peak for batch, peak in found.items()}
        reports += [
            bench.measured(probe.model_copy(update={**own, "batch": batch}))
            for batch in sorted(found or {curve.batch: 0})
        ]
    return sweeps.curve_of(reports, peaks, probe, bench.tags)


def _thread_counts(bench: Bench, probe: ProbeConfig) -> Sequence[int | None]:
    if probe.threads is not None or not bench.is_on_cpu:
        return [probe.threads]
    processors = len(os.sched_getaffinity(0))
    doubled = (1 << exponent for exponent in range(processors.bit_length()))
    return sorted({processors, *(count for count in doubled if count < processors)})


def _chosen(
    config: Config, name: str | None, body: Path | None, served_model: str | None
) -> AnyProbe:
    configured = {probe.name: probe for probe in config.probe}
    if name is None and configured:
        return next(iter(configured.values()))
    name = name or BUILT_IN_MODELS[0]
    if name in configured:
        return configured[name]
    try:
        section = section_of(name, body)
    except ValueError as error:
        raise bad_input(str(error)) from error
    if section is None:
        raise unknown_name("probe", name, [*configured, *BUILT_IN_MODELS])
    if section["kind"] == "openai":
        section["model"] = served_model or _served_model(name)
    return _validated(section)


def _served_model(url: str) -> str:
    """Return the model of a server with OpenAI's API.

    Raises:
        click.ClickException: It lists none, or several.
    """
    from costprobe.adapters.load_child.clients import models_of  # noqa: PLC0415 - loads http.client

    try:
        models = models_of(url, MODELS_TIMEOUT_S)
    except ValueError as error:
        raise bad_input(str(error)) from error
    if len(models) == 1:
        return models[0]
    if models:
        listed = ", ".join(one_line(name) for name in models[:NAMES_SHOWN])
        raise bad_input(f"{url}: name one of its models with --model: {listed}")
    raise bad_input(f"{url}: lists no models; check that the server runs, or name one with --model")


def _validated(section: Mapping[str, str]) -> AnyProbe:
    kinds: Mapping[str, type[AnyProbe]] = {"openai": OpenAiProbeConfig, "http": HttpProbeConfig}
    try:
        return kinds.get(section["kind"], ProbeConfig).model_validate(section)
    except ValueError as error:
        first = error.errors()[0] if isinstance(error, ValidationError) else {"msg": str(error)}
        raise bad_input(
            f"{section['kind']}: {first['msg'].removeprefix('Value error, ')}"
        ) from None


def _section_lines(probe: AnyProbe) -> list[str]:
    """Return the lines to add to the configuration, so that the daemon runs the probe, too."""
    given = probe.model_dump(mode="json", exclude_unset=True)
    keys = (f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in given.items())
    return ["", "To run it on a schedule, add to the configuration:", "[[probe]]", *keys]

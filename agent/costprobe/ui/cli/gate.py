"""Whether a change made an inference more expensive: several runs of a probe against those of another, or of a file."""

from __future__ import annotations

import json
import math
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from costprobe.core.money import common_scale, money, per_words
from costprobe.core.outside import MAX_BYTES, bounded_object, read_regular
from costprobe.core.statistics import ConfidenceInterval
from costprobe.core.units import percent
from costprobe.pricing.book import Terms
from costprobe.probing.cost import ProbeRun
from costprobe.probing.repeated import ProbeRuns, RunFigure, costs_of, undelayed
from costprobe.probing.run import AnyProbe
from costprobe.probing.settings import ProbeConfig
from costprobe.ui.cli.bench import Bench
from costprobe.ui.cli.support.fitting import table_lines
from costprobe.ui.cli.support.output import replace_file
from costprobe.ui.cli.support.place import bad_input
from costprobe.unit_costs.compare import Verdict, change_of, runs_needed, verdict

SUFFIX: Final = ".json"
# Of the file. Another number is that of a file that this version cannot read.
FORMAT: Final = 1
RUNS: Final = 10
RUNS_MAX: Final = 100


def save(runs: ProbeRuns, file: Path) -> None:
    """Write runs as JSON.

    Raises:
        click.ClickException: The file cannot be written.
    """
    replace_file(file, json.dumps({"format": FORMAT, **asdict(runs)}, indent=1) + "\n")


def load(file: Path) -> ProbeRuns:
    """Read the runs that `save` wrote.

    Raises:
        click.ClickException: The file cannot be read, or is damaged.
    """
    damaged = f"{file}: damaged, or not written by --save of this version: save the base anew"
    try:
        document = bounded_object(read_regular(file, MAX_BYTES), MAX_BYTES)
        if document.pop("format", None) != FORMAT:
            raise bad_input(damaged)
        return ProbeRuns.of(document)
    except OSError as error:
        raise bad_input(f"{file}: cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise bad_input(damaged) from error


def measured_runs(
    bench: Bench, probe: AnyProbe, base: ProbeRuns | AnyProbe | None, runs: int
) -> tuple[ProbeRuns | None, ProbeRuns]:
    """Run a probe so many times in new processes, in turn with that of the base if it is a probe.

    Every other time the order is reversed: what changes slowly on the host is the same for both.

    Args:
        bench: Their device.
        probe: The probe. With batch = "auto" it gets the batch of the base.
        base: Saved runs, or another probe; None for no base.
        runs: Runs of each.

    Returns:
        The runs of the base, if there is one, and of the probe.

    Raises:
        click.ClickException: A run failed, or the base cannot be compared.
    """
    saved = base if isinstance(base, ProbeRuns) else None
    probes = [probe] if base is None or isinstance(base, ProbeRuns) else [base, probe]
    pays_energy = bench.terms is not None and bench.terms.electricity_per_j > 0
    chosen = [_in_new_process(one, number, pays_energy) for number, one in enumerate(probes)]
    batch = None if saved is None else saved.batch
    measured: list[list[ProbeRun]] = [[] for _ in chosen]
    found: list[ProbeRuns] = []
    for number in range(runs):
        order = range(len(chosen)) if number % 2 == 0 else reversed(range(len(chosen)))
        for index in order:
            chosen[index] = _with_batch(chosen[index], batch)
            measured[index].append(bench.run(chosen[index]))
            batch = batch or measured[index][0].batch
        found = [
            _runs_of(bench, one, own, pays_energy=pays_energy)
            for one, own in zip(probes, measured, strict=True)
        ]
        if number == 0 and base is not None:
            _check_same(saved or found[0], found[-1], is_file=saved is not None)
    bench.bar.clear()
    return saved or (found[0] if base is not None else None), found[-1]


def _in_new_process(probe: AnyProbe, number: int, pays_energy: bool) -> AnyProbe:  # noqa: FBT001 - as a field
    """Return a probe whose runs share no process, with each other or with those of another probe."""
    update: dict[str, Any] = {"energy": probe.energy and pays_energy}
    update["name"] = f"{probe.name} ({number})" if number else probe.name
    if isinstance(probe, ProbeConfig):
        update["keep_alive"] = False
    return probe.model_copy(update=update)


def _with_batch(probe: AnyProbe, batch: int | None) -> AnyProbe:
    if isinstance(probe, ProbeConfig) and probe.batch == "auto" and batch is not None:
        return probe.model_copy(update={"batch": batch})
    return probe


def _runs_of(
    bench: Bench, probe: AnyProbe, measured: Sequence[ProbeRun], *, pays_energy: bool
) -> ProbeRuns:
    last = measured[-1]
    return ProbeRuns(
        probe=probe.name,
        device=bench.device,
        model=bench.model,
        batch=last.batch,
        dtype=probe.measured_dtype if isinstance(probe, ProbeConfig) else None,
        threads=last.threads,
        concurrency=last.tags.get("concurrency"),
        software=dict(last.software),
        time_ns=time.time_ns(),
        runs=tuple(RunFigure.of(run, pays_energy=pays_energy) for run in measured),
    )


def _check_same(base: ProbeRuns, now: ProbeRuns, *, is_file: bool) -> None:
    """Check that the costs of both can be compared.

    Raises:
        click.ClickException: They cannot, with what differs.
    """
    if found := ", ".join(base.differences(now, is_file=is_file)):
        fix = "save the base anew" if is_file else "set the same for both"
        raise bad_input(f"the base cannot be compared: {found}; {fix}")


@dataclass(frozen=True, slots=True)
class GateReport:
    """Runs, and those of a base, at the prices in force now.

    Attributes:
        base: The base; None if the runs were only saved.
        now: The runs that are tested.
        is_paired: Whether they alternated.
        limit: Largest acceptable increase, relative; None for none.
        terms: Price terms in force; None without a price.
    """

    base: ProbeRuns | None
    now: ProbeRuns
    is_paired: bool
    limit: float | None
    terms: Terms | None

    @property
    def verdict(self) -> Verdict | None:
        """Whether an inference became more expensive than the limit; None without a base or a limit."""
        change = self._change
        return None if change is None or self.limit is None else verdict(change, self.limit)

    @property
    def _sides(self) -> dict[str, ProbeRuns]:
        return {"now": self.now} if self.base is None else {"base": self.base, "now": self.now}

    @property
    def _used(self) -> dict[str, list[RunFigure]]:
        return undelayed(self.base, self.now, is_paired=self.is_paired)

    @property
    def _figures(self) -> tuple[dict[str, list[float]], str]:
        return costs_of(self._used, self.terms)

    @property
    def _change(self) -> ConfidenceInterval | None:
        if self.base is None:
            return None
        figures, _ = self._figures
        return change_of(figures["base"], figures["now"], is_paired=self.is_paired)

    def document(self) -> dict[str, Any]:
        """Return the runs of both, the change with its interval, and the verdict as JSON."""
        figures, currency = self._figures
        change = self._change
        shares = (None, None, None) if change is None else change
        names = ("change_pct", "change_low_pct", "change_high_pct")
        return {
            "currency": currency,
            "base": None,
            **{
                name: {
                    **asdict(one),
                    "cost_per_inference": _mean(figures[name]) if currency else None,
                    "deviation_pct": _deviation(figures[name]) * 100,
                    "runs_used": len(figures[name]),
                }
                for name, one in self._sides.items()
            },
            "alternating": self.is_paired,
            **{
                name: None if share is None else share * 100
                for name, share in zip(names, shares, strict=True)
            },
            "limit_pct": None if self.limit is None else self.limit * 100,
            "verdict": self.verdict,
        }

    def lines(self) -> Iterator[str]:
        """Yield the table, the change with its interval, and what it means."""
        figures, currency = self._figures
        scale = common_scale(_mean(one) for one in figures.values()) if currency else 1000
        unit = per_words(scale) if currency else "ms per inference"
        rows = [("", unit, "between runs", "runs", "contended")]
        used = self._used
        for name, runs in used.items():
            mean = _mean(figures[name]) * scale
            contended = sum(run.contended is True for run in runs)
            shown = money(mean, currency) if currency else f"{mean:.4g}"
            spread = f"±{percent(_deviation(figures[name]), 1)}"
            rows.append((name, shown, spread, str(len(runs)), str(contended)))
        yield f"{self.now.probe} on {self.now.device} ({self.now.model}), batch {self.now.batch}"
        yield from table_lines(rows)
        for name, one in self._sides.items():
            if len(used[name]) < len(one.runs):
                left_out = f"{len(one.runs) - len(used[name])} of {len(one.runs)} runs"
                yield f"{name}: without {left_out}, in which others delayed nearly all passes"
        if self.terms is not None and not currency:
            yield "by time alone: electricity is paid apart, and the energy of a run is unknown"
        if self.base is not None:
            yield from self._change_lines(self.base)

    def _change_lines(self, base: ProbeRuns) -> Iterator[str]:
        before, after = base.software, self.now.software
        for key in sorted(key for key in {*before, *after} if before.get(key) != after.get(key)):
            yield f"differs: {key} {before.get(key, 'none')}, now {after.get(key, 'none')}"
        change = self._change
        if change is None:
            return
        limit = "" if self.limit is None else f"; limit {_signed(self.limit)}"
        interval = f"{_signed(change.low)} to {_signed(change.high)}"
        yield f"change {_signed(change.value)}, 95 % interval {interval}{limit}"
        if self.limit is None:
            return
        if self.verdict == "more_expensive":
            yield "FAILED: an inference is more expensive, by more than the limit"
        elif self.verdict == "within":
            yield "passed: the whole interval is within the limit"
        else:
            needed = runs_needed(change, self.limit, len(self.now.runs))
            more = f"set --runs {needed}, or " if needed <= RUNS_MAX else ""
            yield f"inconclusive, and not failed: runs differ too much; {more}measure on an idle machine"


def _mean(figures: Sequence[float]) -> float:
    """Return the geometric mean, whose ratio the change is."""
    return math.exp(statistics.fmean(map(math.log, figures)))


def _deviation(figures: Sequence[float]) -> float:
    """Return the relative standard deviation between runs."""
    return statistics.stdev(map(math.log, figures))


def _signed(share: float) -> str:
    return f"{share * 100:+,.1f} %"

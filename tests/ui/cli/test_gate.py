"""Whether a change made an inference more expensive: runs against those of another probe, or of a file."""

import json
from dataclasses import replace

import pytest
from costprobe.ui.cli.gate import GateReport, ProbeRuns, RunFigure
from fakes.command import called
from fakes.documents import checked
from fakes.scenes import WORKER

# Each takes two seconds.
AT_ONCE = ("--device", "cpu", "--runs", "2", "--fail-above", "5%")


@pytest.fixture
def config(tmp_path):
    """Two probes of a scripted worker: the second takes 1.2 times as long."""
    file = tmp_path / "costprobe.toml"
    probes = "".join(
        f'[[probe]]\nname = "{name}"\nkind = "cnn"\nbatch = 4\npython = "{WORKER}"\n'
        for name in ("cheap", "dear")
    )
    file.write_text(f'[store]\npath = "{tmp_path}/costprobe.db"\n{probes}')
    return file


@pytest.mark.processes
def test_more_expensive_inference_fails_with_its_change(config, tmp_path, monkeypatch):
    monkeypatch.setattr("costprobe.ui.cli.probe.RUNS_MIN", 2)
    words = ("probe", "dear", "--against", "cheap", *AT_ONCE, "--json")
    found = checked("probe", called(config, *words, code=1).stdout)
    assert (found["verdict"], found["alternating"]) == ("more_expensive", True)
    changes = [found[name] for name in ("change_pct", "change_low_pct", "change_high_pct")]
    assert changes == pytest.approx([20.0] * 3)
    assert found["base"]["cost_per_inference"] * 1.2 == pytest.approx(
        found["now"]["cost_per_inference"]
    )
    base = tmp_path / "base.json"
    words = ("probe", "cheap", "--device", "cpu", "--runs", "5", "--save", base, "--json")
    saved = checked("probe", called(config, *words).stdout)
    assert (saved["base"], saved["verdict"]) == (None, None)
    assert not (tmp_path / "costprobe.db").exists()
    shown = called(config, "probe", "cheap", "--against", base, *AT_ONCE).stdout
    assert "change +0.0 %, 95 % interval +0.0 % to +0.0 %; limit +5.0 %" in shown
    assert "passed" in shown
    changed = json.loads(base.read_text()) | {"dtype": "bf16", "batch": 8}
    base.write_text(json.dumps(changed))
    done = called(config, "probe", "dear", "--against", base, *AT_ONCE, code=2)
    differing = "probe cheap and now dear, batch 8 and now 4, dtype bf16 and now fp32"
    assert f"the base cannot be compared: {differing}; save the base anew" in done.output


# What identifies the runs of a probe.
KNOWN = {"probe": "cheap", "device": "cpu", "model": "m", "batch": 4, "dtype": None, "threads": 1}
KNOWN |= {"concurrency": None, "software": {}, "time_ns": 1}


def test_runs_that_others_delayed_are_left_out_if_enough_remain():
    def runs(times_s, delayed=()):
        figures = (RunFigure(x, None, True, n in delayed) for n, x in enumerate(times_s))
        return ProbeRuns(**KNOWN, runs=tuple(figures))

    base = runs([9e-3, 1.0e-3, 1.02e-3, 1.0e-3, 1.01e-3, 1.02e-3, 1.0e-3], {0})
    now = runs([1.1e-3, 1.11e-3, 1.1e-3, 7e-3, 1.11e-3, 1.12e-3, 1.1e-3], {3})
    for is_paired, counts in ((True, (5, 5)), (False, (6, 6))):
        report = GateReport(base, now, is_paired, 0.05, None)
        found = report.document()
        assert (found["base"]["runs_used"], found["now"]["runs_used"]) == counts
        assert found["verdict"] == "more_expensive", found
        assert "in which others delayed nearly all passes" in "\n".join(report.lines())
    few = replace(now, runs=tuple(replace(run, delayed=True) for run in now.runs))
    report = GateReport(base, few, is_paired=True, limit=0.05, terms=None)
    assert (report.verdict, report.document()["now"]["runs_used"]) == ("inconclusive", 7)
    assert "inconclusive, and not failed" in [*report.lines()][-1]


def test_wrong_bases_are_one_error(config, tmp_path):
    base = tmp_path / "base.json"
    run = {"device_s": 1.0, "energy_j": None, "contended": None}
    whole = {"format": 1, **KNOWN, "runs": [run] * 5}
    for wrong in (
        *("", "{", "[]", "7", {}),
        {**whole, "format": 2},
        {**whole, "more": 1},
        {**whole, "software": 7},
        {**whole, "runs": [run] * 4},
        *(
            {**whole, "runs": [run] * 4 + [odd]}
            for odd in ({**run, "device_s": -1.0}, {**run, "device_s": "1"}, 7)
        ),
    ):
        base.write_text(wrong if isinstance(wrong, str) else json.dumps(wrong))
        done = called(config, "probe", "cheap", "--against", base, code=2)
        assert "damaged, or not written by --save" in done.output, wrong
        assert "Traceback" not in done.output

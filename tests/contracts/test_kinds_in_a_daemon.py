"""A plan and a rule that are added only to their tables work in the real daemon."""

import sys

import pytest
from costprobe.core.records import NS_PER_S
from fakes.daemon import DaemonProcess
from fakes.page_examples import PAGES, example

# Registers the examples of the pages, then becomes the daemon whose command line follows.
LAUNCHER = """
import sys
sys.path.insert(0, {tests!r})
from costprobe.alerts.rules.kinds import RULES, RuleKind
from costprobe.pricing.plans import PLANS
from fakes.page_examples import example_module

PLANS["monthly"] = example_module("plans.md", "monthly.py", {folder!r}).MonthlyPlan
rule = example_module("rules.md", "power_limit.py", {folder!r})
RULES["power_limit"] = RuleKind(rule.PowerLimitRuleConfig, rule.PowerLimitRule)
sys.argv = sys.argv[3:]  # python -m costprobe
from costprobe.ui.cli.main import main

main()
"""
HOST = """
[host]
name = "h"
[telemetry]
gpus = false
cpu = true
cpu_idle_w = 10
cpu_max_w = 20
every = "100ms"
[alerting]
defaults = false
evaluate_every = "1s"
"""


def test_toy_plan_and_toy_rule_run_in_the_daemon(tmp_path):
    launcher = tmp_path / "launcher.py"
    launcher.write_text(
        LAUNCHER.format(tests=str(PAGES.parents[1] / "tests"), folder=str(tmp_path))
    )
    daemon = DaemonProcess(tmp_path, {}, wrapper=(sys.executable, launcher))
    text = HOST + example("plans.md", "monthly.toml") + example("rules.md", "power_limit.toml")
    try:
        daemon.start(text)
        (alert,) = daemon.wait_for(lambda: daemon.points("alert", state="firing"))
        daemon.wait_for(lambda: len(daemon.points("device")) > 2)
        before, device = daemon.points("device")[-2:]
    finally:
        daemon.stop()
    assert alert.tags["rule"] == "power"
    assert "above 0 W" in alert.fields["summary"]
    # 730 a month are 1 an hour of an average month.
    interval_h = (device.time_ns - before.time_ns) / NS_PER_S / 3600
    assert device.fields["cost"] == pytest.approx(interval_h, rel=0.1)

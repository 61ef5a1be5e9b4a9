"""What every command prints of one host: that it fits the terminal, names one zone, and is as recorded."""

import json
import re
import tempfile
import time
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from threading import Event

import click
import pytest
from click.testing import CliRunner
from costprobe.adapters.store.read import StoreReader
from costprobe.configuration import demo_config
from costprobe.daemon.control import ControlServer
from costprobe.ui.cli.main import main
from costprobe.ui.cli.support import fitting
from costprobe.ui.cli.support.command_classes import examples_of
from costprobe.ui.cli.support.fitting import table_lines
from costprobe.ui.cli.views.status_lines import probe_line, service_lines
from costprobe.ui.cli.watch import ScrolledView, snapshot
from costprobe.ui.text import in_local_zone
from fakes.cases import check_all
from fakes.cli import NOW_S, commands_of, same, stopped_clock
from fakes.command import called, leaves
from fakes.terminal import on_terminal
from fakes.wide_host import wide_host

# Lines at the beginning and the end of an answer that are recorded.
HALF = 22
CONTROL = re.compile(r"\x1b\[[?0-9;]*[a-zA-Z]")
COLOUR = re.compile(rb"\x1b\[[0-9;]*[1-9][0-9;]*m")
# A unit at the start of a line whose number is at the end of the line before.
UNIT = re.compile(r"(?:%|ms|s|min|h|d|W|J|°C|MHz|MiB|GiB|kWh|USD|EUR|JPY)(?:[ ,;).:]|$)")
# A time of day and what follows it: its zone.
CLOCK = re.compile(r"\d\d:\d\d(?::\d\d)? (?!-)([A-Z]\w+)")
# What these print differs between machines, or is a plot.
OTHER = (
    "trend --since 3d --field device.power_w", "compare --since 3d", "budget", "price show",
    "doctor", "sink retry", "store check", "debug bundle --list",
)  # fmt: skip
# Those with tables and plots, which use the width.
WIDE = ("status", "status --watch", "trend --since 3d", "compare --since 3d", "budget",
        "price list --gpu H100 --cloud azure", "explain --since 1d", "alerts")  # fmt: skip


# Commands without colours on a terminal, and what is in the environment.
PLAIN = (
    (("alerts",), {"NO_COLOR": "1"}), (("trend", "--since", "2d"), {"NO_COLOR": "1"}),
    (("status", "--watch"), {"NO_COLOR": "1"}), (("status", "--watch"), {"TERM": "dumb"}),
    (("--no-color", "alerts"), {}), (("alerts", "--json"), {}),
)  # fmt: skip
# Those that print colours there.
COLOURED = (
    ("status",), ("alerts",), ("doctor",), ("trend", "--since", "2d"), ("compare", "--since", "2d"), ("store", "check"),
    ("status", "--watch"),
)  # fmt: skip


@pytest.fixture(scope="module")
def config():
    """The host at a fixed time in Berlin, in a folder whose path always has the same length."""
    with stopped_clock(zone="Europe/Berlin"), tempfile.TemporaryDirectory(prefix="cp") as folder:
        yield wide_host(Path(folder))


def lines_on(config, words, columns):
    seen = CONTROL.sub("", on_terminal(config, *words.split(), columns=columns).decode())
    return [line.rstrip() for line in seen.replace("\r", "").split("\n")]


def problems_of(lines, columns):
    yield from (f"{len(line)}: {line}" for line in lines if len(line) > columns)
    for before, after in pairwise(lines):
        if re.search(r"\d$", before) and UNIT.match(after.strip()):
            yield f"divided: {before} | {after}"
    if not any(lines) or any("Traceback" in line for line in lines):
        yield str(lines)
    yield from (line for line in lines if not set(CLOCK.findall(line)) <= {"CET", "CEST"})


def test_every_command_fits_the_terminal_names_one_zone_and_prints_what_is_recorded(config):
    problems, printed = [], []
    recorded = commands_of("printed")
    for words in (*recorded, *OTHER):
        lines = lines_on(config, words, 80)
        problems += [f"{words}: {problem}" for problem in problems_of(lines, 80)]
        if words in recorded:
            whole = len(lines) <= 2 * HALF
            printed += [
                f"$ costprobe {words}",
                *(lines if whole else [*lines[:HALF], "[...]", *lines[-HALF:]]),
            ]
    for words in WIDE:
        found = problems_of(lines_on(config, words, 160), 160)
        problems += [f"{words} at 160: {problem}" for problem in found]
    assert not problems, "\n".join(problems)
    text = "\n".join(printed).replace(str(config.parent), "/sample-host")
    same("printed", re.sub(r"\(pid(\s+)\d+", r"(pid\g<1>123", text), masked=False)


# Times in a message of today, 10:25 UTC, and how this host in Berlin writes them.
MESSAGES = (
    ("since 09:05 UTC", "since 2026-06-22 11:05 CEST"),
    ("at 23:00 UTC", "at 2026-06-22 01:00 CEST"),
    ("09:05:10 to 09:06:58 UTC", "2026-06-22 11:05 CEST to 2026-06-22 11:06 CEST"),
    ("2026-01-20 09:05 to 2026-06-21 09:06 UTC", "2026-01-20 10:05 CET to 2026-06-21 11:06 CEST"),
    ("2026-06-20 09:05:11 UTC, +8 %", "2026-06-20 11:05 CEST, +8 %"),
    ("for 12:30 minutes", "for 12:30 minutes"),
)


@pytest.mark.usefixtures("config")
def test_times_in_messages_are_in_the_zone_of_the_host():
    def check(text, here):
        assert in_local_zone(text, NOW_S * 10**9) == here

    check_all(check, MESSAGES)


def test_all_sections_of_the_live_view_are_reachable_at_80x24(config):
    with closing(StoreReader.open(config.parent / "costprobe.db")) as reader:
        now_ns = time.time_ns()
        scrolled = ScrolledView(snapshot(reader, demo_config(), reader.states(), now_ns))

    frames = []
    # A line down and up, a page, the end, the beginning, sections; several keys may arrive at once.
    for keys in ("", "\x1b[B", "k", " ", "G", "g", "\t", "\t", "\t", "gjj"):
        assert scrolled.press(keys)
        lines = [click.unstyle(line) for line in scrolled.lines(80, 24)]
        assert (len(lines), max(map(len, lines)) <= 80) == (24, True)
        frames += [f"# {keys!r}", *(line.rstrip() for line in lines)]
    same("live_view", "\n".join([*frames, ""]), masked=False)
    assert not scrolled.press("jq")


def test_every_help_text_fits_80_columns_and_ends_with_its_examples():
    problems = []
    for name, command in leaves():
        lines = CliRunner().invoke(main, [*name.split(), "--help"]).output.rstrip().splitlines()
        *_, last = examples_of(command)
        wide = [line for line in lines if len(line) > 80]
        problems += [
            f"{name}: {line}"
            for line in wide
            if not line.lstrip().startswith(("costprobe", "sudo costprobe"))
        ]
        problems += [] if lines[-1].endswith(last.split("  # ")[0]) else [f"{name}: {lines[-1]}"]
    assert not problems, "\n".join(problems)


def test_tables_fit_and_numbers_stay_whole(monkeypatch):
    rows = [
        ("model of a probe", "cost", "no value", "latency"),
        ("a name of several words", "$1,234.56", "-", "12.5 ms"),
    ]
    monkeypatch.setattr(fitting, "terminal_columns", lambda: None)
    assert table_lines(rows) == [
        "model of a probe              cost  no value  latency",
        "a name of several words  $1,234.56         -  12.5 ms",
    ]
    monkeypatch.setattr(fitting, "terminal_columns", lambda: 22)
    assert table_lines(rows) == [
        "model of a        cost",
        "probe",
        "a name of    $1,234.56",
        "several",
        "words",
        "without latency: the",
        "terminal is too narrow",
    ]
    # A column with a rank is left out before texts are divided.
    assert table_lines(rows, ranks=(0, 1, 0, 0))[-2].startswith("without cost: ")


def test_colours_are_printed_on_terminals_only(config):
    problems = []
    for words in COLOURED:
        if not COLOUR.search(on_terminal(config, *words)):
            problems.append(f"{words}: no colour on a terminal")
        piped = called(config, *words, code=None, env={"TERM": "xterm-256color"})
        if "\x1b" in piped.output or not piped.stdout:
            problems.append(f"{words}: {piped.output}")
    for words, env in PLAIN:
        seen = on_terminal(config, *words, env=env.items(), stdin_too="TERM" in env)
        if COLOUR.search(seen) or not seen:
            problems.append(f"{words} with {env}: {seen}")
    if not COLOUR.search(on_terminal(config, "alerts", env={"NO_COLOR": ""}.items())):
        problems.append("an empty NO_COLOR counts")
    assert not problems, "\n".join(problems)


@pytest.fixture(scope="module")
def status(config):
    with closing(StoreReader.open(config.parent / "costprobe.db")) as reader:
        return reader.states()["status"][0]


# What tenants cost and count: seven of them; and two, of which one has cached tokens.
MANY = {**{f"team{number}": 0.1 - number / 100 for number in range(7)}, "unattributed": 0.02}
TEAMS = [{"tenant": name, "cost": share, "cost_share": share} for name, share in MANY.items()]
SEARCH = {"tenant": "search", "cost": 0.3, "cost_share": 0.6, "tokens_in": 4e5}
REST = {"tenant": "unattributed", "cost": 0.2, "cost_share": 0.4, "cached_tokens": 4e4}
CACHED = {"cached_share": 0.8, "cost_cache_saved": 0.7, "cost_per_million_tokens_fresh": 2.0}


def test_services_are_shown_with_tenants_caches_and_faults(status):
    (service,) = status["services"]
    last = service["last"]
    tenants = {"counted_share": 0.9, "problems": [], "parts": TEAMS}
    beyond = {**tenants, "counted_share": 1.6, "problems": ["no answer"]}
    counted = {**tenants, "parts": [{**SEARCH, "cached_tokens": 3.6e5}, REST]}
    uncounted = {**tenants, "parts": [{**SEARCH, "cached_tokens": None}, REST]}
    cost = {**last["cost"], **CACHED, "cost_per_million_tokens_cached": 0.25}
    unweighed = {**cost, "cost_per_million_tokens_cached": 0.0}
    faults = {"cost": None, "energy": None, "problems": ["http://x: away"], "restarts": 2}
    shown = {
        "none yet": None,
        "faults": {**last, **faults},
        "many tenants": {**last, "tenants": tenants},
        "tenants that count too much": {**last, "tenants": beyond},
        "cached tokens": {**last, "cost": cost, "tenants": counted, "cached_tokens": 4e5},
        "cached tokens, which no tenant counts and no calibration weighs": {
            **last,
            "cost": unweighed,
            "tenants": uncounted,
            "cached_tokens": 4e5,
        },
    }
    texts = [
        "\n".join([f"# {name}", *service_lines({**service, "last": one}), ""])
        for name, one in shown.items()
    ]
    same("services", "\n".join(texts))


def test_price_by_chunks_of_a_stream_is_marked(status):
    last = status["probes"][0]["last"]
    cost = {**last["cost"], "cost_per_million_tokens_out": 5.0}
    for source, words in (
        ("usage", "per million tokens out"),
        ("chunks", "per million tokens out (chunks of the stream counted as tokens)"),
    ):
        served = {"cost": cost, "tags": {"concurrency": "1"}, "fields": {"token_source": source}}
        assert probe_line({**last, **served}).endswith(words)


def test_commands_show_the_documents_of_the_running_daemon(config, status):
    """If the store cannot be written, its documents are old."""
    failing = {"state": "failing", "last_error": "disk full", "retry_in_s": 9.0, "rejections": None}
    now = {**status, "sinks": dict.fromkeys(status["sinks"], failing), "alerts": []}
    answers = {
        "status": lambda _: now,
        "alerts": lambda _: {"alerts": [], "silenced": [], "silences": []},
    }

    def shown():
        """Return the error of the sink and whether an alert fires, as each command shows them."""
        document, live = (
            json.loads(called(config, *words, "--json", code=None).stdout)
            for words in (("status",), ("status", "--watch"))
        )
        (sink,) = document["sinks"].values()
        return [
            sink["last_error"],
            live["sinks"][0]["last_error"],
            document["alerts"],
            live["alerts"],
        ]

    stored = shown()
    assert "connection refused" in stored[0] == stored[1]
    assert [len(alerts) for alerts in stored[2:]] == [1, 1]
    server = ControlServer(config.with_name("control.sock"), answers, Event())
    server.start()
    try:
        assert shown() == ["disk full", "disk full", [], []]
        now["store"] = {**status["store"], "path": "/another.db"}
        assert shown() == stored
    finally:
        server.close()

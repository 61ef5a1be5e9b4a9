"""Damaged configuration files, and files with keys and values in the wrong places.

Outcome: the command line either takes a file or names what is wrong in it, key by key, with exit
code 2; never a traceback, whatever is in the file.
"""

import tomllib
from pathlib import Path

import pytest
import tomli_w
from click.testing import CliRunner
from costprobe.ui.cli import config as config_command
from costprobe.ui.cli.main import main
from fakes.cases import check_all
from fakes.command import called
from fakes.sizes import TIMEOUT_S, sized
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

EXAMPLES = sized(50, 20_000)
GOOD, BAD_INPUT = 0, 2
FULL = """
[host]
name = "h1"
labels = { rack = "a1" }
[telemetry]
every = "1s"
cpu = "auto"
[probing]
duty = 0.02
[store]
path = "/tmp/costprobe-fuzz/costprobe.db"
outbox_retention = "180d"
[http]
listen = "127.0.0.1:9177"
[alerting]
evaluate_every = "30s"
[electricity]
tariff_per_kwh = 0.31
pue = 1.4
timezone = "Europe/Berlin"
[[probe]]
name = "encoder"
kind = "transformer"
every = "5m"
batch = "auto"
devices = ["gpu0"]
[[probe]]
name = "chat"
kind = "openai"
url = "http://127.0.0.1:8000"
model = "m"
[[price]]
plan = "on_demand"
per_hour = 2.176
currency = "USD"
[[price]]
plan = "owned"
device = "gpu1"
purchase_price = 15000.10
lifetime = "3y"
[[sink]]
name = "one"
api = "v1"
url = "http://127.0.0.1:8086"
database = "d"
[[sink]]
name = "two"
api = "v2"
url = "https://db:8086"
org = "o"
bucket = "b"
token = "file:/etc/costprobe/token"
[[rule]]
name = "hot"
kind = "threshold"
measurement = "device"
field = "temp_c"
above = 85
[[notifier]]
name = "ops"
kind = "webhook"
url = "https://127.0.0.1/hook"
[[maintenance]]
name = "nights"
match = { device = "gpu0" }
start = "22:00"
end = "06:00"
"""
TABLES = tomllib.loads(FULL)
SCALARS = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.text(max_size=12),
    st.datetimes(),
    st.dates(),
    st.times(),
    st.sampled_from(
        ["", "5m", "-1s", "1e999s", "0", "auto", "gpu0", "99999999999999d", "99999y", "a\0b"]
    ),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=6,
)
long_or_short = settings(
    max_examples=EXAMPLES,
    derandomize=EXAMPLES <= 300,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


def places(value, place=()):
    """The path of every value in nested tables."""
    yield place
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, inner in items:
        yield from places(inner, (*place, key))


PLACES = [place for place in places(TABLES) if place]


def replaced(value, place, new):
    if not place:
        return new
    if isinstance(value, dict):
        return {**value, place[0]: replaced(value.get(place[0], {}), place[1:], new)}
    return [replaced(v, place[1:], new) if i == place[0] else v for i, v in enumerate(value)]


def checked(folder, content):
    """The results of `costprobe config check` and `config show` for a file."""
    path = Path(folder) / "fuzzed.toml"
    path.write_bytes(content)
    codes = []
    for command in ("check", "show"):
        done = CliRunner().invoke(main, ["--config", str(path), "config", command])
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        assert "Traceback" not in done.output
        assert done.exit_code in {GOOD, BAD_INPUT}
        if done.exit_code == BAD_INPUT:
            assert str(path) in done.output
            assert len(done.output) < 200_000
        codes.append(done.exit_code)
    assert codes[0] == codes[1]
    return codes[0]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Without the process that reads the devices of this host: 300 of them take minutes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(config_command, "discovered_devices", lambda _: ())
        yield tmp_path_factory.mktemp("fuzzed")


def test_undamaged_file_is_valid(folder):
    assert checked(folder, FULL.encode()) == GOOD


@pytest.mark.timeout(TIMEOUT_S)
@long_or_short
@given(place=st.sampled_from(PLACES), value=VALUES, key=st.text(max_size=8), is_new=st.booleans())
def test_invalid_values_and_keys_are_named_in_the_error(folder, place, value, key, is_new):
    if is_new:
        parent = place[:-1]
        place = (*parent, key) if not parent or isinstance(parent[-1], int) else (*place[:1], key)
        if isinstance(TABLES.get(place[0]), list) and len(place) == 2:
            place = (place[0], 0, key)
    text = tomli_w.dumps(replaced(TABLES, place, value))
    checked(folder, text.encode("utf-8", "surrogatepass"))


@st.composite
def damaged(draw):
    """The bytes of a valid file after a few random changes."""
    content = bytearray(FULL.encode())
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, len(content)))
        kind = draw(st.sampled_from(["flip", "insert", "cut", "twice", "swap"]))
        length = draw(st.integers(1, 60))
        if kind == "flip" and at < len(content):
            content[at] ^= draw(st.integers(1, 255))
        elif kind == "insert":
            content[at:at] = draw(st.binary(max_size=12))
        elif kind == "cut":
            del content[at : at + length]
        elif kind == "twice":
            content[at:at] = content[at : at + length]
        else:
            other = draw(st.integers(0, len(content)))
            content[at : at + length] = content[other : other + length]
    return bytes(content)


@pytest.mark.timeout(TIMEOUT_S)
@long_or_short
@given(content=damaged())
def test_damaged_file_is_loaded_or_rejected(folder, content):
    checked(folder, content)


@pytest.mark.timeout(TIMEOUT_S)
@long_or_short
@given(content=st.binary(max_size=300))
def test_any_bytes_are_loaded_or_rejected(folder, content):
    checked(folder, content)


def test_values_out_of_all_ranges_are_named(folder):
    reserved = '[[price]]\nplan = "reserved"\nper_hour = 1\ndiscount = 0.1\n'

    def check(text, message):
        path = folder / "ranges.toml"
        path.write_text(text)
        done = called(path, "config", "check", code=BAD_INPUT)
        assert f"{path}: {message}" in done.stderr, done.stderr
        # A command that reads only the path of the store.
        called(path, "status", code=None)

    check_all(
        check,
        [
            (f'{reserved}term = "99999y"\nvalid_from = 2026-01-01\n', "price[0].term: '99999y'"),
            (f'{reserved}term = "1y"\nvalid_from = 9999-12-31\n', "price[0].valid_from: "),
            ("[http]\nmax_series = " + "9" * 5000, "has an integer of over 4,300 digits"),
            ("[probing]\nduty = " + "9" * 4000, "probing.duty: is not an integer of 64 bits"),
            ('[store]\npath = "a\\u0000b"\n', "store.path: contains a NUL"),
            ('[host.labels]\n"a\\u0000b" = "c"\n', "host.labels: contains a NUL"),
        ],
    )

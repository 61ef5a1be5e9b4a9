"""Damaged configuration files, and files with keys and values in the wrong places.

Outcome: the command line either takes a file or names what is wrong in it, key by key, with exit
code 2; never a traceback, whatever is in the file.
"""

import random
from pathlib import Path

import pytest
from click.testing import CliRunner
from costprobe.ui.cli import config as config_command
from costprobe.ui.cli.main import main
from fakes.cases import check_all
from fakes.command import called
from fakes.damaged import damaged
from fakes.sizes import SEED, TIMEOUT_S, sized

FULL = (Path(__file__).parents[1] / "fakes/full.toml").read_text()
EXAMPLES = sized(50, 20_000)
GOOD, BAD_INPUT = 0, 2


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
def test_damaged_file_is_loaded_or_rejected(folder):
    rng = random.Random(SEED)
    check_all(
        lambda content: checked(folder, content),
        (damaged(rng, FULL.encode()) for _ in range(EXAMPLES)),
    )


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

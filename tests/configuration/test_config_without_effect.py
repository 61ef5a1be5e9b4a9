"""Configuration that would silently do nothing is an error that names key and fix."""

from pathlib import Path

from costprobe.configuration import parse
from fakes.command import called

BUDGET = '[[budget]]\nname = "b"\namount = 1\nperiod = "day"\n'
# Files in which each part has an effect; `refused.txt` has such in which one has none.
ACCEPTED = Path(__file__).with_name("accepted.txt")


def test_labels_hours_and_windows_of_their_own_are_accepted():
    for text in ACCEPTED.read_text().split("\n\n"):
        parse(text, Path("costprobe.toml"))


def test_files_of_prices_and_intensities_are_checked(tmp_path):
    prices, config = tmp_path / "prices.csv", tmp_path / "costprobe.toml"
    plan = f'plan = "spot"\nfile = "{prices}"\ncurrency = '
    for section, key, text in (
        (f'[[price]]\n{plan}"USD"', "price[0].file", "3,21"),
        (f'[[price]]\n{plan}"USD"', "price[0].file", "per_hour,currency\n1.8,EUR"),
        (f'[carbon]\nfile = "{prices}"', "carbon.file", "302,5"),
    ):
        prices.unlink(missing_ok=True)
        config.write_text(section)
        assert f"note: {key}: {prices}: cannot be read" in called(config, "config", "check").stdout
        prices.write_text(text)
        assert f"{config}: {key}: {prices}: " in called(config, "config", "check", code=2).stderr


def test_devices_that_this_host_lacks_are_noted(tmp_path):
    config = tmp_path / "costprobe.toml"
    config.write_text(f'[telemetry]\ngpus = false\ncpu = true\n{BUDGET}device = "gpu99"\n')
    done = called(config, "config", "check")
    assert "note: budget[0].device: this host has no device gpu99 now; devices: cpu" in done.stdout

"""Configuration that would silently do nothing is an error that names key and fix."""

from pathlib import Path

from costprobe.configuration import parse
from fakes.command import called

FILE = Path("costprobe.toml")
BUDGET = '[[budget]]\nname = "b"\namount = 1\nperiod = "day"\n'
WINDOW = '[[maintenance]]\nname = "n"\nstart = "01:00"\nend = "02:00"\n'
HOT = '[[rule]]\nname = "a"\nkind = "threshold"\nmeasurement = "device"\nfield = "temp_c"\nabove = 1\n'
DRIFT = '[[rule]]\nname = "d"\nkind = "drift"\n'
PAGER = '[[notifier]]\nname = "n"\nkind = "webhook"\nurl = "https://h/"\n'
ENDS = '[[maintenance]]\nname = "{}"\nstart = "{}"\nend = "{}"\n'
HOURS = """
[electricity]
tariff_per_kwh = 1
[[electricity.hours]]
start = "22:00"
end = "06:00"
tariff_per_kwh = 2
[[electricity.hours]]
days = [{}]
start = "{}"
end = "{}"
tariff_per_kwh = 3
"""


def test_labels_that_a_series_or_incident_has_are_accepted():
    parse(f'[host]\nlabels = {{ rack = "r" }}\n{WINDOW}match = {{ rack = "r", rule = "a" }}', FILE)
    parse(f'{HOT}labels = {{ team = "ml" }}\n{PAGER}match = {{ team = "ml", device = "g*" }}', FILE)
    parse(f'{DRIFT}match = {{ probe = "chat*", metric = "cost" }}\ngroup_by = ["probe"]', FILE)
    parse(HOURS.format('"mon"', "05:00", "07:00"), FILE)
    parse(f'{PAGER}match = {{ severity = "crit*" }}', FILE)


def test_maintenance_windows_with_hours_or_incidents_of_their_own_are_accepted():
    for other in (
        ENDS.format("m", "01:30", "02:30"),
        ENDS.format("m", "01:00", "02:00") + 'timezone = "Asia/Tokyo"\n',
        # The wider one is for other incidents only.
        ENDS.format("m", "00:00", "04:00") + 'match = { host = "x" }\n',
        ENDS.format("m", "22:00", "01:00"),
    ):
        parse(WINDOW + other, FILE)


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

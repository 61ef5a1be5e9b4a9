"""A debug bundle has the diagnostic files and no secret, whatever file or row contained one."""

import json
import os
import stat
import tarfile
import time
from contextlib import chdir, closing
from pathlib import Path

import pytest
from costprobe.adapters.host.redaction import Redactor
from costprobe.adapters.store.write import Store
from costprobe.core.clock import SystemClock
from costprobe.core.records import Point
from costprobe.ui.cli.debug import FILE_BYTES_MAX, BundleFile, gathered, without_addresses
from fakes.command import called

pytestmark = pytest.mark.processes

CANARY = "canary"
FILES = (
    "agent.lp", "alert.lp", "config.toml", "doctor.txt", "event.lp", "journal.txt", "status.json",
    "store.json", "versions.json",
)  # fmt: skip
# Of the host: a secret in every place of a configuration that may contain one.
CONFIG = Path(__file__).with_name("canaries.toml")
SECRETS = {
    "token": "canary-token-1A",
    "password": "canary pass/word=2B",
    "key": "canary-key-3C",
    "url": "https://canary-user:canary-pw@hooks.example/services/canary-T0/canary-B1?x=canary-q",
    "credentials/sink2": "canary-credential-4D",
}


class Host:
    """A host with a secret in every file and row that may contain one."""

    def __init__(self, folder):
        self.folder = folder
        self.config = folder / "costprobe.toml"
        (folder / "credentials").mkdir()
        for name, secret in SECRETS.items():
            (folder / name).write_text(secret + "\n")
        self.env = {
            **os.environ,
            "CREDENTIALS_DIRECTORY": str(folder / "credentials"),
            "INFLUX_TOKEN": "canary-environment-5E",
            "UNNAMED": "canary-of-no-name-6F",
        }
        self.config.write_text(CONFIG.read_text().replace("{folder}", str(folder)))

    def fill(self):
        """Write a store whose rows quote every secret, as error messages of servers may."""
        quoted = " ".join([*SECRETS.values(), "canary-environment-5E"])
        now_ns = time.time_ns()
        event = {"title": "the probe printed", "detail": quoted}
        with closing(Store.open(self.folder / "costprobe.db", SystemClock())) as store:
            store.append(
                [
                    Point("event", {"kind": "fault", "device": "gpu0"}, event, now_ns),
                    Point("event", {"kind": "fault", "device": quoted[:60]}, event, now_ns),
                    Point("event", {"kind": "fault"}, {"title": "old"}, now_ns - 90_000 * 10**9),
                    Point("agent", {"version": "1"}, {"rss_bytes": 1, "cpu_s": 2.5}, now_ns),
                    Point("device", {"device": "gpu0"}, {"power_w": 1.0}, now_ns),
                ]
            )
            store.put_state("status", {"state": "running", "last_words": [quoted], quoted: quoted})
        return self

    def debug(self, *arguments, code=0):
        with chdir(self.folder):
            return called(self.config, "debug", *arguments, code=code, env=self.env).output


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path)


def unpacked(file):
    with tarfile.open(file) as archive:
        return {
            member.name.removeprefix("costprobe-debug/"): archive.extractfile(member).read()
            for member in archive
        }


def test_bundle_has_the_diagnostic_files_and_no_secret(host):
    listing = host.fill().debug("bundle", "bundle.tar.gz")
    file = host.folder / "bundle.tar.gz"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    files = unpacked(file)
    assert sorted(files) == list(FILES)
    for name, content in files.items():
        assert CANARY.encode() not in content, (name, content)
        assert content
        # Each file is listed before the archive is written.
        assert listing.index(name) < listing.index("written")
    assert CANARY not in listing
    assert json.loads(files["status.json"])["status"]["document"]["state"] == "running"
    store = json.loads(files["store.json"])
    assert (store["rows"]["points"], store["series"]["event"]) == (5, 3)
    assert store["migrations"][0].startswith("0001")
    assert json.loads(files["versions.json"])["packages"]["click"]
    assert files["config.toml"].count(b"***") == 2
    for name, words in (
        ("config.toml", f'token = "file:{host.folder}/token"'),
        ("config.toml", 'token = "credential:sink2"'),
        ("doctor.txt", "sink second"),
        ("doctor.txt", "exit code 1"),
        ("event.lp", "the newest 2 of 2 rows"),
        ("event.lp", "the probe printed"),
        ("agent.lp", "rss_bytes=1i"),
    ):
        assert words in files[name].decode(), name


def test_nothing_is_written_by_the_list_or_over_an_existing_file(host):
    host.fill()
    assert not set(FILES) - set(host.debug("bundle", "--list").split())
    assert not list(host.folder.glob("*.gz"))
    file = host.folder / "bundle.tar.gz"
    file.write_text("mine")
    assert "already exists" in host.debug("bundle", str(file), code=2)
    assert file.read_text() == "mine"
    assert "cannot be written" in host.debug("bundle", "/proc/x.tar.gz", code=2)


def test_bundle_is_written_without_a_store_and_with_an_invalid_file(host):
    host.config.write_text(
        '[[sink]]\napi = "v2"\nurl = "http://u:canary-pw@host"\ntoken = "canary-inline"\n'
    )
    listing = host.debug("bundle")
    (file,) = host.folder.glob("costprobe-debug-*.tar.gz")
    assert file.name in listing
    files = unpacked(file)
    assert sorted(files) == list(FILES)
    assert not [name for name, content in files.items() if CANARY.encode() in content]
    assert "sink[0].token: write where the token is" in files["config.toml"].decode()
    assert files["store.json"].startswith(b"not available: ")
    assert files["event.lp"].startswith(b"not available: ")


def test_addresses_are_redacted():
    cases = {
        "http://u:p@h:80/a/b?c=d#e": "http://h:80/[redacted]",
        "http://h": "http://h",
        "https://[::1]:9101/": "https://[::1]:9101",
        "POST http://h/secret failed": "POST http://h/[redacted] failed",
        "http://h:port/": "[redacted]",
    }
    assert {text: without_addresses(text) for text in cases} == cases


def test_failing_or_oversized_source_does_not_stop_the_others():
    def failing():
        raise OSError("no such device")

    sources = [
        BundleFile("a", "", failing),
        # Without letters, because searching so much text for secrets takes seconds.
        BundleFile("b", "", lambda: "....\n" * 1_800_000),
        BundleFile("c", "", lambda: "canary-1234\n"),
    ]
    found = {source.name: text for source, text in gathered(sources, Redactor(["canary-1234"]))}
    assert found["a"] == b"not available: no such device\n"
    assert FILE_BYTES_MAX - 10 < len(found["b"]) <= FILE_BYTES_MAX
    assert found["b"].startswith(b"....\n")
    assert found["c"] == b"[redacted]\n"

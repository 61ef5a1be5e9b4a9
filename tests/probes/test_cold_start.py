"""Starts of a model in new processes, with a warm and a cold page cache."""

import json
import sys
import threading
from pathlib import Path

import pytest
from costprobe.adapters.host.files import evict
from costprobe.adapters.probe_child.results import ModelStart, ProbeFault, read_start
from costprobe.adapters.probe_child.runner import ProbeRunner
from costprobe.probing.run import measured_starts
from costprobe_probes.cold_start import MAX_PATHS_CHARS, by_folder, read_bytes
from fakes.command import called
from fakes.documents import checked
from fakes.probe_requests import probe_request
from fakes.scenes import WORKER

S = 10**9
FILE = Path("/models/m.pt")
MESSAGE = {
    "type": "cold_start",
    "received_ns": 2 * S,
    "loaded_ns": 5 * S,
    "answered_ns": 6 * S,
    "read_bytes": None,
    "fingerprint": "f",
    "files": {"/models": ["m.pt"]},
}


def test_invalid_reports_are_rejected():
    for change in (
        *({"loaded_ns": S}, {"answered_ns": None}, {"received_ns": 0}),
        *({"read_bytes": "x"}, {"files": {"/a": 3}}, {"files": [1]}),
    ):
        with pytest.raises(ValueError, match=r"."):
            read_start({**MESSAGE, **change}, S)


def starts_with(read_bytes_of_cold, size_bytes=1000):
    """Two starts of each kind with scripted reads, and the calls in their order."""
    calls, reads = [], iter(read_bytes_of_cold)

    def start(*, list_files):
        is_cold = calls[-1:] == ["evict"]
        calls.append("list" if list_files else "start")
        read = next(reads) if is_cold else 0
        if read == "fault":
            return ProbeFault("crash", "boom", ())
        files = {str(FILE.parent): [FILE.name]} if list_files else None
        times = {"began_ns": 0, "received_ns": S // 10, "loaded_ns": S, "answered_ns": 2 * S}
        return ModelStart(**times, fingerprint="f", read_bytes=read, files=files)

    def evicted(paths):
        assert paths == (FILE,)
        calls.append("evict")
        return size_bytes

    return measured_starts(start, evicted, 2), calls


def test_warm_and_cold_starts_alternate_and_those_that_read_nothing_are_not_cold():
    found, calls = starts_with([500, 400])
    assert calls == ["list", *["start", "evict", "start"] * 2]
    assert (len(found.warm), [start.read_bytes for start in found.cold]) == (2, [500, 400])
    assert found.not_cold == ""
    phases = [
        (one.process_start_s, one.load_s, one.first_answer_s, one.total_s) for one in found.cold
    ]
    assert phases == [(0.1, 0.9, 1.0, 2.0)] * 2
    found, _ = starts_with([99, 100])
    assert ([start.read_bytes for start in found.cold], len(found.warm)) == ([100], 2)
    assert "0 of 0 MiB were read from storage" in found.not_cold
    assert "/proc/self/io" in starts_with([None, None])[0].not_cold
    assert starts_with([5, 5], size_bytes=0)[0].cold == ()
    assert starts_with([500, "fault"])[0].title == "boom"


def test_eviction_skips_what_is_no_file(tmp_path):
    file = tmp_path / "weights"
    file.write_bytes(b"x" * 5000)
    assert evict([file, tmp_path, tmp_path / "absent"]) == 5000
    assert file.read_bytes() == b"x" * 5000


def test_file_lists_are_bounded(tmp_path):
    for name, size in (("small", 1), ("large", 100)):
        (tmp_path / name).write_bytes(b"x" * size)
    paths = [f"{tmp_path}/small", f"{tmp_path}/large", "/proc/self/maps", "relative", "/a\nb"]
    assert by_folder(paths) == {str(tmp_path): ["large", "small"]}
    many = by_folder(f"/folder/{number:0100}" for number in range(5000))
    assert 0 < len(json.dumps(many)) < 1.1 * MAX_PATHS_CHARS


def test_bytes_read_are_the_kernels_count(tmp_path):
    counts = tmp_path / "io"
    for text, expected in (("rchar: 7\nread_bytes: 4096\n", 4096), ("rchar: 7\n", None)):
        counts.write_text(text)
        assert read_bytes(str(counts)) == expected
    assert read_bytes(str(tmp_path / "absent")) is None


def test_runner_starts_a_new_process_each_time():
    program = (
        "import json, os, sys, time\n"
        "sys.stdin.readline(); t = time.monotonic_ns()\n"
        "print(json.dumps(dict(type='cold_start', received_ns=t, loaded_ns=t, answered_ns=t,"
        " read_bytes=0, fingerprint=str(os.getpid()), files=None)), flush=True)\n"
        "time.sleep(60)\n"
    )
    runner = ProbeRunner((sys.executable, "-c", program), 20.0, threading.Event())
    found = [runner.start(probe_request(), on_progress=lambda _: None) for _ in range(2)]
    assert all(outcome.process_start_s > 0 for outcome in found), found
    assert len({outcome.fingerprint for outcome in found}) == 2


@pytest.mark.processes
def test_command_prints_and_stores_each_start(tmp_path):
    config = tmp_path / "costprobe.toml"
    config.write_text(
        f'[store]\npath = "{tmp_path}/costprobe.db"\n'
        f'[[probe]]\nname = "ranker"\nkind = "cnn"\npython = "{WORKER}"\n'
        'labels = {team = "search"}\n'
        '[[probe]]\nname = "chat"\nkind = "openai"\nmodel = "m"\nurl = "http://127.0.0.1:9"\n'
    )
    shown = called(config, "probe", "ranker", "--cold-start", "--runs", "2", "--device", "cpu")
    assert "ranker on cpu" in shown.stdout
    assert shown.stdout.count("2.000 ±0.000") == 2
    words = ("--cold-start", "--runs", "2", "--device", "cpu", "--json")
    document = checked("probe", called(config, "probe", "ranker", *words).stdout)
    assert (document["warm"]["runs"], document["warm"]["load_s"]) == (2, 2.0)
    rows = [
        line
        for line in called(config, "export", "--since", "1h").stdout.splitlines()
        if line.startswith("cold_start,")
    ]
    assert sorted(("cache=cold" in row, "team=search" in row) for row in rows) == [
        *[(False, True)] * 4,
        *[(True, True)] * 4,
    ]
    for words, error in (
        (("chat", "--cold-start"), "set cold_start in [[service]]"),
        (("ranker", "--cold-start", "--sweep"), "keep one"),
        (("ranker", "--runs", "2"), "--runs needs --cold-start"),
    ):
        assert error in called(config, "probe", *words, code=2).output, words

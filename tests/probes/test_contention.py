"""Processor time that others take from a probe on a CPU."""

import json
import os
import threading

import pytest
from costprobe_probes.contention import (
    Contention,
    CpuMeter,
    CpuReading,
    LaunchMeter,
    PassDelays,
    contention,
)
from record.record_files import check_outcomes

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
QUIET = CpuReading(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


def test_contention_follows_steal_others_and_waiting():
    """Of what each of 4 processors did in 10 s of a probe on some threads; see `record_files`."""

    def found(text):
        _, after, threads, quota = json.loads(text)
        return contention(QUIET, CpuReading(*after), threads=threads, processors=4, quota=quota)

    check_outcomes("contended_runs.json", found)


@pytest.fixture
def root(tmp_path):
    """A host with four processors and a process with two threads, which may use two of them."""
    files(tmp_path, busy=[100, 200, 300, 400], steal=[1, 2, 3, 4], waits_ns=[5e9, 7e9])
    return tmp_path


def files(root, *, busy, steal, waits_ns):
    lines = [
        f"cpu{i} {b} 0 0 900 50 0 0 {s} 0 0"
        for i, (b, s) in enumerate(zip(busy, steal, strict=True))
    ]
    write(root, "proc/stat", "\n".join(["cpu  9 9 9 9 9 9 9 9 9 9", *lines, "intr 5", "ctxt 7"]))
    for i, waited in enumerate(waits_ns):
        write(root, f"proc/self/task/{i + 7}/schedstat", f"{3e9:.0f} {waited:.0f} 99\n")


def write(root, name, text):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_allowed_processors_and_all_threads_are_read(root):
    found = CpuMeter(str(root), frozenset({1, 3})).read()
    assert found.busy_s == pytest.approx(600 / TICKS_PER_S)
    assert found.steal_s == pytest.approx(6 / TICKS_PER_S)
    assert (found.ran_s, found.waited_s) == (6.0, 12.0)
    # A container whose /proc numbers the processors anew: all that it lists.
    everywhere = CpuMeter(str(root), frozenset({80})).read()
    assert everywhere.busy_s == pytest.approx(1000 / TICKS_PER_S)
    (root / "proc/self/task/7/schedstat").unlink()
    assert CpuMeter(str(root)).read().waited_s is None


def test_quota_is_that_of_the_tightest_cgroup(root):
    cfs = {"cpu/a/cpu.cfs_quota_us": "150000", "cpu/a/cpu.cfs_period_us": "100000"}
    for line, groups in (
        ("0::/a/b", {"a/cpu.max": "150000 100000", "a/b/cpu.max": "max 100000"}),
        ("4:cpu,cpuacct:/a/b", cfs),
    ):
        write(root, "proc/self/cgroup", line + "\n")
        for name, text in groups.items():
            write(root, f"sys/fs/cgroup/{name}", text)
        files(root, busy=[100, 200, 300, 400], steal=[1, 2, 3, 4], waits_ns=[5e9, 7e9])
        meter = CpuMeter(str(root), frozenset({0, 1}))
        before = replace_t(meter.read())
        # Of two threads within a quota of one and a half processors one may wait for the other.
        files(root, busy=[110] * 4, steal=[1, 2, 3, 4], waits_ns=[95e9, 97e9])
        for threads, contended in ((2, False), (1, True)):
            assert meter.since(before, threads=threads).contended is contended, line


def replace_t(reading):
    """The reading as if it was taken ten seconds ago."""
    return reading._replace(t_s=reading.t_s - 10)


def test_delay_of_short_passes_is_that_of_their_group(root):
    """A reading of 0.1 ms is taken for each 10 ms of passes: the wait at the end is that of 200 passes."""
    now_s, waited = [0.0], [0.0]

    def waited_s():
        now_s[0] += 1e-4
        return waited[0]

    delays = PassDelays(waited_s, lambda: 0.0, latency_ms=0.05, clock=lambda: now_s[0])
    for number in range(500):
        waited[0] = 0.0 if number < 350 else 3.0
        delays.before_pass()
    delayed = delays.of_block([0.05] * 500)
    assert len(delayed) == 500
    assert delayed.count(True) in (200, 201)
    assert delayed[350]
    meter = CpuMeter(str(root), frozenset({1, 3}))
    with meter.delays(latency_ms=10.0) as found:
        found.before_pass()
        files(root, busy=[100, 200, 300, 400], steal=[1, 2, 3, 4], waits_ns=[5e9, 7.001e9])
        assert found.of_block([10.0]) == [True]
    for task in (7, 8):
        (root / f"proc/self/task/{task}/schedstat").unlink()
    # A kernel that does not count: what is unknown is not undisturbed.
    with meter.delays(latency_ms=10.0) as found:
        found.before_pass()
        assert found.of_block([10.0]) == [True]


def test_thread_that_launches_kernels_waits_for_a_processor(tmp_path):
    name = f"proc/self/task/{threading.get_native_id()}/schedstat"
    for waited_s, contended in ((0.5, None), (2.0, True)):
        write(tmp_path, name, f"{1e9:.0f} {3e9:.0f} 99\n")
        meter = LaunchMeter(str(tmp_path))
        before = replace_t(meter.read())
        # Its sleep, while the GPU works, is part of the time.
        write(tmp_path, name, f"{2e9:.0f} {(3 + waited_s) * 1e9:.0f} 99\n")
        found = meter.since(before, threads=1)
        assert found.wait_pct == pytest.approx(10 * waited_s, rel=0.01)
        # Whether others use the GPU is for the sensors to say.
        assert (found.contended, found.others_pct) == (contended, None)
    (tmp_path / name).unlink()
    assert LaunchMeter(str(tmp_path)).since(before, threads=1) == Contention()
    assert LaunchMeter().read().waited_s is None or LaunchMeter().read().waited_s >= 0

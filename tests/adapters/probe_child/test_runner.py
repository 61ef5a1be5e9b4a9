"""A probe child that hangs, dies or sends invalid output gives a fault; the next run is unaffected."""

import json
import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from costprobe.adapters.probe_child.results import (
    ProbeResult,
    read_batch_point,
    read_progress,
    read_result,
)
from costprobe.adapters.probe_child.runner import ProbeRunner, device_lock, lines_of
from fakes.clock import FakeClock
from fakes.probe_requests import probe_request
from fakes.processes import children_of
from fakes.runs import RESULT
from hypothesis import given, settings
from hypothesis import strategies as st
from record.record_files import check_outcomes

REQUEST = probe_request("transformer", energy=True)
# A child with the worker's protocol; a test inserts code that fails at {failure}.
CHILD = """
import json, os, signal, sys, time
RESULT = {result!r}
def send(**line): print(json.dumps(line), flush=True)
for line in sys.stdin:
    {failure}
    send(type="progress", phase="energy", done=0.5, note="n")
    send(type="window_start", t_ns=2)
    assert json.loads(sys.stdin.readline()) == {{"cmd": "continue"}}
    send(type="window_end", t_ns=3)
    assert json.loads(sys.stdin.readline()) == {{"cmd": "continue"}}
    send(**RESULT)
"""


def runner_of(failure="pass", *, deadline_s=20.0, stop=None, **options):
    program = CHILD.format(failure=failure, result=RESULT)
    stop = stop or threading.Event()
    return ProbeRunner((sys.executable, "-c", program), deadline_s, stop, **options)


def read(changes):
    return read_result({**RESULT, **changes}, probe="p", device="gpu0", pids=(1,))


def run(runner, on_edge=lambda: None, on_progress=lambda _: None):
    return runner.run(REQUEST, "gpu0", on_edge=on_edge, on_progress=on_progress)


COMPILING = """
    for batch in (1, 2, 4):
        send(type="progress", phase="compile", done=0.0, note=f"batch {batch}")
        send(type="progress", phase="batch", done=0.5, note=f"batch {batch}")
"""


def test_deadline_restarts_with_each_batch_that_is_compiled():
    for step_s, kind in ((15.0, None), (25.0, "deadline")):
        clock = FakeClock()

        def on_progress(progress, step_s=step_s, clock=clock):
            if progress.phase == "compile":
                clock.move(step_s)

        runner = runner_of(COMPILING, deadline_s=20.0, clock=clock)
        outcome = run(runner, on_progress=on_progress)
        assert getattr(outcome, "kind", None) == kind, outcome
    assert "last phase compile batch 1:" in outcome.title


class StoppedClock(FakeClock):
    """A clock of a process that is stopped for a time while it waits for the first time."""

    def __init__(self, stopped_s):
        super().__init__()
        self._reads = 0
        self._stopped_s = stopped_s

    def monotonic_ns(self):
        self._reads += 1
        if self._reads == 10:  # at the end of a wait
            self.move(self._stopped_s)
        return super().monotonic_ns()


def test_stop_of_the_daemon_kills_no_probe_and_discards_its_result():
    runner = runner_of(keep_alive=True, clock=StoppedClock(3600.0), deadline_s=20.0)
    outcome = run(runner)
    assert outcome.kind == "interrupted", outcome
    assert "discarded" in outcome.title
    children = children_of(os.getpid())
    assert isinstance(run(runner), ProbeResult)
    assert children_of(os.getpid()) == children
    runner.close()


def test_stop_of_the_probe_kills_it_not_and_discards_its_result():
    stopping = """
    if os.fork() == 0:
        time.sleep(1.0)
        os.kill(os.getppid(), signal.SIGCONT)
        os._exit(0)
    os.kill(os.getpid(), signal.SIGSTOP)
"""
    outcome = run(runner_of(stopping, deadline_s=0.9))
    assert outcome.kind == "interrupted", outcome


def test_suspension_of_the_host_discards_a_result():
    clock = FakeClock()
    outcome = run(runner_of(clock=clock), on_edge=lambda: clock.suspend(600.0))
    assert outcome.kind == "interrupted", outcome
    assert "stopped for 1200.0 s" in outcome.title


def test_successful_child_gives_a_result_and_its_edges():
    edges, phases = [], []
    outcome = run(runner_of(), lambda: edges.append(1), lambda p: phases.append(p.phase))
    assert isinstance(outcome, ProbeResult)
    assert (outcome.probe, outcome.device) == ("p", "gpu0")
    assert outcome.window_s == pytest.approx(6.0)
    assert (len(edges), phases) == (2, ["energy"])
    # A child that is not kept ends with its run.
    assert not _alive(outcome.pids[0])
    # A worker behind a wrapper is identified by its handshake.
    assert run(runner_of("send(type='handshake', pid=4242)")).pids[1:] == (4242,)


def test_failed_child_gives_a_fault_of_its_kind():
    wrong = []
    for failure, kind, words in (
        ("os.kill(os.getpid(), signal.SIGKILL)", "died", "SIGKILL"),
        ("sys.exit(7)", "died", "exit code 7"),
        ("raise RuntimeError('boom')", "died", "exit code 1"),
        ("send(type='error', kind='oom', message='far too big')", "oom", "far too big"),
        ("send(type='error', kind='config', message='no such')", "config", "no such"),
        ("send(type='error', kind='?', message='odd')", "crash", "odd"),
        ("[print('x' * 99) for _ in range(5000)]", "malformed", "malformed lines"),
        ("print('[' * 200000, flush=True); sys.exit(0)", "died", "exit code 0"),
        ("RESULT['inferences'] = 0", "malformed", "invalid result: inferences"),
        # A bare NaN, which Python's json module writes.
        ("RESULT['latency_ms']['p50'] = float('nan')", "malformed", "invalid result: latency_ms"),
    ):
        fault = run(runner_of(failure))
        wrong += [(failure, fault)] if fault.kind != kind or words not in fault.title else []
    assert wrong == []


def test_stderr_tail_is_bounded_and_has_the_stack_of_a_hung_child_which_is_killed():
    flood = "[print(i, 'w' * 5000, file=sys.stderr) for i in range(60)]; sys.exit(1)"
    tail = run(runner_of(flood)).stderr_tail
    assert (len(tail) <= 40, tail[-1][:3]) == (True, "59 ")
    assert max(len(words) for words in tail) <= 300
    hang = (
        "import faulthandler; faulthandler.register(signal.SIGUSR1);"
        " send(type='progress', phase='load', done=0.0, note=''); time.sleep(600)"
    )
    fault = run(runner_of(hang, deadline_s=1.5))
    assert fault.kind == "deadline"
    assert "last phase load:" in fault.title
    assert any(line.endswith("in <module>") for line in fault.stderr_tail), fault


def _alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except FileNotFoundError:
        return False


def test_invalid_results_are_rejected():
    def wrong_field(text):
        with pytest.raises(ValueError, match=r"\w") as refused:
            read(json.loads(text))
        return str(refused.value).partition(":")[0]

    check_outcomes("invalid_results.json", wrong_field)


def test_texts_of_a_child_are_bounded():
    """They become fields of rows, and the texts of events; the operator's code runs in the child."""
    long = "x" * 100_000
    texts = {"fingerprint": long, "stop_reason": long, "token_source": long, "flop_precision": long}
    found = read({**texts, "software": {f"{number}{long}": long for number in range(500)}})
    assert {len(getattr(found, name)) for name in texts} == {200}
    assert len(found.software) == 100
    assert {(len(name), len(value)) for name, value in found.software.items()} == {(64, 1000)}


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.just(10**400)
    | st.text(max_size=5)
    | st.sampled_from(list(RESULT.values())),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(max_size=3), values),
    max_leaves=5,
)


@settings(max_examples=40)
@given(st.dictionaries(st.sampled_from([*RESULT, "done", "phase", "note"]), JSON_VALUES))
def test_any_message_of_a_child_is_parsed_or_rejected(change):
    message = {**RESULT, **change}
    try:
        outcome = read(change)
    except ValueError:
        outcome = None
    assert outcome is None or outcome.window_s > 0
    assert 0.0 <= read_progress(message).done <= 1.0
    assert all(isinstance(value, int | float) for value in read_batch_point(message).values())


def test_exception_of_a_callback_ends_the_child(tmp_path):
    pid_file = tmp_path / "pid"
    failure = f"open({str(pid_file)!r}, 'w').write(str(os.getpid()))"
    runner = runner_of(failure, keep_alive=True)

    def fail():
        raise OSError("the sensor's pipe broke")

    with pytest.raises(OSError, match="pipe broke"):
        run(runner, on_edge=fail)
    assert not _alive(int(pid_file.read_text()))
    assert isinstance(run(runner), ProbeResult)
    runner.close()


def test_error_of_a_missing_python_names_its_path():
    runner = ProbeRunner(("/nowhere/python",), 5.0, threading.Event())
    fault = run(runner)
    assert fault.kind == "spawn"
    assert "/nowhere/python" in fault.title


def test_close_from_another_thread_cancels_the_run():
    stop, running = threading.Event(), threading.Event()
    failure = "send(type='progress', phase='load', done=0, note=''); time.sleep(600)"
    runner = runner_of(failure, deadline_s=600, stop=stop)
    with ThreadPoolExecutor(1) as pool:
        outcome = pool.submit(run, runner, on_progress=lambda _: running.set())
        assert running.wait(60)
        stop.set()
        runner.close()
        assert outcome.result(60).kind == "cancelled"


def test_kept_child_is_reused_and_replaced_after_a_fault():
    runner = runner_of("print(os.getpid(), file=sys.stderr)", keep_alive=True)
    first, second = run(runner), run(runner)
    assert first.pids == second.pids
    os.kill(first.pids[0], signal.SIGKILL)
    assert run(runner).kind == "died"
    third = run(runner)
    assert third.pids != first.pids
    runner.close()
    assert not _alive(third.pids[0])


def test_each_device_has_one_lock(tmp_path):
    stop = threading.Event()
    with device_lock(tmp_path, "gpu0", stop, 1.0) as mine:
        assert mine
        with device_lock(tmp_path, "gpu0", stop, 0.2) as other:
            assert not other
        with device_lock(tmp_path, "gpu1", stop, 0.2) as another:
            assert another
    # A folder that cannot be written does not block the run.
    for folder in (tmp_path, tmp_path / "none"):
        with device_lock(folder, "gpu0", stop, 0.2) as again:
            assert again


def test_pipe_that_is_closed_while_a_thread_reads_ends_its_lines():
    """A thread that is slower than the time that a killed child is waited for."""
    ends = os.pipe()
    with os.fdopen(ends[1], "wb") as child, os.fdopen(ends[0], "rb") as pipe:
        child.write(b"one\ntwo\n")
        child.flush()
        lines = lines_of(pipe)
        assert next(lines) == b"one\n"
        pipe.close()
        assert list(lines) == []

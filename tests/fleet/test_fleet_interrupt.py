"""Ctrl-C ends a command whose database does not answer."""

import signal
import subprocess
import sys
import threading

from fakes.command import of_fleet
from fakes.servers import Scripted


def test_an_interrupt_ends_a_command_that_waits_for_the_database(tmp_path):
    is_asked, is_over = threading.Event(), threading.Event()

    def answer(*_):
        is_asked.set()
        is_over.wait()
        return 200, {}, b"{}"

    path = tmp_path / "costprobe.toml"
    command = [sys.executable, "-m", "costprobe", "-c", str(path), *of_fleet("report")]
    with Scripted(answer) as server:
        section = f'[fleet]\nkind = "prometheus"\nurl = "{server.url}"\ntimeout = "10m"\n'
        path.write_text(section)
        with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
            try:
                assert is_asked.wait(60)
                process.send_signal(signal.SIGINT)
                _, errors = process.communicate(timeout=60)
            finally:
                process.kill()
                is_over.set()
    assert (process.returncode, errors.split()) == (1, [b"Aborted!"])

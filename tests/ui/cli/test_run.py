"""`costprobe run`: signals, and the output on a terminal."""

import signal
import subprocess
import sys

from click.testing import CliRunner
from costprobe.adapters.store.database import StoreLock
from costprobe.ui.cli.main import main

# A handler must not print: the signal may arrive within the print of the main thread.
DAEMON = """
import os
import threading
from costprobe.ui.cli.run import handle_signals

class Daemon:
    wake_fd = -1

    def request_stop(self):
        os.write(1, b"stopping\\n")

handle_signals(Daemon())
threading.Thread(target=threading.Event().wait).start()
print("ready", flush=True)
"""


def test_second_interrupt_ends_a_process_that_does_not_stop():
    command = [sys.executable, "-c", DAEMON]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "stopping\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == -signal.SIGINT


def test_second_daemon_on_a_store_ends_with_an_error(tmp_path):
    config, store = tmp_path / "costprobe.toml", tmp_path / "costprobe.db"
    config.write_text(f'[store]\npath = "{store}"\n')
    lock = StoreLock(store)
    done = CliRunner().invoke(main, ["-c", str(config), "run"])
    lock.release()
    assert done.exit_code == 2
    assert f"cannot open {store} (another costprobe, process " in done.output
    assert "systemctl stop costprobe" in done.output
    assert not store.exists()

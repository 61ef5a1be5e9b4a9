"""The command serves until a signal, at an address that is allowed."""

import http.client
import os
import signal
import subprocess
import sys
from contextlib import closing


def test_command_serves_until_sigterm(store, tmp_path):
    config = tmp_path / "costprobe.toml"
    config.write_text(f'[store]\npath = "{store.path}"\n')
    words = ["-m", "costprobe", "-c", str(config), "dashboard", "--listen", "127.0.0.1:0"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        [sys.executable, *words], stdout=subprocess.PIPE, text=True, env=environment
    )
    try:
        line = next(text for text in process.stdout if "page:" in text)
        port = int(line.rpartition(":")[2].partition("/")[0])
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
            connection.request("GET", "/api/now")
            assert connection.getresponse().status == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()

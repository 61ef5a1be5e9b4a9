"""The command serves until a signal, at an address that is allowed."""

import http.client
import os
import signal
import subprocess
import sys
from contextlib import closing

from fakes.command import called

REFUSED = {
    "0.0.0.0:9470": "--allow-remote",
    "9470": "is not an address and port",
    "example.org:80": "is not an IP address",
    "127.0.0.1:99999": "is not an address and port",
}


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


def test_invalid_listen_addresses_are_rejected_with_their_fix(tmp_path):
    config = tmp_path / "costprobe.toml"
    config.write_text(f'[store]\npath = "{tmp_path / "x.db"}"\n')
    for listen, words in REFUSED.items():
        assert words in called(config, "dashboard", "--listen", listen, code=2).stderr, listen

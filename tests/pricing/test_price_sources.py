"""Sources of prices: files, commands and endpoints, also failing, hanging and oversized ones."""

import os
import sys
import time
from pathlib import Path

import pytest
from costprobe.adapters.clouds.source import SourceError, read_source
from costprobe.pricing.plans import SpotPlan
from fakes.cases import check_all
from fakes.inference_server import InferenceServer


def plan(**keys):
    return SpotPlan.model_validate({"plan": "spot", **keys})


def command(program):
    return plan(command=[sys.executable, "-c", program])


def test_file_is_read_each_time(tmp_path):
    file = tmp_path / "prices.csv"
    with pytest.raises(SourceError, match=r"cannot be read \(No such file"):
        read_source(plan(file=str(file)))
    file.write_text("1.5")
    assert read_source(plan(file=str(file))) == "1.5"
    # Written by office programs, and by PowerShell.
    for encoding in ("utf-8-sig", "utf-16", "cp1252"):
        file.write_bytes("Zürich;3,21".encode(encoding))
        assert read_source(plan(file=str(file))) == "Zürich;3,21", encoding
    for content in (b"1\0.\x005\0", b"\xff\xfe1"):
        file.write_bytes(content)
        with pytest.raises(SourceError, match=r"prices\.csv: .* save it as UTF-8"):
            read_source(plan(file=str(file)))


def test_failed_command_is_reported_with_its_cause():
    assert read_source(command("print(0.75)")).strip() == "0.75"

    def is_reported(source, words):
        with pytest.raises(SourceError) as caught:
            read_source(source)
        assert words in str(caught.value)
        assert str(caught.value).isprintable()

    programs = {
        "import sys; sys.exit('gone\\x1b[2J\\r\\n\\x00there\\u202e')": "with code 1 (gone [2J there",
        "import sys; sys.exit('no credentials')": "failed with code 1 (no credentials)",
        "import sys; sys.exit(3)": "failed with code 3 (no message on standard error)",
        "print('x' * (2 << 20))": "more than",
        "import os; os.kill(os.getpid(), 9)": "failed with code -9",
    }
    cases = [(command(program), words) for program, words in programs.items()]
    check_all(is_reported, [*cases, (plan(command=["/nowhere/price"]), "cannot be started")])


def test_hanging_command_is_killed_with_its_descendants(tmp_path):
    place = tmp_path / "child"
    program = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(place)!r}, 'w').write(str(child.pid))\n"
        "time.sleep(600)\n"
    )
    with pytest.raises(SourceError, match="took longer than 2 s"):
        read_source(command(program), timeout_s=2)
    pid = int(place.read_text())
    ends_s = time.monotonic() + 60
    while time.monotonic() < ends_s:
        try:
            # A zombie that has not been reaped counts as dead.
            os.kill(pid, 0)
            if Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z":
                break
        except (ProcessLookupError, FileNotFoundError):
            break
        time.sleep(0.05)
    else:
        raise AssertionError("a process started by the command is still running")


def test_endpoint_is_read_and_its_key_is_in_no_error():
    def answer(call):
        if "good" in call.path:
            call.json({"price": 1.25})
        elif "moved" in call.path:
            call.whole(b"", status=302, Location="http://127.0.0.1:9/")
        elif "large" in call.path:
            call.whole(b"1" * (2 << 20))
        elif "silent" in call.path:
            call.pause(60)
        else:
            call.whole(b"secret-key is wrong", status=403)

    with InferenceServer(answer) as server:

        def fetch_price(path):
            return read_source(plan(url=f"{server.url}/{path}?key=secret-key"), timeout_s=1)

        assert fetch_price("good") == '{"price": 1.25}'
        wrong = {"bad": "HTTP 403", "moved": "HTTP 302", "large": "more than"}
        for path, words in {**wrong, "silent": "no response within 1 s"}.items():
            with pytest.raises(SourceError) as caught:
                fetch_price(path)
            assert words in str(caught.value)
            assert "secret-key" not in str(caught.value)


def test_proxy_of_the_environment_is_used_with_its_password_except_for_no_proxy(monkeypatch):
    def answer(call):
        call.json({"price": 1.25, "authorization": call.headers.get("Proxy-Authorization")})

    with InferenceServer(answer) as server:
        for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy"):
            monkeypatch.delenv(name, raising=False)
            monkeypatch.delenv(name.upper(), raising=False)
        monkeypatch.setenv("http_proxy", server.url.replace("//", "//me:p%40ss@"))
        assert "Basic bWU6cEBzcw==" in read_source(plan(url="http://nowhere.invalid/x"))
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        assert "null" in read_source(plan(url=server.url))
        monkeypatch.setenv("http_proxy", "socks5://me:secret@127.0.0.1:9")
        with pytest.raises(SourceError) as caught:
            read_source(plan(url="http://nowhere.invalid/x"))
        assert "secret-key" not in str(caught.value)

"""The model of a user: named on the command line, found in its folder, and tried before it is scheduled."""

import json
import os
import tomllib
from pathlib import Path

import pytest
from costprobe.adapters.probe_child.runner import worker_command
from fakes.cli import session
from fakes.command import called
from fakes.scenes import WORKER

GUIDE = Path(__file__).parents[3] / "docs" / "howto" / "served_models.md"
MODEL = GUIDE.read_text().split("```python\n")[1].split("```")[0]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "ranker.py").write_text(MODEL)
    (tmp_path / "my-model.py").write_text(MODEL)
    (tmp_path / "costprobe.toml").write_text(f'[store]\npath = "{tmp_path}/costprobe.db"\n')
    return tmp_path


def with_probes(folder, **modules):
    probes = (
        f'[[probe]]\nname = "{name}"\nkind = "module"\nmodule = "{module}"\npath = "{folder}"\n'
        for name, module in modules.items()
    )
    file = folder / "probes.toml"
    file.write_text((folder / "costprobe.toml").read_text() + "".join(probes))
    return file


@pytest.mark.processes
def test_file_is_measured_and_the_printed_section_is_valid(folder, monkeypatch):
    """The model itself runs in the test of the doctor, which takes less."""
    command = worker_command(str(WORKER))
    monkeypatch.setattr("costprobe.probing.run.worker_command", lambda _: command)
    printed = called(folder / "costprobe.toml", "probe", "./shop/ranker.py:make").stdout
    assert " per million" in printed
    _, section = printed.split("[[probe]]\n")
    assert tomllib.loads(section) == {
        "name": "shop-ranker-py-make",
        "kind": "module",
        "module": "ranker:make",
        "path": str(folder / "shop"),
    }
    kept = folder / "kept.toml"
    kept.write_text((folder / "costprobe.toml").read_text() + "[[probe]]\n" + section)
    assert "1 probe" in called(kept, "config", "check").stdout


def test_what_names_no_model_ends_with_the_fix(folder):
    session("own_model", folder / "costprobe.toml")


@pytest.mark.processes
def test_module_that_does_not_exist_is_found_without_running_it_and_one_that_fails_by_a_run(folder):
    (folder / "shop" / "__init__.py").write_text(f"open({str(folder / 'ran')!r}, 'w')\n")
    file = with_probes(folder, good="shop.ranker:make", none="shop.nothing:make")
    said = called(file, "config", "check", code=2).output
    assert "probe none: its interpreter does not find the module shop.nothing; set path" in said
    assert "probe good" not in said
    assert not (folder / "ran").exists()
    file = with_probes(folder, good="shop.ranker:make", bad="shop.ranker:built")
    assert "2 probes" in called(file, "config", "check").stdout
    checks = json.loads(called(file, "doctor", "--probes", "--json", code=None).stdout)
    found = {each["name"]: each for each in checks if each["name"].startswith("run of probe")}
    assert found["run of probe good"]["state"] == "good"
    assert "has no built" in found["run of probe bad"]["detail"]


@pytest.mark.skipif(os.geteuid() != 0, reason="root runs no code that others may write")
@pytest.mark.processes
def test_root_runs_no_model_that_others_may_write(folder):
    file = folder / "shop" / "ranker.py"
    file.chmod(0o666)
    said = called(folder / "costprobe.toml", "probe", "./shop/ranker.py:make", code=2).output
    assert f"root does not run {file}: everyone may write {file}" in said

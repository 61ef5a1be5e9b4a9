"""Doctor names the code and the files of a configuration that others may write."""

import os
import re
import sys
from pathlib import Path

import pytest
from costprobe.adapters.host.files import other_writer
from costprobe.configuration import parse
from costprobe.probing.settings import ProbeConfig
from costprobe.ui.cli.support.checks import secret_checks, torch_checks, write_checks

OTHER_UID = 65534
TRUSTED = {0, os.geteuid()}
PROBE = {"name": "own", "kind": "module", "module": "operators_own.models:make"}


def test_writers_of_a_file_and_of_its_folders_are_found(tmp_path):
    file = tmp_path / "folder" / "nested" / "file"
    file.parent.mkdir(parents=True)
    file.touch(mode=0o600)
    link = tmp_path / "link"
    link.symlink_to(file)
    assert other_writer(file, TRUSTED) is None
    assert other_writer(file.parent / "missing", TRUSTED) is None
    unseen = []
    for path, mode in ((file, 0o602), (file.parent, 0o703), (file.parent.parent, 0o777)):
        before = path.stat().st_mode
        path.chmod(mode)
        unseen += [
            (path, name)
            for name in (file, link)
            if other_writer(name, TRUSTED) != f"everyone may write {path}"
        ]
        path.chmod(before)
    assert unseen == []
    # Names of others in a sticky folder cannot be replaced.
    file.parent.chmod(0o1777)
    assert other_writer(file, TRUSTED) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of other users")
def test_owners_and_groups_are_writers(tmp_path):
    file = tmp_path / "file"
    file.touch()
    file.chmod(0o660)
    assert other_writer(file, TRUSTED) is None
    os.chown(file, 0, OTHER_UID)
    assert other_writer(file, TRUSTED) == f"the group {OTHER_UID} may write {file}"
    os.chown(file, OTHER_UID, 0)
    assert "belongs to nobody" in other_writer(file, TRUSTED)
    assert other_writer(file, {*TRUSTED, OTHER_UID}) is None


def test_every_file_that_the_configuration_names_is_checked(tmp_path):
    config_path = tmp_path / "costprobe.toml"
    text = Path(__file__).with_name("write_access.toml").read_text().format(folder=tmp_path)
    config_path.write_text(text)
    paths = [config_path, *map(Path, re.findall(rf"{tmp_path}/\w+", text))]

    def checks(mode):
        for path in paths:
            path.touch()
            path.chmod(mode)
        config = parse(text, config_path)
        return list(write_checks(config_path, config)), list(secret_checks(config))

    written, readable = checks(0o777)
    found = {check.detail.partition(":")[0] for check in written if check.state == "note"}
    assert {*map(str, paths)} - found == set()
    assert [check.fix for check in readable] == [
        f"chmod o= {tmp_path / name}" for name in ("token", "address")
    ]
    ((check,), readable) = checks(0o600)
    assert (check.state, readable) == ("good", [])


@pytest.mark.processes
def test_module_of_a_probe_is_found_without_running_it(tmp_path, monkeypatch):
    package = tmp_path / "operators_own"
    package.mkdir()
    (package / "__init__.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    (package / "models.py").touch()
    package.chmod(0o777)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    checks = list(torch_checks([ProbeConfig.model_validate(PROBE)]))
    assert any("module operators_own" in check.name for check in checks), checks
    assert not (tmp_path / "ran").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="root runs nothing that others may write")
def test_root_does_not_run_an_interpreter_that_others_may_write(tmp_path):
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\ntouch {tmp_path}/ran\nexec {sys.executable} "$@"\n')
    python.chmod(0o777)
    (check,) = torch_checks([ProbeConfig.model_validate({**PROBE, "python": str(python)})])
    assert (check.state, "not run by root" in check.detail) == ("bad", True)
    assert not Path(tmp_path, "ran").exists()

"""Files of the operator: a FIFO blocks nothing, and nothing is written through a link."""

import os
from pathlib import Path

import pytest
from costprobe.adapters.clouds.source import SourceError, read_source
from costprobe.adapters.host.files import PrivilegeError, controller_of, replace_file, write_new
from costprobe.adapters.host.redaction import read_secret
from costprobe.adapters.http.connections import tls_context
from costprobe.adapters.load_child.connection import parse_target
from costprobe.configuration import load
from costprobe.core.config.fields import SourceConfig
from costprobe.core.config.load import ConfigError
from costprobe.core.config.location import store_of
from costprobe_probes.wire import ProbeConfigError

SERVER = "https://127.0.0.1:1"


def test_fifos_and_devices_in_the_place_of_files_are_errors(tmp_path):
    from costprobe_probes.sources.files import checked_file

    fifo, link = tmp_path / "fifo", tmp_path / "link"
    os.mkfifo(fifo)
    link.symlink_to(fifo)
    readers = {
        "configuration": load,
        "path of the store": store_of,
        "secret": lambda path: read_secret(path, "token"),
        "prices": lambda path: read_source(SourceConfig(file=path)),
        "authority": tls_context,
        "probe's token": lambda path: parse_target(SERVER, None, str(path)),
        "probe's authority": lambda path: parse_target(SERVER, str(path), None),
        "weights": lambda path: checked_file(str(path), "weights file"),
    }
    accepted = []
    for name, read in readers.items():
        for path in (fifo, link, Path("/dev/zero"), tmp_path):
            try:
                read(path)
            except (OSError, ValueError, ConfigError, SourceError, ProbeConfigError) as error:
                if "regular" in str(error) or path == tmp_path:
                    continue
            accepted.append((name, path))
    assert accepted == []


def test_no_file_is_written_through_a_link(tmp_path):
    victim, nowhere = tmp_path / "victim", tmp_path / "nothing"
    victim.write_text("important")
    for target in (victim, nowhere):
        link = tmp_path / f"to-{target.name}"
        link.symlink_to(target)
        with pytest.raises(FileExistsError):
            write_new(link, b"new")
        assert link.is_symlink()
        replace_file(link, b"new")
        assert not link.is_symlink()
        assert link.read_text() == "new"
    assert victim.read_text() == "important"
    assert not nowhere.exists()
    with pytest.raises(OSError, match="not a regular file"):
        replace_file(Path("/dev/null"), b"new")
    assert sorted(path.name for path in tmp_path.glob(".*")) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of other users")
def test_path_is_controlled_by_the_first_owner_that_is_not_root(tmp_path):
    other, third = 65534, 65533
    own = tmp_path / "own"
    (own / "nested").mkdir(parents=True)
    file = own / "nested" / "file"
    file.touch()
    assert controller_of(file) is None
    assert controller_of(own / "missing" / "file") is None
    os.chown(file, third, third)
    assert controller_of(file).pw_uid == third
    os.chown(own, other, other)
    # Also if all that follows is root's: this user may replace it.
    os.chown(file, 0, 0)
    assert controller_of(file).pw_uid == other
    for link, target in (("to-file", file), ("relative", Path("own/nested/file"))):
        (tmp_path / link).symlink_to(target)
        assert controller_of(tmp_path / link).pw_uid == other
    roots = tmp_path / "roots"
    roots.touch()
    (tmp_path / "planted").symlink_to(roots)
    os.lchown(tmp_path / "planted", other, other)
    assert controller_of(tmp_path / "planted").pw_uid == other
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(PrivilegeError, match="symbolic links"):
        controller_of(loop)
    open_folder = tmp_path / "open"
    (open_folder / "nested").mkdir(parents=True)
    open_folder.chmod(0o777)
    with pytest.raises(PrivilegeError, match="everyone may replace"):
        controller_of(open_folder / "nested" / "file")

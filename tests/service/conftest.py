"""A host for the service: a Debian container under systemd, with wheels instead of a network."""

import os
import shutil
from threading import Thread

import pytest
from fakes.container import TOOLS, Container, can_boot, debian_root
from fakes.programs import require, skip_unless
from fakes.wheels import TORCH, VERSION, dependency_wheels, own_wheels, user_environment

WHEELS, OWN_WHEELS = "/opt/wheels", "/opt/own-wheels"
# Without PIP_COMPILE pip would compile everything that it installs, most of which is never imported.
OFFLINE = (
    "PIP_NO_INDEX=1", f"PIP_FIND_LINKS={WHEELS} {OWN_WHEELS}", f"COSTPROBE_TORCH={TORCH}", "PIP_COMPILE=0",
)  # fmt: skip

IMPORTS = "import costprobe.ui.cli.run, costprobe.adapters.sensors.child.main"
LAST = "test_upgrade_and_uninstallation_keep_data_and_purge_deletes_all"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Run the test that uninstalls the service last, so that no other has to install it again."""
    items.sort(key=lambda item: item.name == LAST)


def pytest_collection_finish(session):
    """Create the container, which takes a minute, while other tests run."""
    wants_it = any("installed" in getattr(item, "fixturenames", ()) for item in session.items)
    if wants_it and can_boot():
        Thread(target=user_environment, daemon=True).start()


@pytest.fixture(scope="session")
def wheels(tmp_path_factory):
    """A folder with the wheels of costprobe."""
    folder = tmp_path_factory.mktemp("built") / "wheels"
    own_wheels(folder)
    return folder


@pytest.fixture(scope="session")
def debian():
    """The root directory of the container."""
    require(*TOOLS)
    skip_unless(os.geteuid() == 0, "booting systemd needs root")
    return debian_root()


class Host(Container):
    """A booted host on which a user has installed costprobe by pip."""

    def pip_install(self, *arguments):
        """Install into the environment of the user."""
        pip = ("/opt/first/bin/pip", "install", "--quiet")
        self.run(*pip, *arguments, env=OFFLINE)

    def service(self, *arguments, check=True, env=()):
        """Run `costprobe` of the user's environment with arguments."""
        program = "/opt/first/bin/costprobe"
        return self.run(program, *arguments, check=check, env=(*OFFLINE, *env))

    def paths_now(self):
        """All paths on the disk that belong to the service."""
        places = ("/etc", "/usr/local", "/opt", "/var", "/home", "-xdev")
        return self.paths(*places, without=("/opt/first", WHEELS, OWN_WHEELS))

    def systemctl(self, *arguments, check=True):
        return self.run("systemctl", *arguments, check=check)

    def property(self, name, unit="costprobe"):
        return self.systemctl("show", "-P", name, unit).stdout.strip()

    def costprobe(self, *arguments, check=True):
        """The installed command, run by root."""
        config = "--config=/etc/costprobe/costprobe.toml"
        return self.run("costprobe", config, *arguments, check=check)

    def drop_in(self, name, text):
        self.write(f"/etc/systemd/system/costprobe.service.d/{name}.conf", text)
        self.systemctl("daemon-reload")

    def configure(self, text):
        """Write the configuration, keeping the owner and mode of the file."""
        script = 'printf %s "$1" >/etc/costprobe/costprobe.toml'
        self.run("sh", "-c", script, "sh", text)


@pytest.fixture(scope="session")
def host_before(debian, wheels, tmp_path_factory):
    """A booted host with the environment of a user, without the service."""
    folder = tmp_path_factory.mktemp("host")
    shutil.copytree(user_environment(), folder / "first", symlinks=True)
    binds = {WHEELS: dependency_wheels(), OWN_WHEELS: wheels, "/opt/first": folder / "first"}
    with Host(debian, binds, folder / "console") as host:
        host.pip_install(f"costprobe=={VERSION}")
        host.run("useradd", "--create-home", "guest")
        yield host


CONFIG = """
[telemetry]
every = "100ms"
cpu = true
"""


@pytest.fixture(scope="session")
def installed(host_before):
    """A host with the running service.

    Attributes:
        paths_before: What was on its disk before the installation.
        first_output: The output of the installation.
    """
    host = host_before
    host.paths_before = host.paths_now()
    host.first_output = host.service("install", "--no-start").stdout
    # Bytecode for the daemon, which may not write it itself.
    host.run("/opt/costprobe/bin/python", "-c", IMPORTS)
    host.configure(CONFIG)
    host.systemctl("start", "costprobe")
    return host

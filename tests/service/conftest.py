"""A host of its own for the service: Debian under systemd, with the wheels and no network to need."""

import fcntl
import os
from threading import Thread

import pytest
from fakes.container import Container, NoContainersError, debian_root, missing_tools
from fakes.wheels import TORCH, VERSION, make_wheels

WHEELS = "/opt/wheels"
OFFLINE = ("PIP_NO_INDEX=1", f"PIP_FIND_LINKS={WHEELS}", f"INFERCOST_TORCH={TORCH}")


def pytest_collection_finish(session):
    """Makes the root directory while the tests before these run: it takes a minute."""
    wants_it = any("boot" in getattr(item, "fixturenames", ()) for item in session.items)
    if wants_it and not missing_tools() and os.geteuid() == 0:
        Thread(target=debian_root, daemon=True).start()


@pytest.fixture(scope="session")
def wheels(tmp_path_factory):
    """The wheels, built once for all workers of a run."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) / "built"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "wheels").exists():
            make_wheels(folder / "new")
            (folder / "new").rename(folder / "wheels")
    return folder / "wheels"


@pytest.fixture(scope="session")
def debian():
    """The root directory; without the tools the tests are skipped, and fail where CI=true."""
    missing = missing_tools()
    if missing or os.geteuid() != 0:
        reason = (
            f"systemd is booted by root, with {', '.join(missing) or 'all there'}:"
            " apt-get install debootstrap systemd-container"
        )
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return debian_root()


class Host:
    """A booted host with a Python environment that infercost was installed into by pip."""

    def __init__(self, container):
        self.container = container
        self.run, self.read, self.write = container.run, container.read, container.write
        self.exists, self.wait_for = container.exists, container.wait_for

    def bootstrap(self):
        """As a user begins: pip install infercost."""
        self.run("python3", "-m", "venv", "/opt/first")
        wanted = (TORCH, f"infercost=={VERSION}")
        self.run("/opt/first/bin/pip", "install", "--quiet", "--no-compile", *wanted, env=OFFLINE)

    def service(self, *arguments, check=True):
        """infercost service ..."""
        return self.run("/opt/first/bin/infercost", "service", *arguments, check=check, env=OFFLINE)

    def systemctl(self, *arguments, check=True):
        return self.run("systemctl", *arguments, check=check)

    def property(self, name):
        return self.systemctl("show", "-P", name, "infercost").stdout.strip()

    def infercost(self, *arguments, check=True):
        """The installed command, as root types it."""
        config = "--config=/etc/infercost/infercost.toml"
        return self.run("infercost", config, *arguments, check=check)

    def drop_in(self, name, text):
        self.write(f"/etc/systemd/system/infercost.service.d/{name}.conf", text)
        self.systemctl("daemon-reload")

    def configure(self, text):
        """Writes the configuration as an operator does, who keeps the file's owner and mode."""
        script = 'printf %s "$1" >/etc/infercost/infercost.toml'
        self.run("sh", "-c", script, "sh", text)


@pytest.fixture(scope="session")
def boot(debian, wheels, tmp_path_factory):
    """Boots hosts."""
    booted = []

    def start():
        try:
            container = Container(
                debian, {WHEELS: wheels}, tmp_path_factory.mktemp("host") / "console"
            )
        except NoContainersError as reason:
            # A kernel that forbids it cannot be mended by installing anything.
            pytest.skip(f"this machine boots no containers: {reason}")
        booted.append(container)
        host = Host(container)
        host.bootstrap()
        return host

    yield start
    for container in booted:
        container.stop()


CONFIG = """
[telemetry]
every = "200ms"
aggregate = "1s"
cpu = true
"""


@pytest.fixture(scope="session")
def installed(boot):
    """A host on which the service runs; tests leave it running."""
    host = boot()
    host.service("install", "--no-start")
    host.configure(CONFIG)
    host.systemctl("start", "infercost")
    return host

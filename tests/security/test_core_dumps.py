"""No crash writes the memory of a process with secrets to a disk."""

import subprocess
import sys

FORBID = "from costprobe.adapters.host.processes import forbid_core_dumps; forbid_core_dumps()\n"
SHOW = (
    "import resource\n"
    "print(resource.getrlimit(resource.RLIMIT_CORE),"
    " open('/proc/self/coredump_filter').read().strip())\n"
)


def run(program, **more):
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, **more
    )


def test_core_limit_and_dump_filter_are_zero():
    assert run(FORBID + SHOW).stdout == "(0, 0) 00000000\n"


def test_limit_cannot_be_raised_again():
    raised = "resource.setrlimit(resource.RLIMIT_CORE, (4096, 4096))\n"
    # Root may raise any limit, so a test run by root changes to another user.
    leave = "import os\nif os.geteuid() == 0: os.setresuid(65534, 65534, 65534)\nimport resource\n"
    assert "ValueError" in run(FORBID + leave + raised).stderr


def test_command_sets_the_limit_before_it_reads_a_file(tmp_path):
    """A price command inherits the same limits from `costprobe` and from the daemon."""
    program = (
        "import resource, sys\n"
        "from click.testing import CliRunner\n"
        "from costprobe.ui.cli.main import main\n"
        f"CliRunner().invoke(main, ['-c', {str(tmp_path / 'none')!r}, 'config', 'check'])\n"
        "print(resource.getrlimit(resource.RLIMIT_CORE))\n"
    )
    assert run(program).stdout == "(0, 0)\n"

"""No crash of a command writes the memory of a process with secrets to a disk."""

import subprocess
import sys

from costprobe.adapters.host.processes import forbid_core_dumps


def test_command_forbids_core_dumps_before_it_reads_a_file(tmp_path):
    """A price command inherits the same limits from `costprobe` and from the daemon."""
    program = (
        "import resource, sys\n"
        "from click.testing import CliRunner\n"
        "from costprobe.ui.cli.main import main\n"
        f"CliRunner().invoke(main, ['-c', {str(tmp_path / 'none')!r}, 'config', 'check'])\n"
        "print(resource.getrlimit(resource.RLIMIT_CORE))\n"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "(0, 0)\n"


def test_kernel_without_a_dump_filter_is_accepted():
    forbid_core_dumps("/none/filter")

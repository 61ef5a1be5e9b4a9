"""No crash of a command writes the memory of a process with secrets to a disk."""

import subprocess
import sys


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

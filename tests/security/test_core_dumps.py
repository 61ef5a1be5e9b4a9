"""No crash leaves the memory of a process with secrets on a disk."""

import resource
import signal
import subprocess
import sys

import pytest

FORBID = "from agent.core_dumps import forbid_core_dumps; forbid_core_dumps()\n"
SHOW = (
    "import resource\n"
    "print(resource.getrlimit(resource.RLIMIT_CORE),"
    " open('/proc/self/coredump_filter').read().strip())\n"
)


def run(program, **more):
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, **more
    )


def with_dumps_allowed():
    """What a shell's `ulimit -c unlimited` does, as far as the hard limit lets it."""
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))


def test_neither_a_file_nor_memory_is_left_for_a_dump():
    assert run(FORBID + SHOW).stdout == "(0, 0) 00000000\n"


def test_children_inherit_it_and_keep_it_through_exec():
    program = f"{FORBID}import subprocess, sys\nsubprocess.run([sys.executable, '-c', {SHOW!r}])\n"
    assert run(program).stdout == "(0, 0) 00000000\n"


def test_nobody_can_raise_the_limit_again():
    raised = "resource.setrlimit(resource.RLIMIT_CORE, (4096, 4096))\n"
    # Root may raise any limit: another user is played where the test is root's.
    leave = "import os\nif os.geteuid() == 0: os.setresuid(65534, 65534, 65534)\nimport resource\n"
    assert "ValueError" in run(FORBID + leave + raised).stderr


def test_a_crash_leaves_no_file(tmp_path):
    crash = "import os\nos.kill(os.getpid(), 6)\n"
    done = run(FORBID + crash, cwd=tmp_path, preexec_fn=with_dumps_allowed)
    assert done.returncode == -signal.SIGABRT
    assert list(tmp_path.iterdir()) == []


def test_a_kernel_without_the_filter_is_no_fault(tmp_path):
    program = (
        "from pathlib import Path\n"
        "from agent.core_dumps import forbid_core_dumps\n"
        f"forbid_core_dumps(Path({str(tmp_path / 'none' / 'filter')!r}))\n"
    )
    done = run(program + SHOW)
    assert done.stdout.startswith("(0, 0) ")


@pytest.mark.parametrize("arguments", [["--version"], ["config", "--help"]])
def test_commands_start_with_it(arguments):
    command = [sys.executable, "-m", "agent", *arguments]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_a_command_forbids_them_before_it_reads_anything(tmp_path):
    """What a spot price's command inherits from `infercost`, it has from the daemon too."""
    program = (
        "import resource, sys\n"
        "from click.testing import CliRunner\n"
        "from agent.cli.main import main\n"
        f"CliRunner().invoke(main, ['-c', {str(tmp_path / 'none')!r}, 'config', 'check'])\n"
        "print(resource.getrlimit(resource.RLIMIT_CORE))\n"
    )
    assert run(program).stdout == "(0, 0)\n"

"""No crash writes the memory of a process with secrets to a disk."""

import resource
import signal
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


def with_dumps_allowed():
    """What a shell's `ulimit -c unlimited` does, as far as the hard limit lets it."""
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))


def test_core_limit_and_dump_filter_are_zero():
    assert run(FORBID + SHOW).stdout == "(0, 0) 00000000\n"


def test_children_inherit_the_limit_through_exec():
    program = f"{FORBID}import subprocess, sys\nsubprocess.run([sys.executable, '-c', {SHOW!r}])\n"
    assert run(program).stdout == "(0, 0) 00000000\n"


def test_limit_cannot_be_raised_again():
    raised = "resource.setrlimit(resource.RLIMIT_CORE, (4096, 4096))\n"
    # Root may raise any limit, so a test run by root changes to another user.
    leave = "import os\nif os.geteuid() == 0: os.setresuid(65534, 65534, 65534)\nimport resource\n"
    assert "ValueError" in run(FORBID + leave + raised).stderr


def test_crash_leaves_no_file(tmp_path):
    crash = "import os\nos.kill(os.getpid(), 6)\n"
    done = run(FORBID + crash, cwd=tmp_path, preexec_fn=with_dumps_allowed)
    assert done.returncode == -signal.SIGABRT
    assert list(tmp_path.iterdir()) == []


def test_kernel_without_dump_filter_is_accepted():
    done = run(FORBID.replace("dumps()", "dumps('/none/filter')") + SHOW)
    assert done.stdout.startswith("(0, 0) ")


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

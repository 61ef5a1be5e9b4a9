"""Run a command in the test process on a pseudo-terminal of a given width."""

import fcntl
import os
import pty
import struct
import termios
from contextlib import ExitStack, redirect_stderr, redirect_stdout, suppress
from threading import Thread
from unittest.mock import patch

from costprobe.ui.cli.main import main

LEFT_OUT = {"NO_COLOR", "COLUMNS", "LINES"}


def on_terminal(config, *words, columns=100, env=(), stdin_too=False):
    """The output of a command on a terminal with the given number of columns, unprocessed."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    clean = {k: v for k, v in os.environ.items() if k not in LEFT_OUT}
    seen = []
    reader = Thread(target=_read_all, args=(ours, seen))
    reader.start()
    with ExitStack() as stack:
        # Programs ask both Python's streams and the descriptors.
        for descriptor in (0, 1, 2) if stdin_too else (1, 2):
            stack.callback(os.close, before := os.dup(descriptor))
            stack.callback(os.dup2, before, descriptor)
            os.dup2(theirs, descriptor)
        os.close(theirs)
        environ = {**clean, "TERM": "xterm-256color", **dict(env)}
        stack.enter_context(patch.dict(os.environ, environ, clear=True))
        if stdin_too:
            stdin = stack.enter_context(open(0, closefd=False))
            stack.enter_context(patch("sys.stdin", stdin))
        output = stack.enter_context(open(1, "w", closefd=False))
        stack.enter_context(redirect_stdout(output))
        stack.enter_context(redirect_stderr(output))
        with suppress(SystemExit):
            main(["-c", str(config), *words])
    reader.join()
    os.close(ours)
    return b"".join(seen)


def _read_all(descriptor, seen):
    # EIO on Linux: the other end is closed.
    with suppress(OSError):
        while part := os.read(descriptor, 65536):
            seen.append(part)

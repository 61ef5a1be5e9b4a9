"""Run as root: for each command print which user it runs as when its own code starts.

Args: a configuration file, and the names of the commands.
"""

import importlib
import json
import os
import sys

import click
from costprobe.ui.cli.main import main


def uids_in(config, name):
    """Resolve one command in a child process, as a call does, and return its user ids."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        with main.make_context("costprobe", ["-c", config, name]) as context:
            main.resolve_command(context, [name])
            os.write(writing, json.dumps(os.getresuid()).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        uids = answer.read()
    os.waitpid(child, 0)
    return json.loads(uids)


config, *names = sys.argv[1:]
# Once, before the processes divide.
for name in names:
    importlib.import_module(f"costprobe.ui.cli.{name}")
click.echo(json.dumps({name: uids_in(config, name) for name in names}))

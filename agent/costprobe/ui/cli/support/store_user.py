"""Root's commands run as the user of the store: the one place where a command gives up root's rights."""

from __future__ import annotations

import os
import pwd
import sys
from pathlib import Path

from costprobe.core.config.location import SYSTEM_STORE, config_path, default_store, store_of
from costprobe.ui.cli.support.output import echo
from costprobe.ui.cli.support.place import bad_input

SERVICE_USER = "costprobe"
ROOT = 0


def act_as_store_user(named: str | None) -> pwd.struct_passwd | None:
    """Give up root's rights if a configuration's store belongs to another user.

    That user can put anything in the place of the store, the locks and the socket beside it, and the
    probes of the configuration are to run with this user's rights alone.

    Args:
        named: The configuration file in the command's options; None for the default.

    Returns:
        The new user; None if nothing changed.

    Raises:
        click.ClickException: With exit code 2; root cannot use the store safely.
    """
    if os.geteuid() != ROOT:
        return None
    path = config_path(named)
    try:
        store = store_of(path)
    except (OSError, ValueError, RecursionError):
        store = default_store(path)  # the command reports the error of the file
    account = act_as_owner_of(store)
    if account is not None and not _can_run_this_program():
        raise bad_input(
            f"the store {store} belongs to user {account.pw_name or account.pw_uid}, who cannot read this"
            f" installation ({sys.prefix}): use one that all users can read, such as that of"
            " `costprobe install` in /opt/costprobe"
        )
    return account


def act_as_owner_of(path: Path) -> pwd.struct_passwd | None:
    """Give up root's rights if another user decides what a path leads to.

    Returns:
        The new user; None if nothing changed.

    Raises:
        click.ClickException: With exit code 2; everyone may replace the path.
    """
    if os.geteuid() != ROOT:
        return None
    from costprobe.adapters.host.files import PrivilegeError, become, controller_of  # noqa: PLC0415 - for root alone: most commands must start fast

    try:
        account = controller_of(path) or _service_account(path)
        if account is not None:
            become(account, os.environ)
    except PrivilegeError as error:
        raise bad_input(str(error)) from error
    return account


def explain(message: str, account: pwd.struct_passwd | None) -> None:
    """Print the reason of an error beside it if root's rights are what is missing."""
    if account is not None and "ermission denied" in message:
        name = account.pw_name or f"user {account.pw_uid}"
        echo(
            f"note: root's commands run as {name}, to whom the store belongs: use files and folders of"
            f" {name}, or redirect standard output",
            err=True,
        )


def _service_account(path: Path) -> pwd.struct_passwd | None:
    """Return the service's account for a store that its first start has not yet created."""
    if path != SYSTEM_STORE or path.exists():
        return None
    try:
        return pwd.getpwnam(SERVICE_USER)
    except KeyError:
        return None


def _can_run_this_program() -> bool:
    return os.access(__file__, os.R_OK) and os.access(sys.executable, os.X_OK)

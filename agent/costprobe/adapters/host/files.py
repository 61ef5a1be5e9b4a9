"""Opening, writing and evicting files safely, without following links of other users.

Root's rights are given up before a path of another user is used. A user who may write a folder
decides what the names in it mean, and root that follows such a path can be led to any file;
SQLite, for example, deletes the files that a crafted journal names.

Files of our own, such as locks, are opened without following a link that others may have put
there. A file of the operator is written completely or not at all, and never through a link.

Files are evicted from the page cache without effect on any other file.
"""

from __future__ import annotations

import errno
import grp
import os
import pwd
import secrets
import stat
from collections.abc import Collection, Iterable, Iterator, MutableMapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from costprobe.core.outside import open_regular

ROOT: Final = 0
_MAX_LINKS: Final = 40
# Not XDG_STATE_HOME, which names the store of demo mode: it decided which user this is.
_XDG_FOLDERS: Final = ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR")
_WRITABLE_BY_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH
_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class PrivilegeError(Exception):
    """Root cannot use a path safely; the text has the reason and the fix."""


def account_of(uid: int, gid: int) -> pwd.struct_passwd:
    """Return the account of a user id; without a name if the user database has no entry.

    Args:
        uid: User id.
        gid: Group to use without an entry.
    """
    try:
        return pwd.getpwuid(uid)
    except KeyError:
        return pwd.struct_passwd(("", "", uid, gid, "", "/", ""))


def walked(path: Path) -> Iterator[tuple[Path, os.stat_result, bool]]:
    """Yield each part of a path from the root directory on, links and what they lead to included.

    A missing part ends the walk.

    Yields:
        The part, its attributes, and whether it is the folder of the last part, or that part.

    Raises:
        PrivilegeError: There are too many links.
    """
    here = Path("/")
    parts = list(path.absolute().parts[:0:-1])
    links = 0
    while parts:
        part = parts.pop()
        if part == "..":
            here = here.parent
            continue
        entry = here / part
        try:
            found = os.lstat(entry)
        except OSError:
            return
        yield entry, found, len(parts) <= 1
        if not stat.S_ISLNK(found.st_mode):
            here = entry
            continue
        links += 1
        if links > _MAX_LINKS:
            raise PrivilegeError(f"{path}: too many symbolic links")
        target = entry.readlink()
        if target.is_absolute():
            here = Path("/")
        parts += [part for part in reversed(target.parts) if part != "/"]


def controller_of(path: Path) -> pwd.struct_passwd | None:
    """Return the user who decides what a path means; None if only root does.

    It is the owner of the first part of the path that is not root's: this user may replace all that
    follows. Links are followed only as long as root made them.

    Raises:
        PrivilegeError: Everyone may replace a part of the path.
    """
    for entry, found, is_last in walked(path):
        if found.st_uid != ROOT:
            return account_of(found.st_uid, found.st_gid)
        if not is_last and _is_writable(found, stat.S_IWOTH):
            raise PrivilegeError(f"{entry}: everyone may replace what is in it: chmod o-w {entry}")
    return None


def other_writer(path: Path, trusted: Collection[int]) -> str | None:
    """Return who else may write a file or replace it, in words; None for nobody.

    Args:
        path: The file; its folders count, too, because their writers may replace it.
        trusted: Ids of the users who may.
    """
    try:
        for entry, found, _ in walked(path):
            if found.st_uid not in trusted:
                return f"{entry} belongs to {account_of(found.st_uid, 0).pw_name or found.st_uid}"
            if _is_writable(found, stat.S_IWOTH):
                return f"everyone may write {entry}"
            if _is_writable(found, stat.S_IWGRP) and not _is_private(found.st_gid, found.st_uid):
                return f"the group {found.st_gid} may write {entry}"
    except PrivilegeError as error:
        return str(error)
    return None


def _is_writable(found: os.stat_result, permission: int) -> bool:
    """Return whether others have a permission; in a sticky folder only for names of their own."""
    is_safe = stat.S_ISLNK(found.st_mode) or (
        stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX
    )
    return bool(found.st_mode & permission) and not is_safe


def _is_private(gid: int, uid: int) -> bool:
    """Return whether a group is root's, or has the name of its only member."""
    if gid == ROOT:
        return True
    try:
        group = grp.getgrgid(gid)
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        return False
    return group.gr_name == name and set(group.gr_mem) <= {name}


def become(account: pwd.struct_passwd, environ: MutableMapping[str, str]) -> None:
    """Give up root's rights for good, with all threads, and take those of a user.

    Args:
        account: The user.
        environ: The environment; folders in it that are not the user's are replaced or removed.

    Raises:
        PrivilegeError: The system refuses, as in a container without the capability.
    """
    name, uid, gid = account.pw_name, account.pw_uid, account.pw_gid
    try:
        if name:
            os.initgroups(name, gid)
        else:
            os.setgroups([])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    except OSError as error:
        raise PrivilegeError(
            f"cannot become user {name or uid} ({error.strerror}): start the command as this user"
        ) from error
    if os.getresuid() != (uid,) * 3 or os.getresgid() != (gid,) * 3:
        raise PrivilegeError(f"cannot become user {name or uid}")
    if not _belongs(environ.get("HOME"), uid):
        environ["HOME"] = account.pw_dir
    for folder in _XDG_FOLDERS:
        if folder in environ and not _belongs(environ[folder], uid):
            del environ[folder]
    if name:
        environ["USER"] = environ["LOGNAME"] = name


def _belongs(folder: str | None, uid: int) -> bool:
    with suppress(OSError):
        return folder is not None and os.stat(folder).st_uid == uid  # noqa: PTH116 - a text of the environment
    return False


def open_own(path: Path) -> int:
    """Open a file of this user for reading and writing; create it with mode 0600 if absent.

    Returns:
        A file descriptor, which children do not inherit.

    Raises:
        OSError: It cannot be opened, is a link or no regular file, or others own it or may write it.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        handle = os.open(path, flags, 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "is a symbolic link; delete it", str(path)) from error
        raise
    found = os.fstat(handle)
    if (
        not stat.S_ISREG(found.st_mode)
        or found.st_uid != os.geteuid()
        or found.st_nlink > 1
        or found.st_mode & _WRITABLE_BY_OTHERS
    ):
        os.close(handle)
        raise OSError(errno.EPERM, "is not a file of this user alone; delete it", str(path))
    return handle


def write_new(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Write a new file; an incomplete one is deleted.

    Args:
        path: The file; a link of this name counts as existing, also one that leads nowhere.
        content: Its content.
        mode: Its mode, less the umask.

    Raises:
        FileExistsError: The name exists.
        OSError: It cannot be written.
    """
    handle = os.open(path, _NEW_FILE, mode)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(handle)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def replace_file(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Write a file in one step, in the place of an existing file or link.

    Raises:
        OSError: It cannot be written, or the name is a folder, a device or a pipe.
    """
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    write_new(fresh, content, mode)
    try:
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


def evict(paths: Iterable[Path]) -> int:
    """Evict files from the page cache; pages that a process has mapped stay.

    Dropping all caches (/proc/sys/vm/drop_caches) would slow down whatever else runs on the host.

    Returns:
        Size of the files in bytes; those that cannot be opened are left out.
    """
    size_bytes = 0
    for path in paths:
        try:
            with open_regular(path) as handle:
                # Pages that are not on storage yet cannot be evicted.
                os.fdatasync(handle)
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
                size_bytes += os.fstat(handle).st_size
        except OSError:
            continue
    return size_bytes

"""Where a daemon listens: the same places in the same order as in rooflinectl."""

import os
import stat
from typing import Dict, List, NamedTuple, Optional, Union

Path = Union[str, "os.PathLike[str]"]
# The files of one daemon, by "query" and "control".
Address = Dict[str, str]


def of_path(given: Path) -> Address:
    """The sockets of a directory, or of one of the two files in it."""
    path = os.fspath(given)
    if not path.endswith(".sock"):
        return {"query": os.path.join(path, "query.sock"), "control": _control_beside(path)}
    if os.path.basename(path) == "control.sock":
        # It answers questions too.
        return {"query": path, "control": path}
    return {"query": path, "control": _control_beside(os.path.dirname(path) or ".")}


def _control_beside(directory: str) -> str:
    """The system's control socket has its own directory; others share one."""
    plain = directory.rstrip("/")
    apart = os.path.join(plain + "-control", "control.sock")
    beside = os.path.join(directory, "control.sock")
    # Anyone may create a directory of that name below /tmp.
    owner = _owner(plain + "-control")
    trusted = owner is not None and owner in (0, _owner(directory))
    alone = trusted and os.path.exists(apart) and not os.path.exists(beside)
    return apart if plain == "/run/rooflined" or alone else beside


def _owner(path: str) -> Optional[int]:
    try:
        return os.lstat(path).st_uid
    except (OSError, ValueError):
        return None


class Place(NamedTuple):
    """A place where a daemon may listen, and the reason why it is not asked."""

    address: Address
    objection: Optional[str] = None


def places(given: Optional[Path]) -> List[Place]:
    """Places to look, best first: only `given`, else only $ROOFLINED_SOCKET, else the user's own places and the system's."""
    named = given if given is not None else os.environ.get("ROOFLINED_SOCKET") or None
    if named is not None:
        return [Place(of_path(named))]
    found = []
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if os.path.isabs(runtime):
        found.append(Place(of_path(os.path.join(runtime, "rooflined"))))
    return [*found, _private(f"/tmp/rooflined-{os.getuid()}"), Place(of_path("/run/rooflined"))]


def _private(directory: str) -> Place:
    """A directory whose name anyone may take: another user's daemon must not answer for ours."""
    # Never the one next to it, which anyone may use.
    address = {name: os.path.join(directory, f"{name}.sock") for name in ("query", "control")}
    try:
        found = os.lstat(directory)
    except OSError as error:
        return Place(address, said(error))
    objection = None
    if stat.S_ISLNK(found.st_mode):
        objection = "not used: its directory is a symbolic link; remove it"
    elif not stat.S_ISDIR(found.st_mode):
        objection = "not used: what should be its directory is a file; remove it"
    elif found.st_uid != os.getuid():
        objection = f"not used: its directory belongs to user {found.st_uid}; have it removed"
    elif found.st_mode & 0o022:
        objection = "not used: others may write to its directory; chmod go-w it, or remove it"
    return Place(address, objection)


def said(error: OSError) -> str:
    """What the system says, in lower case."""
    return (error.strerror or str(error)).lower()

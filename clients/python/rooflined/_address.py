"""Where a daemon listens; the same places in the same order as rooflinectl."""

import os
import stat
from typing import Dict, List, Optional, Union

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
    """The system's control socket lies in a directory of its own, others share one."""
    apart = os.path.join(directory.rstrip("/") + "-control", "control.sock")
    beside = os.path.join(directory, "control.sock")
    alone = os.path.exists(apart) and not os.path.exists(beside)
    return apart if directory.rstrip("/") == "/run/rooflined" or alone else beside


def candidates(given: Optional[Path]) -> List[Address]:
    """Best first: `given` alone, else $ROOFLINED_SOCKET alone, else the user's own places and the system's."""
    named = given or os.environ.get("ROOFLINED_SOCKET")
    if named:
        return [of_path(named)]
    places = []
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime:
        places.append(os.path.join(runtime, "rooflined"))
    temporary = f"/tmp/rooflined-{os.getuid()}"
    try:
        found = os.lstat(temporary)
        # Anyone may create a directory of that name.
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid():
            places.append(temporary)
    except OSError:
        pass
    return [of_path(place) for place in [*places, "/run/rooflined"]]

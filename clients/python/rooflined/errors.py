"""Why a call failed. Match on the class and on `code`; messages may change."""

from typing import Any, Dict, List, Optional, Tuple, Type

__all__ = ["ConnectionLost", "Denied", "Refused", "RooflinedError", "TimedOut", "Unexpected", "Unreachable"]


class RooflinedError(Exception):
    """Base of every error of this package.

    `code` is stable, `message` is for people, and `hint` says what to do next, or is None. `details` is the daemon's own error
    object, empty if the error came from elsewhere.
    """

    code = "failed"

    def __init__(self, message: str, hint: Optional[str] = None, details: Optional[Dict[str, Any]] = None) -> None:
        super().__init__(f"{message}; {hint}" if hint else message)
        self.message = message
        self.hint = hint
        self.details: Dict[str, Any] = details or {}

    def __reduce__(self) -> Tuple[Any, ...]:
        # Pickle would call the class with the message, which most of them make themselves.
        return _restored, (type(self), self.args), self.__dict__

    @property
    def is_temporary(self) -> bool:
        """Whether the same request may succeed a little later."""
        return False


def _restored(kind: Type[RooflinedError], args: Tuple[Any, ...]) -> RooflinedError:
    """One without its attributes, which pickle sets."""
    return kind.__new__(kind, *args)


class Unreachable(RooflinedError):
    """No daemon accepts connections; `tried` has the path of each socket and the result."""

    code = "unreachable"

    def __init__(self, tried: List[Tuple[str, str]]) -> None:
        places = ", ".join(f"{path} ({why})" for path, why in tried)
        super().__init__(
            f"no daemon answers at {places}",
            "start one with `systemctl start rooflined`, or by hand with `rooflined`; name the directory of its sockets with "
            "ROOFLINED_SOCKET or Client(socket=...)",
        )
        self.tried = tried

    @property
    def is_temporary(self) -> bool:
        return True


class Denied(RooflinedError):
    """The socket exists, but this user may not open it."""

    code = "denied"

    def __init__(self, path: str) -> None:
        super().__init__(
            f"{path} may not be opened by this user",
            "changes are for root and the group rooflined: sudo usermod -aG rooflined $USER, then log in again"
            if path.endswith("control.sock")
            else "look at its mode with `rooflinectl doctor`",
        )

    @property
    def is_temporary(self) -> bool:
        # While a daemon starts, its socket exists before everybody may open it.
        return True


class TimedOut(RooflinedError):
    """No complete answer within `timeout_s`. A change may still be carried out."""

    code = "timed_out"

    def __init__(self, route: str, limit_s: float) -> None:
        super().__init__(f"no answer to {route} within {limit_s:g} s", "look for what keeps the daemon busy with `rooflinectl doctor`, or raise timeout_s")

    @property
    def is_temporary(self) -> bool:
        return True


class ConnectionLost(RooflinedError):
    """The connection broke before the answer was complete. A change may or may not have been carried out."""

    code = "connection_lost"

    def __init__(self, route: str) -> None:
        super().__init__(f"the connection broke before {route} was answered", "see why the daemon ended with `journalctl -u rooflined`")

    @property
    def is_temporary(self) -> bool:
        return True


class Unexpected(RooflinedError):
    """This version does not understand the answer: another program listens on the socket, or the answer is over 64 MiB."""

    code = "unexpected"


class Refused(RooflinedError):
    """The daemon refused, with the reason: HTTP `status`, `code`, `message`, `hint`, and `field`, the wrong field or None.

    If the request has several mistakes, `problems` lists them, each with its own `message`, `field` and `hint`.
    """

    def __init__(self, status: int, details: Dict[str, Any]) -> None:
        super().__init__(str(details.get("message", f"the daemon answered {status}")), details.get("hint"), details)
        self.status = status
        self.code = str(details.get("code", "http"))
        self.field: Optional[str] = details.get("field")
        self.problems: List[Dict[str, Any]] = details.get("problems") or []

    @property
    def is_temporary(self) -> bool:
        return self.status == 503 or self.code == "busy"

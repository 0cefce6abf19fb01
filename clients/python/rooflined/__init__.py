"""Client of rooflined, the performance advisor of this machine: predictions, recommendations, holds of power modes, events.

    import rooflined

    with rooflined.Client() as client:
        answer = client.predict({"op": {"kind": "gemv", "n": 4096, "k": 4096}, "format": "int8"})
        print(answer["time_s"]["value"], answer["limit"])

`Client` blocks, `AsyncClient` is for asyncio; both have the same verbs. `types` has the types of requests and answers,
`errors` the exceptions.
"""

from . import errors, types
from ._async import AsyncClient, AsyncEvents, AsyncHold
from ._sync import Client, Events, Hold
from ._wire import Event
from .errors import ConnectionLost, Denied, Refused, RooflinedError, TimedOut, Unexpected, Unreachable

__version__ = "0.1.0"
__all__ = [
    "AsyncClient", "AsyncEvents", "AsyncHold", "Client", "ConnectionLost", "Denied", "Event", "Events", "Hold", "Refused",
    "RooflinedError", "TimedOut", "Unexpected", "Unreachable", "errors", "types",
]

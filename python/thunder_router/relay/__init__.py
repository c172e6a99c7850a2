"""The byte relay: one request's way from client to worker and back.

`front` reads requests, `exchange` lives one of them through, `upstream` speaks to a worker; the
bytes of both bodies go through untouched but for what is cut or spliced on purpose. `contract`
says what the relay needs from the rest of the house, `serve` puts it in front of an ASGI
application.
"""

from thunder_router.relay.contract import (
    Admission,
    Arrival,
    Ended,
    Endpoint,
    Observer,
    Place,
    Ticket,
    Workers,
)
from thunder_router.relay.keys import ClientKey
from thunder_router.relay.relay import Relay
from thunder_router.relay.serve import RelayServer

__all__ = [
    "Admission",
    "Arrival",
    "ClientKey",
    "Ended",
    "Endpoint",
    "Observer",
    "Place",
    "Relay",
    "RelayServer",
    "Ticket",
    "Workers",
]

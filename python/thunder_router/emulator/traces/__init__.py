"""Recorded agent sessions: as a trace that the simulator plays, and from what people have.

* `sessions`: the trace itself, and `load`, which takes any of the three.
* `calls`: model calls of one program, and what they say of its turns.
* `request_log`: calls from a log of requests and answers.
* `journal`: calls from the router's own journal.
"""

from thunder_router.emulator.traces.sessions import Session, Trace, load, write

__all__ = ["Session", "Trace", "load", "write"]

"""An emulated SGLang worker on thunder-sim's engine model. It says that it is one.

`serve(options)` runs one or several workers until a signal; `running(options)` does so inside
somebody else's event loop and yields their URLs. What a worker answers has SGLang 0.5.23's shapes;
how long it takes and what it finds cached is the engine model's doing. Generated text is filler
unless a script says otherwise.
"""

from thunder_router.emulator.options import EmulatorOptions
from thunder_router.emulator.server import running, serve

__all__ = ["EmulatorOptions", "running", "serve"]

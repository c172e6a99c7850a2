"""The router over a real SGLang, on this machine's CPU: `make test-engine`."""

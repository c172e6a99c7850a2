"""Tool environments on a real container engine: `make test-docker` at full size."""

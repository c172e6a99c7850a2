"""Routers side by side before the same emulated workers, under the same programs, over HTTP."""

"""The names that SGLang imports from `sgl_kernel.mamba`; see the package."""

from sgl_kernel import __getattr__  # noqa: F401 - a module's own __getattr__ answers for it

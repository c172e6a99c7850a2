"""Stands in for torchvision, which has no build for this torch; models of text never call it.

Any module and any name can be imported; calling one raises.
"""

import importlib.machinery
import sys
import types
from typing import NoReturn

__version__ = "0.0.0"

MODULES = (
    *("transforms", "transforms.functional", "transforms.functional_tensor"),
    *("transforms.v2", "transforms.v2.functional"),
    *("datasets", "io", "models", "ops", "utils"),
)


class Absent:
    """A class that cannot be made; its attributes are read where modules are imported."""

    def __init__(self, *_: object, **__: object) -> None:
        raise NotImplementedError("torchvision was called: this is a stub")

    def __class_getitem__(cls, _: object) -> type:
        return cls


class Module(types.ModuleType):
    """A module that has every name."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        full = f"{self.__name__}.{name}"
        if name[:1].isupper():
            made: object = Constants(name, (Absent,), {})
        else:

            def made(*_: object, **__: object) -> NoReturn:
                raise NotImplementedError(full)

        setattr(self, name, made)
        return made


class Constants(type):
    """The type of such classes: `InterpolationMode.BICUBIC` is its own name."""

    def __getattr__(cls, name: str) -> str:
        if not name.isupper():
            raise AttributeError(name)
        return name


for path in MODULES:
    full = f"{__name__}.{path}"
    module = Module(full)
    module.__spec__ = importlib.machinery.ModuleSpec(full, None, is_package=True)
    module.__path__ = []
    sys.modules[full] = module
    parent, _, leaf = full.rpartition(".")
    setattr(sys.modules[parent], leaf, module)

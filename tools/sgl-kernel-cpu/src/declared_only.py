"""Names that can be imported and mentioned, and that say so when they are used.

SGLang imports three packages at start that a text model on a CPU never calls: triton, torchvision and most of
sgl_kernel. What stands in their place here is made of these.
"""

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, NoReturn


class Declared:
    """A name of an absent package: it has every attribute, may be a base class, and refuses to be called."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> "Declared":
        return declare(type(self), self._name, name)

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type, ...]:
        return ()

    def __getitem__(self, key: object) -> Any:
        return self._refuse()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._refuse()

    def _refuse(self) -> NoReturn:
        raise NotImplementedError(
            f"{self._name} was called, and sgl-kernel-cpu does not provide it: it has what SGLang needs to "
            "serve a plain text model on a CPU, with or without an EAGLE-3 drafter. See the package's README."
        )


class DecoratorName(Declared):
    """A name that describes or decorates functions: called with one, it gives a `Declared` in its place."""

    def __call__(self, *args: Any, **kwargs: Any) -> Declared:
        if len(args) == 1 and callable(args[0]):
            return Declared(getattr(args[0], "__qualname__", None) or args[0]._name)
        return DecoratorName(self._name)


class Submodules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Makes every submodule of an absent package importable; `kind` is what their names are."""

    def __init__(self, package: str, kind: type[Declared]) -> None:
        self._package, self._kind = package, kind

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.startswith(self._package + "."):
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def exec_module(self, module: ModuleType) -> None:
        module.__getattr__ = lambda name: declare(self._kind, module.__name__, name)  # type: ignore[method-assign]


def declare(kind: type[Declared], where: str, name: str) -> Declared:
    """The name `where.name`; double underscores stay undefined, because Python and inspect look for them."""
    if name.startswith("__"):
        raise AttributeError(f"{where}.{name}")
    return kind(f"{where}.{name}")


def declare_package(package: str, kind: type[Declared]) -> Callable[[str], Declared]:
    """Opens the package's submodules; returns the `__getattr__` for its own module."""
    sys.meta_path.append(Submodules(package, kind))
    return lambda name: declare(kind, package, name)

"""Stands in for what a package imports and this interpreter lacks, so that its own parser can be built.

An engine's flags are decided by its Python code, not by torch or its compiled kernels; but importing that
code imports those. So every module outside the package, the standard library and `REAL` becomes a
placeholder: it has every attribute, can be called, subclassed and used as a type, and is false. What a
placeholder touches can go wrong in one way only, by reaching the contract; `parser` refuses that.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import re
import sys
import types
import typing
from collections.abc import Iterator, MutableSequence, Sequence
from importlib.machinery import ExtensionFileLoader, ModuleSpec, PathFinder
from typing import Any

# Imported for real: both engines declare their settings with them.
REAL = frozenset(
    {"annotated_types", "msgspec", "packaging", "pydantic", "pydantic_core", "typing_extensions"}
    | {"typing_inspection"}
)

# Not there, so that packages take their path for CUDA or the CPU: other makers' plugins for torch.
ABSENT = frozenset(
    {"habana_frameworks", "intel_extension_for_pytorch", "torch_gcu", "torch_mlu", "torch_musa", "torch_npu"}
    | {"torch_xla", "torchada", "tpu_inference"}
)
_ABSENT_ATTRIBUTES = frozenset({"torch.gcu", "torch.mlu", "torch.musa", "torch.npu"})


class Placeholder:
    """Any object of a module that is not there; false, empty and zero wherever a value is asked for."""

    def __init__(self, name: str) -> None:
        self.__name__ = self.__qualname__ = name

    def __getattr__(self, name: str) -> Any:
        if name == "__version__":
            return "999"
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return Placeholder(f"{self.__name__}.{name}")

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """As a decorator it returns what it decorates."""
        decorated = arguments[0] if len(arguments) == 1 and not options else None
        if isinstance(decorated, types.FunctionType | type | classmethod | staticmethod):
            return decorated
        return Placeholder(f"{self.__name__}()")

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type, ...]:
        return (type(self.__name__.rpartition(".")[2], (_Base,), {}),)

    def __getitem__(self, key: object) -> Placeholder:
        return Placeholder(f"{self.__name__}[]")

    def __setitem__(self, key: object, value: object) -> None:
        return None

    def __or__(self, other: Any) -> Any:
        """As part of a type it keeps the rest: ``torch.dtype | Literal["auto"]``."""
        try:
            return typing.Union[self, other]  # noqa: UP007  the operator is what is defined here
        except TypeError:
            return Placeholder(self.__name__)

    __ror__ = __or__

    def _combined(self, other: object) -> Placeholder:
        return Placeholder(self.__name__)

    __and__ = __rand__ = __add__ = __radd__ = __sub__ = __rsub__ = _combined
    __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __pow__ = __floordiv__ = __mod__ = _combined

    def _false(self, other: object) -> bool:
        return False

    __lt__ = __le__ = __gt__ = __ge__ = __contains__ = __instancecheck__ = __subclasscheck__ = _false

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __bool__(self) -> bool:
        return False

    def __int__(self) -> int:
        return 0

    __len__ = __index__ = __int__

    def __float__(self) -> float:
        return 0.0

    def __enter__(self) -> Placeholder:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def __repr__(self) -> str:
        return f"<placeholder for {self.__name__}>"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: object) -> object:
        return _any_schema()


def _any_schema() -> object:
    from pydantic_core import core_schema

    return core_schema.any_schema()


class _Base:
    """What a class gets that is derived from a placeholder."""

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__()

    def __class_getitem__(cls, key: object) -> type:
        return cls

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: object) -> object:
        return _any_schema()


class PlaceholderModule(types.ModuleType):
    """A module that is not there. Attributes are made once, so that two imports see the same object."""

    __path__: MutableSequence[str] = []  # noqa: RUF012  nothing is ever added
    __all__: Sequence[str] = ()
    __version__ = "999"

    def __getattr__(self, name: str) -> Any:
        full = f"{self.__name__}.{name}"
        if full in _ABSENT_ATTRIBUTES or (name.startswith("__") and name.endswith("__")):
            raise AttributeError(full)
        value = Placeholder(full)
        setattr(self, name, value)
        return value


class _Maker(importlib.abc.Loader):
    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        return PlaceholderModule(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        return None


class _Tolerant(importlib.abc.Loader):
    """Loads a module of the package; one that cannot be run among placeholders becomes one itself."""

    def __init__(self, loader: importlib.abc.Loader, failed: dict[str, str]) -> None:
        self._loader = loader
        self._failed = failed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> types.ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: types.ModuleType) -> None:
        try:
            self._loader.exec_module(module)
        except ImportError:
            raise
        except Exception as error:
            self._failed[module.__name__] = f"{type(error).__name__}: {error}"
            module.__class__ = PlaceholderModule


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, package: str, root: str, also: frozenset[str]) -> None:
        self._package = package
        self._root = root
        self._also = also
        self.failed: dict[str, str] = {}

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> ModuleSpec | None:
        top = name.partition(".")[0]
        if top == self._package and name not in self._also:
            spec = PathFinder.find_spec(name, path or [self._root])
            if spec is None or spec.loader is None:
                return spec
            if not isinstance(spec.loader, ExtensionFileLoader):
                spec.loader = _Tolerant(spec.loader, self.failed)
                return spec
        elif top in sys.stdlib_module_names or top in REAL:
            return None
        elif top in ABSENT:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return ModuleSpec(name, _Maker(), is_package=True)


def install(package: str, root: str, also: frozenset[str] = frozenset()) -> dict[str, str]:
    """From now on ``package`` is imported from the folder ``root``, all else as the module's text says.

    Args:
        also: modules of the package that look at the machine, placeholders too.

    Returns:
        Modules of the package that could not be run, with the error; grows with every import.
    """
    sys.modules["regex"] = re  # the same interface; only the standard library's is surely here
    finder = _Finder(package, root, also)
    sys.meta_path.insert(0, finder)
    return finder.failed

"""The environment variables that a package reads, from its source alone."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

_NAME = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")
_QUOTED = re.compile(rf"[\"']({_NAME.pattern})[\"']")
# Modules that do nothing but declare variables: every name in them counts, as text and as attribute.
_REGISTRIES = frozenset({"envs.py", "environ.py"})
# Not part of the server: another server of the same package (images, video), tests, benchmarks.
_OTHERS = ("sglang/multimodal_gen/", "sglang/test/", "sglang/benchmark/", "vllm/benchmarks/")
# os.getenv, os.environ.get, and the packages' own get_bool_env_var, EnvInt and so on.
_READER = re.compile(r"getenv|environ|(?:^|_)env(?:$|_)|^Env[A-Z]", re.IGNORECASE)
_C_READER = re.compile(r"getenv\s*\(\s*\"([A-Z][A-Z0-9_]+)\"")
_C_SUFFIXES = frozenset({".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".inl", ".jinja"})
SUFFIXES = _C_SUFFIXES | {".py"}


def variables(root: Path, package: str) -> dict[str, str]:
    """Each variable that the files of ``package`` below ``root`` read, with the first file that does so.

    Read are, in Python: what is asked of ``os.environ`` (by key, ``in``, ``get`` …), ``os.getenv`` or a
    function named after the environment; in C++ and CUDA that is compiled at run time: ``getenv``. Compiled
    files are not looked into.
    """
    found: dict[str, str] = {}
    for file in sorted((root / package).rglob("*")):
        relative = file.relative_to(root).as_posix()
        if relative.startswith(_OTHERS):
            continue
        if file.suffix == ".py":
            registry = file.name in _REGISTRIES
            source = file.read_text(encoding="utf-8", errors="replace")
            names = python_variables(source, registry) | set(_C_READER.findall(source))
        elif file.suffix in _C_SUFFIXES:
            names = set(_C_READER.findall(file.read_text(encoding="utf-8", errors="replace")))
        else:
            continue
        for name in names:
            # A declaration tells more than a use somewhere else.
            if name not in found or (file.name in _REGISTRIES and Path(found[name]).name not in _REGISTRIES):
                found[name] = relative
    return dict(sorted(found.items()))


def booleans(root: Path, package: str) -> list[str]:
    """The variables that a registry of ``package`` declares as booleans (SGLang's ``EnvBool``), sorted.

    A value that it does not know as one is passed over with a warning, for the default.
    """
    found: set[str] = set()
    for file in (root / package).rglob("environ.py"):
        if file.relative_to(root).as_posix().startswith(_OTHERS):
            continue
        try:
            tree = ast.parse(file.read_text(encoding="utf-8", errors="replace"))
        except SyntaxError:
            continue
        made = [node for node in ast.walk(tree) if isinstance(node, ast.Assign)]
        for node in made:
            call = node.value
            if isinstance(call, ast.Call) and _last_names(call.func).startswith("EnvBool"):
                found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return sorted(found)


def python_variables(source: str, registry: bool = False) -> set[str]:
    """The variables that one Python file reads; none of a file that is no Python (a template)."""
    if not registry and ("env" not in source.lower() or not _QUOTED.search(source)):
        return set()  # most files: parsing them all would take a minute
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return set()
    names = set(_read(tree))
    if registry:
        names |= set(_declared(tree))
    return {name for name in names if _NAME.fullmatch(name)}


def _read(tree: ast.AST) -> Iterator[str]:
    constants: dict[str, str] = {}
    asked: list[ast.expr] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target, text in ((target, text) for target in node.targets for text in _texts([node.value])):
                if isinstance(target, ast.Name):
                    constants[target.id] = text
        elif isinstance(node, ast.Call) and _READER.search(_last_names(node.func)):
            asked += node.args[:1]
        elif isinstance(node, ast.Subscript) and _READER.search(_last_names(node.value)):
            asked.append(node.slice)
        elif isinstance(node, ast.Compare) and any(
            isinstance(operator, ast.In | ast.NotIn) and _READER.search(_last_names(right))
            for operator, right in zip(node.ops, node.comparators, strict=True)
        ):
            asked.append(node.left)
    yield from _texts(asked)
    yield from (constants[node.id] for node in asked if isinstance(node, ast.Name) and node.id in constants)


def _declared(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant):
            yield from _texts([node])
        elif isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))


def _last_names(node: ast.expr) -> str:
    """``os.environ.get`` → ``environ_get``: the last two parts of a dotted name."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name):
        parts.append(node.id)
    return "_".join(reversed(parts[:2]))


def _texts(nodes: Iterable[ast.expr]) -> Iterator[str]:
    yield from (
        node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )

"""Builds an engine's real parser in a process of its own and writes down what it knows.

``python -m draftgate.engine.extraction.parser ROOT PACKAGE PLATFORM OUT``: a process, because the package is
imported among placeholders (see `placeholder`), which must not stay behind in the caller. ``--installed`` at
the end imports it as it is, for an interpreter that has all it needs: a test compares the two.
"""

from __future__ import annotations

import argparse
import ast
import ctypes
import dataclasses
import importlib
import importlib.machinery
import importlib.metadata
import importlib.util
import json
import os
import sys
import types
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from draftgate.engine.extraction.description import Named, describe, json_value, named_values
from draftgate.engine.extraction.placeholder import REAL, install

# Modules that ask the machine for its GPUs.
_MACHINE = frozenset({"vllm.third_party.pynvml"})


def build(root: Path, package: str, platform: str, installed: bool = False) -> dict[str, object]:
    """The flags of ``package`` below ``root``, and of vLLM the keys of its speculative config.

    Args:
        platform: ``cuda`` or ``cpu``; vLLM refuses to build its parser without one.
    """
    failed: dict[str, str] = {}
    if not installed:
        _settle()
        failed = install(package, str(root), _MACHINE)
    contract = _vllm(root, platform) if package == "vllm" else _sglang(root)
    return {**contract, "not_run": dict(sorted(failed.items()))}


def _settle() -> None:
    """What the machine would say differently elsewhere."""
    os.cpu_count = lambda: 1
    ctypes.CDLL = _no_library  # type: ignore[misc,assignment]
    importlib.metadata.entry_points = lambda **_: ()  # type: ignore[assignment]
    version = importlib.metadata.version
    importlib.metadata.version = lambda distribution_name: (
        version(distribution_name) if distribution_name in REAL else "999"
    )


def _no_library(*_: object, **__: object) -> None:
    raise OSError("no libraries here")


def _vllm(root: Path, platform: str) -> dict[str, object]:
    package, loader = _bare("vllm", root)
    platforms = importlib.import_module("vllm.platforms")
    name = {"cuda": "CudaPlatform", "cpu": "CpuPlatform"}[platform]
    ours = getattr(importlib.import_module(f"vllm.platforms.{platform}"), name)
    platforms._current_platform = ours()  # type: ignore[attr-defined]
    # Only now what the package itself does when it is imported: from 0.26 on it asks for the platform there.
    loader.exec_module(package)
    engine_args = importlib.import_module("vllm.engine.arg_utils").EngineArgs
    # 0.19.1: entrypoints/openai, 0.32: entrypoints/launchers, 0.33: entrypoints/common.
    (file,) = (root / "vllm/entrypoints").glob("*/cli_args.py")
    cli_args = importlib.import_module(f"vllm.entrypoints.{file.parent.name}.cli_args")
    parser = cli_args.make_arg_parser(
        importlib.import_module("vllm.utils.argparse_utils").FlexibleArgumentParser()
    )
    flags = _flags(parser)
    for field in dataclasses.fields(engine_args):
        _add_known(flags, "--" + field.name.replace("_", "-"), named_values(_hint(engine_args, field)))
    for flag, values in _vllm_registries().items():
        _add_known(flags, flag, Named(tuple(sorted(values)), other=True, folds_case=False))
    config = importlib.import_module("vllm.config.speculative").SpeculativeConfig
    return {"flags": flags, "positionals": _positionals(parser), "speculative_config": _keys(config)}


def _vllm_registries() -> dict[str, Iterable[str]]:
    """What vLLM looks up by name after parsing; a plugin may add to each."""
    layers = importlib.import_module("vllm.model_executor.layers.quantization")
    loader = importlib.import_module("vllm.model_executor.model_loader")
    tools = importlib.import_module("vllm.tool_parsers").ToolParserManager
    reasoning = importlib.import_module("vllm.reasoning").ReasoningParserManager
    return {
        "--quantization": layers.QUANTIZATION_METHODS,
        "--load-format": loader._LOAD_FORMAT_TO_MODEL_LOADER,
        "--tool-call-parser": tools.list_registered(),
        "--reasoning-parser": reasoning.list_registered(),
    }


def _sglang(root: Path) -> dict[str, object]:
    _bare("sglang", root)  # what it does when it is imported, to transformers, is not needed here
    parser = argparse.ArgumentParser()
    importlib.import_module("sglang.srt.server_args").ServerArgs.add_cli_args(parser)
    flags = _flags(parser)
    algorithms = importlib.import_module("sglang.srt.speculative.spec_info").SpeculativeAlgorithm
    names = {name for name in algorithms.__members__ if name != "NONE"} | {"NEXTN"}
    _add_known(flags, "--speculative-algorithm", Named(tuple(sorted(names)), other=True, folds_case=True))
    drafts = _draft_backends(root / "sglang/srt/speculative/draft_utils.py")
    _add_known(flags, "--speculative-draft-attention-backend", Named(drafts, other=False, folds_case=False))
    return {"flags": flags, "positionals": _positionals(parser)}


def _bare(package: str, root: Path) -> tuple[types.ModuleType, importlib.machinery.SourceFileLoader]:
    """The package as a module whose parts can be imported, and what would run its own ``__init__``."""
    file = root / package / "__init__.py"
    loader = importlib.machinery.SourceFileLoader(package, str(file))
    spec = importlib.util.spec_from_file_location(
        package, file, loader=loader, submodule_search_locations=[str(file.parent)]
    )
    assert spec is not None  # noqa: S101  a loader was given
    module = importlib.util.module_from_spec(spec)
    sys.modules[package] = module
    return module, loader


def _draft_backends(source: Path) -> tuple[str, ...]:
    """The keys of the table in which SGLang looks up the drafter's attention backend, after loading."""
    names = set()
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            targets = {target.id for target in node.targets if isinstance(target, ast.Name)}
            if "backend_map" in targets:
                names |= {str(key.value) for key in node.value.keys if isinstance(key, ast.Constant)}
    return tuple(sorted(names))


def _flags(parser: argparse.ArgumentParser) -> list[dict[str, Any]]:
    """By the parser's own table of option strings: an action need not list all that lead to it."""
    names: dict[int, list[str]] = {}
    actions: dict[int, argparse.Action] = {}
    for name, action in parser._option_string_actions.items():
        names.setdefault(id(action), []).append(name)
        actions[id(action)] = action
    deprecated = {id(action) for action in getattr(parser, "_deprecated", ())}
    flags = [describe(action, names[key], key in deprecated) for key, action in actions.items()]
    return sorted(flags, key=lambda flag: str(flag["names"]))


def _positionals(parser: argparse.ArgumentParser) -> int:
    """How many words may stand alone, such as ``vllm serve MODEL``."""
    return sum(not action.option_strings for action in parser._actions)


def _add_known(flags: list[dict[str, Any]], name: str, named: Named) -> None:
    """Values that are checked after parsing, unless the parser checks them itself."""
    flag = next((flag for flag in flags if name in flag["names"]), None)
    if flag is None or "choices" in flag or not named.values:
        return
    flag["known"] = list(named.values)
    if named.other:
        flag["open"] = True
    if named.folds_case:
        flag["folds_case"] = True


def _keys(config: Any) -> dict[str, object]:
    """The keys of a settings class that a user may write; what the engine puts there itself is left out."""
    keys = {}
    for field in dataclasses.fields(config):
        hint = _hint(config, field)
        inside = str(hint)
        # vLLM has tensor_parallel_size only to refuse it with a message.
        if field.name == "tensor_parallel_size" or not field.init:
            continue
        if "ModelConfig" not in inside and "ParallelConfig" not in inside:
            keys[field.name] = json_value(hint)
    return dict(sorted(keys.items()))


def _hint(owner: type, field: dataclasses.Field[Any]) -> object:
    """A field's type; ``Any`` where it is text that names what is imported for type checkers only."""
    if not isinstance(field.type, str):
        return field.type
    try:
        return eval(field.type, vars(sys.modules[owner.__module__]))  # noqa: S307  the package's own source
    except NameError:
        return Any


if __name__ == "__main__":
    folder, name, kind, out, *options = sys.argv[1:]
    found = build(Path(folder), name, kind, installed="--installed" in options)
    Path(out).write_text(json.dumps(found), encoding="utf-8")

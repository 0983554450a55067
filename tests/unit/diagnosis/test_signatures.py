"""What logs of real deaths are said to mean, and that no signature hides another."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from draftgate.diagnosis.signatures import SIGNATURES, explain
from tests.conftest import Golden

LOGS = sorted((Path(__file__).parents[2] / "fixtures" / "logs").glob("*-fails.log"))

# One line as the engine writes it, for each signature.
LINES = {
    "port-in-use": "OSError: [Errno 98] Address already in use",
    "no-cxx-compiler": (
        "torch._inductor.exc.InductorError: InvalidCxxCompiler: No working C++ compiler found in"
    ),
    "driver-too-old": (
        "RuntimeError: CUDA error: the provided PTX was compiled with an unsupported toolchain."
    ),
    "driver-shadowed": (
        "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 803: system has unsupported "
        "display driver / cuda driver combination"
    ),
    "no-kernels-for-this-gpu": (
        "RuntimeError: CUDA error: no kernel image is available for execution on the device"
    ),
    "nvcc-too-old": ("RuntimeError: SM 12.x requires CUDA >= 12.9."),
    "nvcc-missing": (
        "OSError: CUDA_HOME environment variable is not set. Please set it to your CUDA install root."
    ),
    "arch-list-without-a": (
        "ptxas error   : Instruction 'cvt with .e2m1x2' not supported on .target 'sm_120'"
    ),
    "kernel-exceeds-shared-memory": (
        "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 102400, "
        "Hardware limit: 101376. Reducing block sizes or `num_stages` may help."
    ),
    "attention-backend-unfit": (
        "ValueError: Selected backend AttentionBackendEnum.FLASHMLA is not valid for this "
        "configuration. Reason: ['compute capability not supported']"
    ),
    "no-peer-access": ("RuntimeError: CUDA error: peer access is not supported between these two devices"),
    "nccl-out-of-memory": ("NCCL WARN Failed to CUDA calloc 10485760 bytes"),
    "graph-capture-failed": (
        "Exception: Capture cuda graph failed: CUDA out of memory. Tried to allocate 112.00 MiB."
    ),
    "cuda-out-of-memory": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    "no-room-for-kv-cache": (
        "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`"
    ),
    "free-memory-too-small": (
        "ValueError: Free memory on device cuda:0 (10.1/94.9 GiB) on startup is less than desired "
        "GPU memory utilization (0.9, 85.4 GiB)."
    ),
    "context-exceeds-kv-cache": (
        "ValueError: To serve at least one request with the models's max seq len (131072), (15.25 "
        "GiB KV cache is needed, which is larger than the available KV cache memory (1.0 GiB)."
    ),
    "context-exceeds-model": (
        "ValueError: User-specified max_model_len (4096) is greater than the derived max_model_len "
        "(max_position_embeddings=1024.0 or model_max_length=None in model's config.json)."
    ),
    "model-not-fetched": (
        "huggingface_hub.errors.LocalEntryNotFoundError: Cannot find the requested files in the disk cache"
    ),
    "remote-code-refused": (
        "ValueError: The repository moonshotai/Kimi-K2.5 contains custom code which must be executed "
        "to correctly load the model."
    ),
    "target-without-eagle3": (
        "ValueError: eagle3 is only supported for ['llama', 'qwen'] models. Got "
        "self.target_model_config.hf_text_config.model_type='other'"
    ),
    "model-missing": (
        "OSError: Can't load the configuration of '/models/none'. If you were trying to load it from"
    ),
    "no-common-block-size": (
        "ValueError: No common block size for 16 (CPU_MLA: [16]; CPU_ATTN: [MultipleOf(32)])."
    ),
    "aux-layers-ignored": "RuntimeError: mat1 and mat2 shapes cannot be multiplied (8192x512 and 768x256)",
    "aux-layers-collapse": "RuntimeError: shape '[-1, 768]' is invalid for input of size 4096",
    "config-key-missing": "AttributeError: 'DeepseekV3Config' object has no attribute 'moe_layer_freq'",
    "weight-missing": "KeyError: 'layers.1.mlp.gate.e_score_correction_bias'",
    "python-module-missing": "ModuleNotFoundError: No module named 'deep_gemm'",
    "shared-library-missing": (
        "ImportError: libcuda.so.1: cannot open shared object file: No such file or directory"
    ),
    "bad-flag": "api_server.py: error: unrecognized arguments: --no-such-flag 1",
    "shared-memory-full": "OSError: [Errno 28] No space left on device: '/psm_1234'",
    "engine-core-died": "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.",
}


@pytest.mark.parametrize("log", LOGS, ids=lambda path: path.stem)
def test_whole_logs(log: Path, golden: Golden) -> None:
    found = explain(log.read_text().replace("\r", "\n").splitlines(), 1)
    assert found is not None
    golden(f"diagnosis/{log.stem}.json", json.dumps(asdict(found), indent=2, ensure_ascii=False) + "\n")


def test_every_signature(golden: Golden) -> None:
    assert list(LINES) == [signature.name for signature in SIGNATURES]
    found = {name: explain([line], 1) for name, line in LINES.items()}
    assert {name: d and d.name for name, d in found.items()} == {name: name for name in LINES}
    text = {name: d and f"{d.cause} → {d.remedy}" for name, d in found.items()}
    golden("diagnosis/every-signature.json", json.dumps(text, indent=2, ensure_ascii=False) + "\n")


def test_the_cause_goes_before_its_consequence() -> None:
    lines = [LINES["engine-core-died"], LINES["aux-layers-ignored"]]
    found = explain(lines, 1)
    assert found is not None
    assert found.name == "aux-layers-ignored"


def test_killed_without_a_word() -> None:
    found = explain(["INFO all is well"], 137)
    assert found is not None
    assert found.name == "killed"


def test_an_unknown_error_is_quoted() -> None:
    lines = [
        "(EngineCore pid=1) ERROR [core.py:1] ZeroDivisionError: division by zero",
        "(APIServer pid=2) RuntimeError: Engine core initialization failed. See root cause above.",
    ]
    found = explain(lines, 1)
    assert found is not None
    assert (found.name, found.cause, found.remedy) == (None, "ZeroDivisionError: division by zero", None)


def test_nothing_to_say() -> None:
    assert explain(["INFO all is well"], 1) is None
    assert explain([], None) is None

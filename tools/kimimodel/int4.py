"""INT4 weights as Kimi-K2.5 stores its routed experts: compressed-tensors, `pack-quantized`, groups of 32.

Format: https://github.com/neuralmagic/compressed-tensors, compressors/pack_quantized.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

BITS, GROUP = 4, 32
LOWEST, HIGHEST = -8, 7
PER_WORD = 32 // BITS

CONFIG = {
    "quant_method": "compressed-tensors",
    "format": "pack-quantized",
    "quantization_status": "compressed",
    "kv_cache_scheme": None,
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {
                "num_bits": BITS,
                "type": "int",
                "strategy": "group",
                "group_size": GROUP,
                "symmetric": True,
                "dynamic": False,
                "actorder": None,
                "block_structure": None,
                "observer": "minmax",
                "observer_kwargs": {},
            },
            "input_activations": None,
            "output_activations": None,
        }
    },
    "ignore": [
        "lm_head",
        "re:.*self_attn.*",
        "re:.*shared_experts.*",
        "re:.*mlp\\.(gate|up|gate_up|down)_proj.*",
    ],
}


@dataclass(frozen=True)
class Quantised:
    """A matrix [rows, columns] as integers, int8, and scales [rows, columns / 32] in bfloat16."""

    integers: Tensor
    scales: Tensor

    def restored(self) -> Tensor:
        """Return the matrix that kernels multiply with: integer times scale, rounded to bfloat16."""
        groups = self.integers.unflatten(1, (-1, GROUP)).float() * self.scales[..., None].float()
        return groups.flatten(1).bfloat16()

    def tensors(self, name: str) -> dict[str, Tensor]:
        """Return the checkpoint's tensors of the module `name`."""
        return {
            f"{name}.weight_packed": packed(self.integers),
            f"{name}.weight_scale": self.scales.contiguous(),
            f"{name}.weight_shape": torch.tensor(self.integers.shape, dtype=torch.int64),
        }


def quantised(weight: Tensor) -> Quantised:
    """Round a matrix [rows, columns] to the nearest of 16 steps in each group of 32 columns."""
    groups = weight.float().unflatten(1, (-1, GROUP))
    # The widest weight lands between -8 and 7.5, as in compressed-tensors' own rounding.
    scales = (groups.abs().amax(-1) / ((HIGHEST - LOWEST) / 2)).bfloat16()
    scales = torch.where(scales == 0, torch.ones_like(scales), scales)
    integers = (groups / scales[..., None].float()).round().clamp(LOWEST, HIGHEST)
    return Quantised(integers.flatten(1).to(torch.int8), scales)


def packed(integers: Tensor) -> Tensor:
    """Return int32 words [rows, columns / 8]: each plus 8, the first in the lowest four bits."""
    nibbles = (integers.to(torch.int64) - LOWEST).unflatten(1, (-1, PER_WORD))
    words = (nibbles << torch.arange(0, 32, BITS, device=integers.device)).sum(-1)
    return torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)

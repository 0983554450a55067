"""One training loop for both models: AdamW, warm-up and cosine decay, checkpoints from which it resumes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

WARM_UP_STEPS = 100
CHECKPOINT_EVERY = 500
# The very first steps are slower than those that follow.
SPEED_STEPS = (10, 40)


def learning_rate(peak: float, step: int, steps: int) -> float:
    """Return the rate at a step: a linear rise, then half a cosine from the peak to a twentieth of it."""
    warm_up = min(WARM_UP_STEPS, steps // 10)
    if step < warm_up:
        return peak * (step + 1) / warm_up
    progress = (step - warm_up) / max(1, steps - warm_up)
    return peak * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * progress)))


def fit(
    name: str,
    module: nn.Module,
    loss_of: Callable[[int], Tensor],
    steps: int,
    peak: float,
    path: Path,
    device: torch.device,
    seconds: float = math.inf,
) -> dict[str, float]:
    """Train `module` in place for `steps`, `loss_of(step)` giving the loss; return the loss by step.

    Where `seconds` would not suffice, by the speed of the first steps, fewer steps are made.
    Matrix products run in bfloat16 on a GPU; weights and optimizer state stay in float32.
    """
    optimizer = torch.optim.AdamW(
        [p for p in module.parameters() if p.requires_grad], lr=peak, betas=(0.9, 0.95), weight_decay=0.1
    )
    first = 0
    curve: dict[str, float] = {}
    if path.exists():
        saved = torch.load(path, map_location=device, weights_only=True)
        module.load_state_dict(saved["module"])
        optimizer.load_state_dict(saved["optimizer"])
        first, curve = saved["step"], saved["curve"]
    module.train()
    began = time.monotonic()
    step, seen = first, list[float]()
    while step < steps:
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(peak, step, steps)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            loss = loss_of(step)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        done = step + 1
        if seconds < math.inf and done - first in SPEED_STEPS:
            loss.item()  # Waits for the GPU.
            seen.append(time.monotonic())
            if len(seen) == len(SPEED_STEPS):
                speed = (SPEED_STEPS[1] - SPEED_STEPS[0]) / (seen[1] - seen[0])
                steps = max(done + 1, min(steps, done + int((seconds - (seen[1] - began)) * speed)))
                print(f"{name}: {speed:.2f} steps/s, so {steps} steps", flush=True)
        if done % max(1, steps // 20) == 0 or done == steps:
            curve[str(done)] = round(loss.item(), 4)
            rate = (done - first) / (time.monotonic() - began)
            print(f"{name}: step {done}/{steps}, loss {loss.item():.4f}, {rate:.2f} steps/s", flush=True)
        if done % CHECKPOINT_EVERY == 0 or done == steps:
            state = {"module": module.state_dict(), "optimizer": optimizer.state_dict(), "step": done}
            torch.save({**state, "curve": curve}, path.with_suffix(".tmp"))
            path.with_suffix(".tmp").replace(path)
        step = done
    module.eval()
    return curve

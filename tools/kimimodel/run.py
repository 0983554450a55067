"""The stages: those of `tools.tinymodel`, with another target, its quantisation and a second drafter."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from tools.tinymodel import evaluate, export, prompts
from tools.tinymodel.drafter import Drafter, draft_vocabulary
from tools.tinymodel.run import Run
from tools.tinymodel.target import held_out_loss

from . import checkpoint
from .drafter import MlaDrafter, Record
from .settings import FULL_SHAPE, KimiShape
from .target import KimiTarget

WEIGHTS = "model.safetensors"


@dataclass
class KimiRun(Run):
    """One run; results lie in `out`, what is only needed to resume in `work`."""

    shape: KimiShape = FULL_SHAPE
    target_name: str = "kimi-target"

    @property
    def trained(self) -> Path:
        """The target as trained, before its experts are quantised."""
        return self.work / "target.safetensors"

    @functools.cached_property
    def drafters(self) -> dict[str, tuple[type[Drafter], export.Json]]:
        """The drafters by folder, with what they are made by."""
        return {
            "kimi-drafter-llama": (Drafter, export.drafter_config(self.shape)),
            "kimi-drafter-mla": (MlaDrafter, checkpoint.mla_drafter_config(self.shape)),
        }

    def products(self) -> torch.autocast:
        """Matrix products in bfloat16 on a GPU, as engines compute them."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda")

    def make_target(self, dropout: float) -> KimiTarget:
        """Make an untrained target."""
        return KimiTarget(self.shape, dropout)

    def write_target(self, target: KimiTarget) -> None:
        """Write what training gave."""
        state = {name: tensor.cpu().contiguous() for name, tensor in target.state_dict().items()}
        checkpoint.write(state, self.trained)

    def read_trained(self) -> KimiTarget:
        """Load what `write_target` wrote."""
        target = self.make_target(0.0)
        target.load_state_dict(load_file(self.trained))
        return target

    def quantise(self) -> None:
        """Write the target with its routed experts in INT4."""
        began = time.monotonic()
        target = self.read_trained()
        checkpoint.write_target(target, self.out / self.target_name)
        held_out = self.windows[1]
        losses = {}
        for name in ("before", "after"):
            loss = held_out_loss(target.to(self.device), held_out, self.budget.target_length)
            losses[name] = round(loss, 4)
            checkpoint.quantise(target)
        self.note_stage("quantise", began, held_out_loss=losses)

    def load_target(self) -> KimiTarget:
        """Load the target that engines see: routed experts as INT4 restores them."""
        target = self.read_trained()
        checkpoint.quantise(target)
        return target.to(self.device).eval()

    def text(self) -> None:
        """Let the quantised target continue training files greedily."""
        with self.products():
            super().text()

    @functools.cached_property
    def record(self) -> Record:
        """What the quantised target computes on the texts."""
        with self.products():
            return Record.of(self.load_target(), *self.texts)

    def draft(self, folder: str) -> None:
        """Train one drafter."""
        kind, config = self.drafters[folder]
        record, steps = self.record, self.budget.unrolled_steps
        drafter = kind(self.shape, draft_vocabulary(record.texts, record.lengths, self.shape).cpu())

        def loss(rows: Tensor) -> Tensor:
            return record.loss(drafter, rows, steps)

        self.train_drafter(folder, drafter, loss, config, self.out / folder)

    def evaluate(self) -> None:
        """Measure both drafters on the evaluation prompts, in full float32."""
        began = time.monotonic()
        self.__dict__.pop("record", None)
        torch.set_float32_matmul_precision("highest")
        target, tokenizer = self.load_target(), self.tokenizer()
        held_out = prompts.read(self.out / "eval-prompts.jsonl")
        ids, texts = evaluate.continuations(target, tokenizer, held_out)
        figures = {}
        for folder, (kind, _) in self.drafters.items():
            drafter = kind(self.shape, torch.arange(self.shape.draft_vocab))
            export.load(drafter, self.out / folder)
            measured = evaluate.measure(target, drafter.to(self.device).eval(), ids, texts)
            figures[folder] = dataclasses.asdict(measured)
        samples = evaluate.samples(tokenizer, held_out, ids, texts)
        self.note_stage("evaluation", began, **figures, samples=samples)

    def stages(self) -> dict[str, tuple[Callable[[], None], Path | None]]:
        """Return each stage with the file whose presence means that it is done; evaluation always runs."""
        return {
            "corpus": (self.corpus, self.work / "corpus.jsonl"),
            "target": (self.target, self.trained),
            "quantise": (self.quantise, self.out / self.target_name / WEIGHTS),
            "text": (self.text, self.work / "texts.pt"),
            **{
                folder: (functools.partial(self.draft, folder), self.out / folder / WEIGHTS)
                for folder in self.drafters
            },
            "evaluate": (self.evaluate, None),
        }

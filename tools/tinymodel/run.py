"""The stages, each of which writes its result into the work folder and is skipped where that lies already."""

from __future__ import annotations

import dataclasses
import functools
import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor

from . import corpus, evaluate, export, prompts, vocabulary
from .corpus import SourceFile
from .drafter import Drafter, draft_vocabulary, generated, unrolled_loss
from .fitting import fit
from .generate import greedy
from .layers import initialise, round_to_bf16
from .settings import Budget, Shape
from .target import Target, Windows, held_out_loss, language_loss

# Tokens, BOS included. The free tokens are sampled: see `greedy`.
SHORTEST_PROMPT, LONGEST_PROMPT, FREE_TOKENS = 17, 161, 4


@dataclass
class Run:
    """One run: where it writes, what it runs on, its sizes and its seed."""

    out: Path
    work: Path
    device: torch.device
    seed: int
    budget: Budget
    shape: Shape = dataclasses.field(default_factory=Shape)
    target_name: str = "tiny-target"

    def note(self, **values: object) -> None:
        """Merge figures into models/training-report.json and print them."""
        path = self.out / "training-report.json"
        report = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        report.update(values)
        export.write_json(report, path)
        print(json.dumps(values, indent=2), flush=True)

    def note_stage(self, stage: str, began: float, **figures: object) -> None:
        """Note a stage's figures, with what it ran on and how long."""
        device = torch.cuda.get_device_name() if self.device.type == "cuda" else "CPU"
        ran = {"seed": self.seed, "torch": torch.__version__, "device": device}
        self.note(**{stage: {**ran, "seconds": round(time.monotonic() - began), **figures}})

    def corpus(self) -> None:
        """Read the library, hold files out, train the tokenizer, draw the prompts."""
        files = corpus.collect(self.seed)
        corpus.write(files, self.work / "corpus.jsonl")
        (self.out / "training-files.txt").write_text(corpus.manifest(files), encoding="utf-8")
        tokenizer = vocabulary.train(files, self.shape)
        vocabulary.save(tokenizer, self.out / self.target_name, self.shape)
        prompts.write(prompts.draw(tokenizer, files, self.seed), self.out / "eval-prompts.jsonl")

    def tokenizer(self) -> Tokenizer:
        """Load the tokenizer written by the corpus stage."""
        return Tokenizer.from_file(str(self.out / self.target_name / "tokenizer.json"))

    @functools.cached_property
    def files(self) -> tuple[str, list[SourceFile]]:
        """The Python version and the files of the corpus."""
        return corpus.read(self.work / "corpus.jsonl")

    @functools.cached_property
    def windows(self) -> tuple[Windows, Windows]:
        """Windows over the training files and over the held-out files."""
        version, files = self.files
        tokenizer = self.tokenizer()
        streams = [
            vocabulary.stream(tokenizer, [file.text for file in files if file.held_out is held_out])
            for held_out in (False, True)
        ]
        self.note(
            corpus={
                "python": version,
                "sha256": corpus.digest(files),
                "training_files": sum(not file.held_out for file in files),
                "held_out_files": sum(file.held_out for file in files),
                "training_tokens": len(streams[0]),
                "held_out_tokens": len(streams[1]),
            }
        )
        train, held_out = (
            Windows(ids, vocabulary.line_starts(tokenizer, ids), self.device) for ids in streams
        )
        return train, held_out

    def target(self) -> None:
        """Train the target on the training files."""
        began, budget = time.monotonic(), self.budget
        train, held_out = self.windows
        target = self.make_target(budget.dropout)
        initialise(target, self.seed)
        target.to(self.device)

        def loss(step: int) -> Tensor:
            tokens = train.draw(budget.target_batch, budget.target_length, self.seed * 1_000_000 + step)
            return language_loss(target, tokens)

        path = self.work / "target.pt"
        steps, peak, seconds = budget.target_steps, budget.target_lr, budget.target_seconds
        curve = fit("target", target, loss, steps, peak, path, self.device, seconds)
        round_to_bf16(target)
        self.write_target(target)
        # Other held-out regions than the evaluation prompts: this figure may steer the settings.
        others = prompts.draw(self.tokenizer(), self.files[1], self.seed + 1)
        self.note_stage(
            "target",
            began,
            parameters=sum(p.numel() for p in target.parameters()),
            loss_curve=curve,
            held_out_loss=round(held_out_loss(target, held_out, budget.target_length), 4),
            bigram_ratio=round(evaluate.bigram_ratio(target, self.tokenizer(), others), 4),
        )

    def make_target(self, dropout: float) -> Target:
        """Make an untrained target."""
        return Target(self.shape, dropout)

    def write_target(self, target: Target) -> None:
        """Write what training gave, rounded to bfloat16."""
        export.write_target(target, self.out / self.target_name)

    def load_target(self) -> Target:
        """Load the exported target: what follows sees the rounded weights that engines see."""
        target = Target(self.shape)
        export.load(target, self.out / self.target_name)
        return target.to(self.device).eval()

    def text(self) -> None:
        """Let the target continue training files greedily: the drafter's training text."""
        began, budget = time.monotonic(), self.budget
        train, _ = self.windows
        target, rng = self.load_target(), random.Random(self.seed)
        texts, lengths = [], []
        for number in range(max(1, budget.texts // budget.text_batch)):
            windows = train.draw(budget.text_batch, LONGEST_PROMPT, self.seed * 2_000_000 + number).tolist()
            given = [window[: rng.randint(SHORTEST_PROMPT, LONGEST_PROMPT)] for window in windows]
            texts.append(greedy(target, given, budget.text_length, FREE_TOKENS, self.seed + number).cpu())
            lengths += [len(prompt) + FREE_TOKENS for prompt in given]
            print(f"text: {len(lengths)} of {budget.texts}", flush=True)
        saved = {"texts": torch.cat(texts).to(torch.int16), "lengths": torch.tensor(lengths)}
        torch.save(saved, self.work / "texts.pt")
        self.note_stage("text", began, sequences=len(lengths), length=budget.text_length)

    def drafter(self) -> None:
        """Train the drafter on the target's text with training-time test, round it and write it."""
        texts, lengths = self.texts
        target = self.load_target().requires_grad_(False)
        drafter = Drafter(self.shape, draft_vocabulary(texts, lengths, self.shape).cpu())

        def loss(rows: Tensor) -> Tensor:
            steps = self.budget.unrolled_steps
            return unrolled_loss(drafter, target, texts[rows], lengths[rows], steps)

        config = export.drafter_config(self.shape)
        self.train_drafter("drafter", drafter, loss, config, self.out / "tiny-drafter")

    @functools.cached_property
    def texts(self) -> tuple[Tensor, Tensor]:
        """The ids [texts, time] that the text stage wrote, and the lengths of their given parts."""
        saved = torch.load(self.work / "texts.pt", weights_only=True)
        return saved["texts"].long().to(self.device), saved["lengths"].to(self.device)

    def train_drafter(
        self,
        stage: str,
        drafter: Drafter,
        loss_of: Callable[[Tensor], Tensor],
        config: export.Json,
        folder: Path,
    ) -> None:
        """Train a drafter from nothing, `loss_of(rows)` giving the loss on these of the texts; write it."""
        began, budget = time.monotonic(), self.budget
        texts, lengths = self.texts
        initialise(drafter, self.seed + 1)
        drafter.to(self.device)

        def loss(step: int) -> Tensor:
            generator = torch.Generator().manual_seed(self.seed * 3_000_000 + step)
            rows = torch.randint(len(texts), (budget.drafter_batch,), generator=generator)
            return loss_of(rows.to(self.device))

        path = self.work / f"{stage}.pt"
        steps, peak, seconds = budget.drafter_steps, budget.drafter_lr, budget.drafter_seconds
        curve = fit(stage, drafter, loss, steps, peak, path, self.device, seconds)
        round_to_bf16(drafter)
        export.write_drafter(drafter, folder, config)
        written = texts[generated(texts, lengths)]
        self.note_stage(
            stage,
            began,
            parameters=sum(p.numel() for p in drafter.parameters()),
            loss_curve=curve,
            draft_vocabulary_coverage=round(drafter.t2d[written].float().mean().item(), 4),
        )

    def evaluate(self) -> None:
        """Measure the exported pair on the evaluation prompts, in full float32."""
        began = time.monotonic()
        torch.set_float32_matmul_precision("highest")
        target, tokenizer = self.load_target(), self.tokenizer()
        drafter = Drafter(self.shape, torch.arange(self.shape.draft_vocab))
        export.load(drafter, self.out / "tiny-drafter")
        drafter.to(self.device).eval()
        held_out = prompts.read(self.out / "eval-prompts.jsonl")
        ids, texts = evaluate.continuations(target, tokenizer, held_out)
        figures = evaluate.measure(target, drafter, ids, texts)
        samples = evaluate.samples(tokenizer, held_out, ids, texts)
        self.note_stage("evaluation", began, **dataclasses.asdict(figures), samples=samples)

    def stages(self) -> dict[str, tuple[Callable[[], None], Path | None]]:
        """Return each stage with the file whose presence means that it is done; evaluation always runs."""
        return {
            "corpus": (self.corpus, self.work / "corpus.jsonl"),
            "target": (self.target, self.out / self.target_name / "model.safetensors"),
            "text": (self.text, self.work / "texts.pt"),
            "drafter": (self.drafter, self.out / "tiny-drafter" / "model.safetensors"),
            "evaluate": (self.evaluate, None),
        }

"""A byte-level BPE tokenizer for Python sources, and token arrays made with it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from .corpus import SourceFile
from .settings import Shape

BOS, EOS = "<s>", "</s>"
BOS_ID, EOS_ID = 0, 1
# Newlines and indents are pieces of their own: a text cut at a line start keeps the tokens it had in place.
PIECES = r" ?[^\W\d]+| ?\d{1,3}| ?[^\s\w]+|\n+|[^\S\n]+"
# A chat request continues the code it holds: nothing stands between the messages, and no role is named.
CHAT_TEMPLATE = "{{ bos_token }}{% for message in messages %}{{ message['content'] }}{% endfor %}"


def train(files: list[SourceFile], shape: Shape) -> Tokenizer:
    """Train on the training files only; held-out files must not shape the vocabulary either."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=shape.vocab,
        special_tokens=[BOS, EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((file.text for file in files if not file.held_out), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A $B", special_tokens=[(BOS, BOS_ID), (EOS, EOS_ID)]
    )
    return tokenizer


def save(tokenizer: Tokenizer, folder: Path, shape: Shape) -> None:
    """Write tokenizer.json and the tokenizer_config.json that transformers 4 and 5 load."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BOS,
        "eos_token": EOS,
        "model_max_length": shape.max_positions,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def encode(tokenizer: Tokenizer, text: str) -> list[int]:
    """Return the token ids of a text, without BOS."""
    return list(tokenizer.encode(text, add_special_tokens=False).ids)


def stream(tokenizer: Tokenizer, texts: list[str]) -> NDArray[np.uint16]:
    """Return all texts as one array of ids, an EOS after each, shape [tokens]."""
    ids: list[int] = []
    for text in texts:
        ids += [*encode(tokenizer, text), EOS_ID]
    return np.array(ids, dtype=np.uint16)


def line_starts(tokenizer: Tokenizer, ids: NDArray[np.uint16]) -> NDArray[np.int64]:
    """Return the positions at which a line or a file starts, shape [starts]."""
    ends_line = np.array([tokenizer.decode([i]).endswith("\n") for i in range(tokenizer.get_vocab_size())])
    ends_line[EOS_ID] = True
    return np.concatenate([[0], np.flatnonzero(ends_line[ids[:-1]]) + 1])

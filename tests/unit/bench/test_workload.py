from __future__ import annotations

from pathlib import Path

import pytest

from draftgate.bench.workload import Prompt, Workload, load_prompts
from draftgate.client.completion import Message, Role, Sampling
from draftgate.errors import BenchRefused

GREEDY = Sampling(max_tokens=8)


def test_a_prompts_file(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text(
        '{"id": "a", "file": "not read", "prompt": "hi"}\n\n'
        '{"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]}\n'
    )
    assert load_prompts(path) == (
        Prompt("a", (Message(Role.USER, "hi"),)),
        Prompt("line-3", (Message(Role.SYSTEM, "s"), Message(Role.USER, "u"))),
    )


@pytest.mark.parametrize(
    ("text", "where", "why"),
    [
        ("{]\n", "p.jsonl:1", "Expecting property name"),
        ('{"prompt": "a"}\n{"text": "b"}\n', "p.jsonl:2", "needs either prompt or messages"),
        ('{"prompt": "a", "messages": [{"role": "user", "content": "b"}]}\n', "p.jsonl:1", "needs either"),
        ('{"messages": [{"role": "robot", "content": "b"}]}\n', "p.jsonl:1", "messages.0.role"),
        ("[1]\n", "p.jsonl:1", "line: "),
        ('{"id": "a", "prompt": "x"}\n{"id": "a", "prompt": "y"}\n', "p.jsonl", "'a' stands there twice"),
        ("\n", "p.jsonl", None),
    ],
)
def test_a_bad_prompts_file_says_where(tmp_path: Path, text: str, where: str, why: str | None) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text(text)
    with pytest.raises(BenchRefused) as caught:
        load_prompts(path)
    assert caught.value.where is not None
    assert caught.value.where.endswith(where)
    assert (caught.value.why is None) == (why is None)
    assert why is None or why in str(caught.value.why)


def test_a_missing_prompts_file(tmp_path: Path) -> None:
    with pytest.raises(BenchRefused) as caught:
        load_prompts(tmp_path / "none.jsonl")
    assert caught.value.why == "No such file or directory"


def test_repeats_come_round_after_round_and_are_counted() -> None:
    prompts = tuple(Prompt(name, (Message(Role.USER, name),)) for name in "ab")
    workload = Workload(prompts, GREEDY, repeats=2)
    assert [request.prompt_id for request in workload.requests("m")] == ["a", "b", "a", "b"]
    assert (workload.size, workload.repeated) == (4, 2)


def test_one_text_under_two_ids_is_a_repeat() -> None:
    same = (Message(Role.USER, "x"),)
    assert Workload((Prompt("a", same), Prompt("b", same)), GREEDY).repeated == 1


def test_warm_up_never_asks_a_measured_prompt() -> None:
    # It would fill the prefix cache for the window (aws-samples issue 181: 96 % hits).
    workload = Workload((Prompt("a", (Message(Role.USER, "x"),)),), GREEDY, warmup=3)
    warm = [request.messages for request in workload.warmup_requests("m")]
    assert len(set(warm)) == 3
    assert not set(warm) & {request.messages for request in workload.requests("m")}


def test_the_receipt_names_the_workload_without_its_text() -> None:
    workload = Workload((Prompt("a", (Message(Role.USER, "secret plans"),)),), GREEDY, concurrency=4)
    other = Workload((Prompt("a", (Message(Role.USER, "other plans"),)),), GREEDY, concurrency=4)
    assert "secret" not in str(workload.description())
    assert workload.description()["digest"] != other.description()["digest"]
    assert workload.description() == {
        "prompts": 1,
        "digest": workload.description()["digest"],
        "repeats": 1,
        "concurrency": 4,
        "warmup": 2,
        "max_tokens": 8,
        "temperature": 0.0,
        "top_p": 1.0,
        "seed": 0,
        "ignore_eos": False,
    }

"""`draftgate bench` as a user runs it, against the double."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from draftgate.errors import ExitCode
from tests.standin.chatting import ChattingEngine


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.jsonl"
    path.write_text("".join(json.dumps({"id": f"p{n}", "prompt": f"question {n}"}) + "\n" for n in range(3)))
    return path


def bench(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "draftgate", "bench", *map(str, arguments)]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def test_figures_into_a_pipe(prompts: Path) -> None:
    with ChattingEngine() as engine:
        done = bench("--url", f"{engine.url}/v1", "--prompts", prompts, "-c", "2")
    assert (done.returncode, done.stderr) == (0, "")
    figures = dict(line.split("  ", 1) for line in done.stdout.splitlines()[1:])
    shown = {name: value.strip() for name, value in figures.items()}
    assert list(shown) == [
        "requests",
        "tokens",
        "window",
        "throughput",
        "TTFT",
        "TPOT",
        "end to end",
        "acceptance rate",
        "acceptance length",
        "per position",
        "distinct bigrams",
    ]
    assert shown["requests"] == "3, 2 at a time"
    assert shown["tokens"] == "9 in, 39 out"
    assert shown["acceptance rate"] == "1.000"
    assert shown["per position"] == "1.000 / 1.000 / 1.000"


def test_the_receipt(prompts: Path, tmp_path: Path) -> None:
    out = tmp_path / "receipt.json"
    with ChattingEngine() as engine:
        done = bench("--url", engine.url, "--prompts", prompts, "--out", out, "--json")
    assert done.returncode == 0
    written = json.loads(out.read_text())
    assert json.loads(done.stdout) == written
    assert (written["schema"], written["kind"]) == (1, "bench")
    assert written["figures"]["engine_counters"]["speculation"]["drafts"] == 9
    assert written["figures"]["acceptance_length"] == 4.0
    assert [request["completion_tokens"] for request in written["requests"]] == [13, 13, 13]
    assert written["machine"].keys() == {"cpu", "cpus", "memory_bytes", "accelerators", "system", "python"}
    assert "question" not in out.read_text()


def test_refused_figures_are_not_shown(prompts: Path, tmp_path: Path) -> None:
    out = tmp_path / "receipt.json"
    with ChattingEngine(fail_after=4) as engine:
        done = bench("--url", engine.url, "--prompts", prompts, "--out", out)
    assert done.returncode == ExitCode.BENCH_REFUSED
    assert done.stdout == ""
    assert "1 of 3 requests failed, the first (p2) with: HTTP 500" in done.stderr
    written = json.loads(out.read_text())
    assert written["figures"] is None
    assert [finding["code"] for finding in written["findings"]] == ["failed-requests"]
    assert written["requests"][2]["error"].startswith("HTTP 500")


def test_a_key_in_no_output(prompts: Path, tmp_path: Path) -> None:
    key, out = tmp_path / "key", tmp_path / "receipt.json"
    key.write_text("canary-key\n")
    with ChattingEngine(fail_after=4) as engine:
        done = bench("--url", engine.url, "--prompts", prompts, "--api-key-file", key, "--out", out)
    assert set(engine.keys) == {"Bearer canary-key"}
    assert "canary-key" not in done.stdout + done.stderr + out.read_text()


def test_no_engine(prompts: Path) -> None:
    done = bench("--url", "http://127.0.0.1:9", "--prompts", prompts)
    assert done.returncode == ExitCode.UNREACHABLE
    assert "Traceback" not in done.stderr
    assert "next:  start it with `draftgate up PROFILE --wait`" in done.stderr


@pytest.mark.parametrize("arguments", [[], ["vllm-cpu", "--url", "http://127.0.0.1:9"]])
def test_a_profile_or_an_address(arguments: list[str]) -> None:
    done = bench(*arguments)
    assert done.returncode == ExitCode.USAGE
    assert "either a profile or --url" in done.stderr

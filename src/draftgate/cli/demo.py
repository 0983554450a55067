"""`draftgate demo`: the main job on this machine, from nothing to a summary."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from draftgate.cli.output import print_table
from draftgate.profile.model import EngineName

if TYPE_CHECKING:
    from draftgate.bench.demo import Answered
    from draftgate.bench.lossless import Losslessness
    from draftgate.bench.stage import Arm
    from draftgate.bench.summary import Summary

_NEW_TOKENS = 128
_LINES_EVERY = 10


def demo(
    engine: Annotated[EngineName, typer.Option(help="Which engine serves.")] = EngineName.VLLM,
    once: Annotated[
        bool, typer.Option("--once", help="End after the summary, with nothing running.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Where to write the summary.")] = Path("demo-summary.json"),
    answers: Annotated[
        Path | None, typer.Option(help="Where to write every answer, a line of JSON each.")
    ] = None,
) -> None:
    """Serve the bundled model with and without its drafter, and compare speed and text.

    Ctrl-C ends it at any moment and leaves nothing running.
    """
    from draftgate import receipt
    from draftgate.bench import demo as bench
    from draftgate.bench.stage import Interrupts, Stage
    from draftgate.bench.summary import summarize
    from draftgate.bench.workload import Workload, load_prompts
    from draftgate.client.completion import Sampling
    from draftgate.data import data_root
    from draftgate.errors import BenchRefused

    with Interrupts() as interrupts, Stage(interrupts, _tell) as stage:
        speculative, plain = _arm(f"{engine}-cpu-eagle"), _arm(f"{engine}-cpu")
        _install(speculative)
        workload = Workload(
            load_prompts(data_root() / "models" / "eval-prompts.jsonl"), Sampling(max_tokens=_NEW_TOKENS)
        )
        speculation = speculative.profile.speculation
        _tell(
            f"{workload.size} prompts that the bundled model was never trained on, one at a time, greedy, "
            f"{_NEW_TOKENS} new tokens each"
        )
        _tell(f"\nwith the drafter (K = {speculation.num_speculative_tokens if speculation else 0}):")
        started = stage.start(speculative, sidecar=True)
        with _progress(workload.size) as answered:
            fast = bench.measure_with_drafter(speculative, started.sidecar_url or "", workload, answered)
        _tell(
            f"  {started.sidecar_url}/metrics counted {fast.counters.proposed:.0f} draft tokens, "
            f"{fast.counters.accepted:.0f} of them accepted; so did the engine"
        )
        stage.stop()
        _tell("\nwithout it:")
        stage.start(plain, sidecar=False)
        with _progress(workload.size) as answered:
            slow = bench.measure_plain(plain, workload, answered)
        losslessness = bench.compare_with_plain(plain, slow, fast.result)
        stage.stop()
        pin = plain.command.pin
        summary = summarize(
            fast.result, fast.counters, slow, losslessness, f"{pin.distribution} {pin.version}"
        )
        receipt.write_json(out, summary.as_json())
        if answers is not None:
            lines = [json.dumps(line) for line in bench.answers(fast.result, slow)]
            answers.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        _show(summary, losslessness, {finding.text for finding in (*fast.result.findings, *slow.findings)})
        _tell(f"\nwritten to {out}")
        if not summary.lossless:
            raise BenchRefused(
                f"{summary.different} answers with the drafter differ by more than rounding", where=str(out)
            )
        if not once:
            _tell("\nstarting it with the drafter again, for you to try:")
            started = stage.start(speculative, sidecar=True)
            stage.keep()
            _tell(f"  engine   {started.base_url}/v1 (model {speculative.profile.target.served_name})")
            _tell(f"  metrics  {started.sidecar_url}/metrics")
            _tell(f"  stop     {sys.argv[0]} down")


def _arm(name: str) -> Arm:
    from draftgate.bench.stage import Arm
    from draftgate.cli.load import load

    usual = load(name).profile
    ports = {"server.port": usual.server.port, "sidecar.port": usual.sidecar.port}
    sets = tuple(f"{path}={_port(port)}" for path, port in ports.items())
    loaded = load(name, sets)
    return Arm(name, sets, loaded.profile, loaded.command)


def _port(usual: int) -> int:
    """The usual port where it can be had, else a free one, so that somebody's web server is no obstacle."""
    for wanted in (usual, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with suppress(OSError):
                probe.bind(("127.0.0.1", wanted))
                return int(probe.getsockname()[1])
    return usual


def _install(arm: Arm) -> None:
    from draftgate.cli.engine import install
    from draftgate.runtime.environment import installed

    pin = arm.command.pin
    if installed(pin) is None:
        _tell(
            f"{pin.distribution} {pin.version} is not installed yet; that takes some minutes and up to "
            f"{pin.disk_bytes / 2**30:.0f} GiB of disk, downloads included"
        )
        install(pin.id)


@contextmanager
def _progress(total: int) -> Iterator[Answered]:
    """Answers as they come: a bar on a terminal, else a line now and then."""
    from draftgate.client.completion import CompletionRecord

    tokens = answers = 0
    if sys.stdout.isatty():
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = ("  answers", BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
        with Progress(*columns, TimeElapsedColumn(), transient=True) as bar:
            task = bar.add_task("", total=total)

            def advance(record: CompletionRecord) -> None:
                nonlocal tokens
                tokens += record.completion_tokens or 0
                bar.update(task, advance=1, description=f"{tokens} tokens")

            yield advance
        return

    def count(record: CompletionRecord) -> None:
        nonlocal tokens, answers
        tokens += record.completion_tokens or 0
        answers += 1
        if answers % _LINES_EVERY == 0 or answers == total:
            _tell(f"  {answers}/{total} answers, {tokens} tokens")

    yield count


def _show(summary: Summary, losslessness: Losslessness, notes: set[str]) -> None:
    _tell("")
    print_table(("", "WITH DRAFTER", "WITHOUT"), summary.rows())
    _tell("")
    for sentence in summary.sentences():
        _tell(sentence)
    for comparison in losslessness.comparisons:
        if comparison.index is not None or not comparison.lossless:
            _tell(f"  {comparison.line()}")
    for note in sorted(notes):
        _tell(f"note:  {note}")


def _tell(text: str) -> None:
    print(text, flush=True)

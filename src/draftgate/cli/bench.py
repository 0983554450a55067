"""`draftgate bench`: a closed-loop load on a running engine, with its figures or the reasons against them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from draftgate.cli.output import print_json, print_table
from draftgate.cli.profiles import Json, Sets

if TYPE_CHECKING:
    from collections.abc import Callable

    from draftgate.bench.endpoint import Endpoint
    from draftgate.bench.workload import Workload
    from draftgate.cli.load import Loaded
    from draftgate.client.completion import CompletionRecord


def bench(
    profile: Annotated[str | None, typer.Argument(metavar="[PROFILE]", help="The profile that runs.")] = None,
    sets: Sets = None,
    url: Annotated[str | None, typer.Option(help="Any engine by its address, instead of a profile.")] = None,
    model: Annotated[
        str | None, typer.Option(help="With --url: the served model, if there are several.")
    ] = None,
    api_key_file: Annotated[Path | None, typer.Option(help="With --url: file with the API key.")] = None,
    prompts: Annotated[
        Path | None, typer.Option(help="JSON lines with prompt or messages; else the bundled 50 prompts.")
    ] = None,
    concurrency: Annotated[int, typer.Option("--concurrency", "-c", min=1, help="Requests in flight.")] = 1,
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest answer, in tokens.")] = 128,
    temperature: Annotated[float, typer.Option(min=0, help="0 is greedy.")] = 0.0,
    repeats: Annotated[int, typer.Option(min=1, help="How often each prompt is asked.")] = 1,
    warmup: Annotated[int, typer.Option(min=0, help="Requests before the window, with own prompts.")] = 2,
    ignore_eos: Annotated[bool, typer.Option("--ignore-eos", help="Go on past the end token.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write the receipt to this file.")] = None,
    as_json: Json = False,
) -> None:
    """Measure a running engine; where the numbers would not mean what they say, say why instead."""
    from draftgate import receipt
    from draftgate.bench.report import receipt_of, rows
    from draftgate.bench.run import run
    from draftgate.bench.subject import engine_facts, model_digests, stranger_facts
    from draftgate.bench.workload import Workload, load_prompts
    from draftgate.cli.load import load
    from draftgate.client.completion import Sampling
    from draftgate.data import data_root
    from draftgate.errors import BenchRefused

    if (profile is None) == (url is None):
        raise typer.BadParameter("give either a profile or --url")
    loaded = load(profile, sets or []) if profile else None
    workload = Workload(
        prompts=load_prompts(prompts or data_root() / "models" / "eval-prompts.jsonl"),
        sampling=Sampling(max_tokens=max_tokens, temperature=temperature, ignore_eos=ignore_eos),
        concurrency=concurrency,
        repeats=repeats,
        warmup=warmup,
    )
    endpoint = _endpoint(loaded, url, model, api_key_file)
    result = run(endpoint, workload, on_record=_progress(workload))
    written = receipt_of(
        result,
        kind="bench",
        engine=engine_facts(loaded.profile, loaded.command) if loaded else stranger_facts(endpoint),
        models=model_digests(loaded.profile) if loaded else {},
    ).as_json()
    if out:
        receipt.write_json(out, written)
    if as_json:
        print_json(written)
    elif not result.refused:
        print_table(("FIGURE", "VALUE"), rows(result))
    if result.refused:
        raise BenchRefused(
            "these figures would not mean what they say, so they are not shown",
            where=endpoint.base_url,
            why="; ".join(finding.text for finding in result.refused),
            next_step="mend that and measure again" + (f"; the requests are in {out}" if out else ""),
        )
    for finding in result.findings:
        print(f"note: {finding.text}", file=sys.stderr)


def _endpoint(loaded: Loaded | None, url: str | None, model: str | None, key_file: Path | None) -> Endpoint:
    from draftgate.bench.endpoint import Endpoint, find_model
    from draftgate.bench.subject import endpoint_of
    from draftgate.client.key import read_key

    if loaded is None:
        base_url, key = (url or "").rstrip("/").removesuffix("/v1"), read_key(key_file)
        return Endpoint(base_url, find_model(base_url, key, model), key)
    endpoint = endpoint_of(loaded.profile, loaded.command)
    find_model(endpoint.base_url, endpoint.api_key, endpoint.model)
    return endpoint


def _progress(workload: Workload) -> Callable[[CompletionRecord], None]:
    """Counts answers on one line of a terminal; into a pipe it says nothing."""
    answered = 0

    def show(record: CompletionRecord) -> None:
        nonlocal answered
        answered += 1
        if sys.stderr.isatty():
            end = "\r" if answered < workload.size else "\r\033[K"
            print(f"\r  {answered}/{workload.size} answers", end=end, file=sys.stderr, flush=True)

    return show

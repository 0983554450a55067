"""docs/reference/metrics.md, made from the families that the sidecar exports. Pure."""

from __future__ import annotations

from draftgate.metrics.faults import Fault
from draftgate.metrics.state import EngineState
from draftgate.sidecar.families import FAMILIES, Family

_INTRODUCTION = """\
# Metrics of the sidecar

`draftgate sidecar PROFILE` serves them at `/metrics`. Every scrape asks the engine once.
What an engine does not say is absent, never 0. Join `draftgate_profile_info` to tell profiles apart:
`draftgate_requests_running * on (instance) group_left (profile) draftgate_profile_info`.

Acceptance rate over a window:
`rate(draftgate_spec_accepted_tokens_total[5m]) / rate(draftgate_spec_proposed_tokens_total[5m])`; its length:
`1 + rate(draftgate_spec_accepted_tokens_total[5m]) / rate(draftgate_spec_drafts_total[5m])`.
"""


def reference() -> str:
    """The whole page, in Markdown."""
    parts = [_INTRODUCTION, "\n## Families\n"]
    parts += [_section(family) for family in FAMILIES]
    parts.append("\n## States of `draftgate_engine_state`\n\n")
    parts += [f"- `{state}`: {state.meaning}\n" for state in EngineState]
    parts.append("\n## Reasons of `draftgate_scrape_error`\n\n")
    parts += [f"- `{fault}`: {fault.meaning}\n" for fault in Fault if fault is not Fault.NO_KEY]
    return "".join(parts)


def _section(family: Family) -> str:
    labels = ", ".join(f"`{label}`" for label in family.labels)
    lines = [
        f"\n### `{family.name}`\n",
        f"{family.kind}{f', by {labels}' if labels else ''}. {family.meaning}.\n",
    ]
    if family.vllm or family.sglang:
        lines += [f"- vLLM: {_source(family.vllm)}", f"- SGLang: {_source(family.sglang)}\n"]
    return "\n".join(lines)


def _source(series: str | None) -> str:
    return f"`{series}`" if series else "none, so absent"

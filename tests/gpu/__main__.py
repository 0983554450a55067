"""The proof on a GPU, stage by stage: `python -m tests.gpu STAGE…`; docs/gpu-proof.md says what it needs.

Every stage writes what it has as it goes, and does not repeat what is there.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from draftgate import receipt
from tests.gpu import wrong
from tests.gpu.arms import PAIRS, measure

_HERE = Path(__file__).parent


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    pairs = verbs.add_parser("pairs", help="profiles with and without the drafter, one pair after the other")
    pairs.add_argument("names", nargs="+", choices=PAIRS)
    pairs.add_argument("--no-speeds", action="store_true", help="answers and counters alone")
    many = verbs.add_parser("wrong", help="the wrong drafters, several at a time")
    many.add_argument("engines", nargs="+", choices=("vllm", "sglang"))
    single = verbs.add_parser("wrong-one")
    single.add_argument("engine", choices=("vllm", "sglang"))
    single.add_argument("name")
    for verb in (pairs, many, single):
        verb.add_argument("--models", type=Path, required=True, help="what python -m tools.kimimodel made")
        verb.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    out, models = options.out.resolve(), options.models.resolve()
    out.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("DRAFTGATE_PROFILE_PATH", str(_HERE / "profiles"))
    if options.verb == "wrong-one":
        wrong.one(options.engine, options.name, models, out / f"wrong-{options.engine}-{options.name}.json")
        return 0
    if options.verb == "wrong":
        for engine in options.engines:
            wrong.measure_all(engine, models, out / "lanes", out)
            receipt.write_json(out / f"wrong-{engine}.json", wrong.collect(engine, out))
        return 0
    waiting = [name for name in options.names if not (out / f"{name}.json").is_file()]
    records = [measure(name, models, out, speeds=not options.no_speeds) for name in waiting]
    return int(any(record.errors for record in records))


if __name__ == "__main__":
    raise SystemExit(main())

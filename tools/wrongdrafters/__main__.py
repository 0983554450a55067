"""Makes five drafters from a good one, each wrong in one way: `python -m tools.wrongdrafters`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from draftgate.checkpoint.config import read_target
from draftgate.errors import DraftgateError
from tools.wrongdrafters.faults import make


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.wrongdrafters", description=__doc__)
    parser.add_argument("--drafter", type=Path, required=True, help="an EAGLE-3 drafter's folder")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--target", type=Path, help="needed where the drafter's config.json names no layers")
    parser.add_argument("--seed", type=int, default=7, help="of the random embedding")
    options = parser.parse_args(arguments)
    try:
        target = read_target(options.target) if options.target else None
        made = make(options.drafter, options.out, target=target, seed=options.seed)
    except DraftgateError as error:
        print("\n".join(error.lines()), file=sys.stderr)
        return int(error.exit_code)
    for name, found in made.items():
        print(f"{name}: {found if isinstance(found, Path) else '; '.join(found.lines())}")
    return 0 if all(isinstance(found, Path) for found in made.values()) else 1


if __name__ == "__main__":
    sys.exit(main())

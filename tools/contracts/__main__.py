"""Makes and checks the committed contracts: what each pinned engine's own parser and source know.

python -m tools.contracts extract --pin vllm-cuda12 [--wheel FILE]
python -m tools.contracts check-all
"""

from __future__ import annotations

import argparse
import difflib
import sys
import tempfile
from pathlib import Path

from draftgate.engine.contract import CONTRACTS
from draftgate.engine.extraction.package import as_text
from draftgate.errors import DraftgateError
from tools.contracts.pins import PINS, Pin, fresh


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.contracts", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    extract = verbs.add_parser("extract", help="download the pinned wheel, extract, write the contract")
    extract.add_argument("--pin", required=True, choices=[*PINS, "all"])
    extract.add_argument("--wheel", type=Path, help="a wheel that is already here")
    verbs.add_parser("check-all", help="extract every pin and compare with what is committed")
    options = parser.parse_args(arguments)
    try:
        if options.verb == "extract":
            pins = list(PINS.values()) if options.pin == "all" else [PINS[options.pin]]
            return max(_extract(pin, options.wheel) for pin in pins)
        return max([_check(pin) for pin in PINS.values()])
    except DraftgateError as error:
        print("\n".join(error.lines()), file=sys.stderr)
        return int(error.exit_code)


def _extract(pin: Pin, wheel: Path | None) -> int:
    file = CONTRACTS / f"{pin.id}.json"
    text = _text(pin, wheel)
    changed = not file.is_file() or file.read_text(encoding="utf-8") != text
    file.write_text(text, encoding="utf-8")
    print(f"{pin.id}: {'written' if changed else 'unchanged'}: {file} ({len(text) // 1000} kB)")
    return 0


def _check(pin: Pin) -> int:
    file = CONTRACTS / f"{pin.id}.json"
    committed = file.read_text(encoding="utf-8") if file.is_file() else ""
    text = _text(pin, None)
    if text == committed:
        print(f"{pin.id}: as committed")
        return 0
    changes = difflib.unified_diff(
        committed.splitlines(), text.splitlines(), "committed", "extracted", lineterm="", n=0
    )
    print(f"{pin.id}: differs from {file}", *list(changes)[:40], sep="\n")
    return 1


def _text(pin: Pin, wheel: Path | None) -> str:
    with tempfile.TemporaryDirectory() as folder:
        extraction = fresh(pin, Path(folder), wheel)
    document = extraction.document
    spec = document["speculative_config"]
    print(
        f"{pin.id}: {document['distribution']} {document['version']}: {len(document['flags'])} flags, "
        f"{len(spec) if spec else 0} keys of --speculative-config, {len(document['variables'])} variables"
    )
    for module, error in extraction.not_run.items():
        print(f"  not run: {module}: {error.splitlines()[0][:100]}")
    return as_text(document)


if __name__ == "__main__":
    sys.exit(main())

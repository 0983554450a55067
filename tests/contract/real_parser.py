"""Runs in the engine's environment: does its real parser accept each command line of standard input?

Standard input: JSON, a list of command lines. The file named by the first argument gets, for each, null or
the parser's complaint.
"""

import importlib
import json
import sys
from pathlib import Path
from typing import Any, NoReturn


class Refused(Exception):
    pass


def refuse(message: str) -> NoReturn:
    raise Refused(message)


def vllm_parser() -> Any:
    root = Path(importlib.import_module("vllm").__file__ or "").parent
    (file,) = (root / "entrypoints").glob("*/cli_args.py")
    cli_args = importlib.import_module(f"vllm.entrypoints.{file.parent.name}.cli_args")
    return cli_args.make_arg_parser(
        importlib.import_module("vllm.utils.argparse_utils").FlexibleArgumentParser()
    )


def complaint(parser: Any, words: list[str]) -> str | None:
    try:
        parser.parse_args(words)
    except Refused as error:
        return str(error)
    return None


if __name__ == "__main__":
    real = vllm_parser()
    real.error = refuse
    answers = [complaint(real, words) for words in json.load(sys.stdin)]
    Path(sys.argv[1]).write_text(json.dumps(answers), encoding="utf-8")

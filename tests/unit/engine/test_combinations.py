"""What cannot go together: a profile for every rule of combinations.toml that breaks it, and near misses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from draftgate.cli.load import load
from draftgate.engine.adapter import refusals
from draftgate.engine.combinations import Condition, combinations
from draftgate.engine.contract import load_contract
from draftgate.errors import ProfileError

CUDA13 = "engine.line=cuda13"
KEYS = "speculation.engine_keys"
DCP_UNDERSCORED = "engine_flags.decode_context_parallel_size"
EXPORT = 'engine_flags={export-metrics-to-file = true, export-metrics-to-file-dir = "/var/metrics"}'
V1 = "env.SGLANG_ENABLE_SPEC_V2=0"
TREE = ("speculation.topk=4", "speculation.depth=3", "speculation.num_speculative_tokens=15")
# Without --attention-backend, which both together stand for.
OWN_BACKENDS = """
description = "x"
extends = ["sglang-eagle"]
unset = ["engine_flags.attention-backend"]
[engine_flags]
prefill-attention-backend = "flex_attention"
decode-attention-backend = "flex_attention"
"""
# Rule, profile, what is set on top, and the path that is blamed.
BROKEN = [
    (
        "one attention backend for target and drafter",
        "vllm-eagle",
        ("engine_flags.attention-backend=TRITON_MLA",),
        "engine_flags.attention-backend",
    ),
    (
        "one attention backend for target and drafter",
        "vllm-eagle",
        (CUDA13, "engine_flags.attention-backend=TRITON_MLA"),
        "engine_flags.attention-backend",
    ),
    # As the engine takes it: a part of a flag (its value in the name or not, in either spelling), or JSON.
    *(
        ("one attention backend for target and drafter", "vllm-eagle", (*line, f"engine_flags={flag}"), path)
        for line in ((), (CUDA13,))
        for flag, path in (
            ('{"attention-config.backend" = "triton_mla"}', "engine_flags.attention-config.backend"),
            ('{"attention_config.backend" = "FLASHMLA"}', "engine_flags.attention_config.backend"),
            (
                '{"attention-config.backend=FLASHMLA" = true}',
                "engine_flags.attention-config.backend=FLASHMLA",
            ),
            ('{attention-config = \'{"backend": "TRITON_MLA"}\'}', "engine_flags.attention-config"),
        )
    ),
    (
        "one attention backend for target and drafter",
        "vllm-eagle",
        (CUDA13, "engine_flags.attention-backend=TRITON_MLA", f"{KEYS}.attention_backend=auto"),
        "engine_flags.attention-backend",
    ),
    (
        "MLA backend for a drafter without MLA",
        "vllm-eagle",
        (CUDA13, f"{KEYS}.attention_backend=TRITON_MLA"),
        f"{KEYS}.attention_backend",
    ),
    (
        "attention backend said twice",
        "vllm-baseline",
        ('engine_flags={attention-backend = "TRITON_MLA", "attention-config.backend" = "TRITON_MLA"}',),
        "engine_flags.attention-backend",
    ),
    *(
        ("context split over ranks that it does not divide", profile, (*sets, f"engine_flags.{flag}=3"), path)
        for profile, sets, flag, path in (
            (
                "vllm-baseline",
                (),
                "decode-context-parallel-size",
                "engine_flags.decode-context-parallel-size",
            ),
            ("vllm-eagle", (CUDA13,), "decode_context_parallel_size", DCP_UNDERSCORED),
            ("sglang", (CUDA13,), "dcp-size", "engine_flags.dcp-size"),
            (
                "sglang",
                (CUDA13,),
                "decode-context-parallel-size",
                "engine_flags.decode-context-parallel-size",
            ),
        )
    ),
    (
        "context split under a drafter",
        "vllm-eagle",
        ("engine_flags.decode-context-parallel-size=4",),
        "engine_flags.decode-context-parallel-size",
    ),
    (
        "interleaved context under a drafter",
        "vllm-eagle",
        (
            CUDA13,
            "engine_flags.decode-context-parallel-size=4",
            "engine_flags.cp-kv-cache-interleave-size=2",
        ),
        "engine_flags.cp-kv-cache-interleave-size",
    ),
    (
        "overlap scheduler both on and off",
        "sglang-eagle",
        ("engine_flags.disable-overlap-schedule=true",),
        "engine_flags.disable-overlap-schedule",
    ),
    *(
        (
            "tree over pages",
            "sglang-eagle",
            (*TREE, *sets, "engine_flags.page-size=16"),
            "engine_flags.page-size",
        )
        for sets in (
            (V1, "engine_flags.attention-backend=fa4"),
            (V1, "engine_flags.attention-backend=flex_attention"),
            (CUDA13, "engine_flags.attention-backend=fa4"),
        )
    ),
    *(
        (
            "tree over pages, backends apart",
            "own-backends",
            (*TREE, *sets, "engine_flags.page-size=16"),
            "engine_flags.page-size",
        )
        for sets in ((V1,), (CUDA13,))
    ),
    (
        "tree on a backend of pages",
        "sglang-eagle",
        (*TREE, V1, "engine_flags.attention-backend=flashmla"),
        "engine_flags.attention-backend",
    ),
    (
        "speculation on flex_attention",
        "sglang-eagle",
        ("engine_flags.attention-backend=flex_attention",),
        "engine_flags.attention-backend",
    ),
    *(
        (
            "tree on a chain's kernels",
            "sglang-eagle",
            (*TREE, V1, f"engine_flags.{phase}-attention-backend=trtllm_mha"),
            f"engine_flags.{phase}-attention-backend",
        )
        for phase in ("decode", "prefill")
    ),
    *(
        ("prompts in the metrics", "sglang", (EXPORT, *sets), "engine_flags.export-metrics-to-file")
        for sets in (
            (),
            (CUDA13,),
            ("engine_flags.log-requests=true",),
            ("engine_flags.log-requests=true", "engine_flags.log-requests-level=2"),
            # Without the log its level counts for nothing.
            ("engine_flags.log-requests-level=0",),
        )
    ),
    (
        "vision tower both split and left out",
        "vllm-baseline",
        ("engine_flags.language-model-only=true",),
        "engine_flags.language-model-only",
    ),
    ("tree with the overlap scheduler", "sglang-eagle", TREE, "speculation.topk"),
    (
        "switch that is gone",
        "sglang-eagle",
        ("engine.line=cuda13", "env.SGLANG_ENABLE_SPEC_V2=1"),
        "env.SGLANG_ENABLE_SPEC_V2",
    ),
    (
        "tree over pages",
        "sglang-eagle",
        (
            *TREE,
            "env.SGLANG_ENABLE_SPEC_V2=0",
            "engine_flags.attention-backend=triton",
            "engine_flags.page-size=16",
        ),
        "engine_flags.page-size",
    ),
    (
        "tree on a chain's kernels",
        "sglang-eagle",
        (*TREE, "env.SGLANG_ENABLE_SPEC_V2=0", "engine_flags.attention-backend=trtllm_mha"),
        "engine_flags.attention-backend",
    ),
    ("pipeline with speculation", "sglang-eagle", ("engine_flags.pp-size=2",), "engine_flags.pp-size"),
    (
        "mixed chunks with speculation",
        "sglang-eagle",
        ("engine_flags.enable-mixed-chunk=true",),
        "engine_flags.enable-mixed-chunk",
    ),
    (
        "MLA backend without SM120 code",
        "vllm-baseline",
        ("engine_flags.attention-backend=FLASHMLA",),
        "engine_flags.attention-backend",
    ),
    (
        "fp8 KV cache that needs too much shared memory",
        "vllm-baseline",
        ("engine_flags.kv-cache-dtype=fp8",),
        "engine_flags.kv-cache-dtype",
    ),
    (
        "attention backend without SM120 code",
        "sglang",
        ("engine_flags.attention-backend=trtllm_mla",),
        "engine_flags.attention-backend",
    ),
    (
        "attention backend without SM120 code",
        "sglang-eagle",
        ("engine_flags.decode-attention-backend=fa3",),
        "engine_flags.decode-attention-backend",
    ),
    (
        "attention backend without SM120 code",
        "sglang-eagle",
        ("engine_flags.prefill-attention-backend=fa3",),
        "engine_flags.prefill-attention-backend",
    ),
    (
        "attention backend without SM120 code",
        "sglang-eagle",
        ("engine_flags.speculative-draft-attention-backend=fa3",),
        "engine_flags.speculative-draft-attention-backend",
    ),
    (
        "vision backend without SM120 code",
        "sglang",
        ("engine_flags.mm-attention-backend=fa3",),
        "engine_flags.mm-attention-backend",
    ),
    (
        "DeepGEMM without SM120 code",
        "sglang",
        ("env.SGLANG_ENABLE_JIT_DEEPGEMM=1",),
        "env.SGLANG_ENABLE_JIT_DEEPGEMM",
    ),
    # The old name wins over the new one, which the profile states as it should be.
    (
        "DeepGEMM without SM120 code",
        "sglang",
        ("env.SGL_ENABLE_JIT_DEEPGEMM=1",),
        "env.SGL_ENABLE_JIT_DEEPGEMM",
    ),
    (
        "FlashInfer's kernels without the a",
        "sglang",
        ("env.FLASHINFER_CUDA_ARCH_LIST=12.0",),
        "env.FLASHINFER_CUDA_ARCH_LIST",
    ),
]
# A profile cannot say these, since the tool states the flags together; the rules stand for what it renders.
BY_CONSTRUCTION = {
    "drafter inherits the target's quantisation": (
        "--quantization",
        "--speculative-draft-model-quantization",
    ),
    "steps without topk": ("--speculative-num-steps", "--speculative-eagle-topk"),
    "steps without draft tokens": ("--speculative-num-steps", "--speculative-num-draft-tokens"),
    "topk without steps": ("--speculative-eagle-topk", "--speculative-num-steps"),
    "draft tokens without steps": ("--speculative-num-draft-tokens", "--speculative-num-steps"),
}
BY_UNSETTING = {"speculation on torch_native"}


@pytest.mark.parametrize(("rule", "profile", "sets", "path"), BROKEN)
def test_a_combination_that_is_known_to_fail_is_refused(
    rule: str, profile: str, sets: tuple[str, ...], path: str, tmp_path: Path
) -> None:
    if profile == "own-backends":
        file = tmp_path / "own-backends.toml"
        file.write_text(OWN_BACKENDS)
        profile = str(file)
    with pytest.raises(ProfileError) as caught:
        load(profile, sets)
    known = [one for one in combinations() if one.name == rule]
    assert [fault.path for fault in caught.value.faults if any(one.what in fault.what for one in known)] == [
        path
    ]
    assert all(fault.origin == "--set" for fault in caught.value.faults if fault.path == path)


@pytest.mark.parametrize("rule", BY_CONSTRUCTION)
def test_what_the_tool_states_together_would_fail_apart(rule: str) -> None:
    there, gone = BY_CONSTRUCTION[rule]
    loaded = load("sglang-eagle", ["target.quantization=compressed-tensors"])
    kept = tuple(one for one in loaded.command.arguments if one.flag != gone)
    assert there in [one.flag for one in kept]
    assert len(kept) == len(loaded.command.arguments) - 1
    faults = list(refusals(loaded.profile, loaded.contract, replace(loaded.command, arguments=kept)))
    what = next(one.what for one in combinations() if one.name == rule)
    assert any(what in fault.what for fault in faults)
    assert list(refusals(loaded.profile, loaded.contract, loaded.command)) == []


def test_sglang_on_a_cpu_speculates_only_with_both_backends_stated(tmp_path: Path) -> None:
    file = tmp_path / "one.toml"
    file.write_text(
        'description = "x"\nextends = ["sglang-cpu-eagle"]\n'
        'unset = ["engine_flags.prefill-attention-backend", "engine_flags.decode-attention-backend"]\n'
        '[engine_flags]\nattention-backend = "intel_amx"\n'
    )
    with pytest.raises(ProfileError) as caught:
        load(str(file))
    assert "cannot be verified by torch_native" in caught.value.faults[0].what


def test_every_rule_is_broken_by_a_test() -> None:
    assert {one.name for one in combinations()} == {row[0] for row in BROKEN} | set(
        BY_CONSTRUCTION
    ) | BY_UNSETTING


@pytest.mark.parametrize(
    ("profile", "sets"),
    [
        # The later version lets the drafter choose its own backend.
        (
            "vllm-eagle",
            (CUDA13, "engine_flags.attention-backend=TRITON_MLA", f"{KEYS}.attention_backend=TRITON_ATTN"),
        ),
        # Its first model runner lets the drafter choose by itself.
        (
            "vllm-eagle",
            (CUDA13, "engine_flags.attention-backend=TRITON_MLA", "env.VLLM_USE_V2_MODEL_RUNNER=0"),
        ),
        ("vllm-eagle", ('engine_flags={"attention-config.backend" = "auto"}',)),
        ("vllm-baseline", ('engine_flags={attention-config = \'{"backend": "TRITON_MLA"}\'}',)),
        ("vllm-baseline", ("engine_flags.decode-context-parallel-size=4",)),
        ("vllm-eagle", (CUDA13, "engine_flags.decode-context-parallel-size=4")),
        ("vllm-eagle", ("engine_flags.cp-kv-cache-interleave-size=2",)),
        ("sglang", ("engine_flags.disable-overlap-schedule=true",)),
        ("sglang-eagle", (CUDA13, "engine_flags.disable-overlap-schedule=true")),
        ("sglang-eagle", (*TREE, V1, "engine_flags.page-size=16")),
        (
            "sglang-eagle",
            (*TREE, CUDA13, "engine_flags.page-size=16", "engine_flags.attention-backend=triton"),
        ),
        *(
            (
                "sglang",
                (EXPORT, "engine_flags.log-requests=true", f"engine_flags.log-requests-level={level}"),
            )
            for level in (0, 1)
        ),
        ("vllm-baseline", ("engine_flags.attention-backend=TRITON_MLA",)),
        ("sglang-eagle", (*TREE, "env.SGLANG_ENABLE_SPEC_V2=0")),
        ("sglang-eagle", ("engine.line=cuda13", *TREE)),
        ("sglang", ("engine_flags.enable-mixed-chunk=true",)),
        ("sglang-eagle", ("engine.line=cuda13", "engine_flags.enable-mixed-chunk=true")),
        ("vllm-baseline", ("engine_flags.attention-backend=FLASHMLA", "box.compute_capability=9.0")),
    ],
)
def test_near_misses_are_accepted(profile: str, sets: tuple[str, ...]) -> None:
    load(profile, sets)


def test_a_variable_that_is_gone_is_one_fault() -> None:
    """What became of it, not that it is not known."""
    with pytest.raises(ProfileError) as caught:
        load("sglang-eagle", [CUDA13, "env.SGLANG_ENABLE_SPEC_V2=1"])
    (fault,) = caught.value.faults
    assert "speculation always runs so" in fault.what


@pytest.mark.parametrize(
    ("profile", "said", "path", "what"),
    [
        ("vllm-baseline", "engine_flags.help=true", "engine_flags.help", "prints a text and ends"),
        ("sglang", "engine_flags.help=all", "engine_flags.help", "prints a text and ends"),
        ("sglang", "parallelism.tensor=1000000", "parallelism.tensor", "less than or equal to 128"),
        ("sglang", "server.host=local host", "server.host", "should match pattern"),
        ("sglang", "server.host=[::1]", "server.host", "should match pattern"),
        ("sglang", "sidecar.host=a/b", "sidecar.host", "should match pattern"),
        # The default is 1, so that this would turn it on.
        (
            "sglang",
            "env.SGLANG_ENABLE_JIT_DEEPGEMM=off",
            "env.SGLANG_ENABLE_JIT_DEEPGEMM",
            "takes the default",
        ),
        ("sglang-eagle", "env.SGLANG_ENABLE_SPEC_V2=on", "env.SGLANG_ENABLE_SPEC_V2", "takes the default"),
        ("sglang-eagle", "env.SGL_ENABLE_SPEC_V2=t", "env.SGL_ENABLE_SPEC_V2", "takes the default"),
    ],
)
def test_what_no_engine_could_start_with_is_refused(profile: str, said: str, path: str, what: str) -> None:
    with pytest.raises(ProfileError) as caught:
        load(profile, [said])
    (fault,) = caught.value.faults
    assert (fault.path, fault.origin) == (path, "--set")
    assert what in fault.what


@pytest.mark.parametrize("value", ["TRUE", "Yes", "n"])
def test_booleans_that_sglang_knows(value: str) -> None:
    load("sglang", [f"env.SGLANG_USE_MODELSCOPE={value}"])


def test_a_form_that_no_condition_has() -> None:
    with pytest.raises(ValueError, match="no such condition"):
        Condition.read({"below": 3})


def test_a_drafter_that_the_pin_does_not_load_is_refused_before_it_is_fetched() -> None:
    mla = [
        "drafter.model=lightseekorg/kimi-k2.5-eagle3-mla",
        "drafter.architecture=Eagle3DeepseekV2ForCausalLM",
    ]
    with pytest.raises(ProfileError) as caught:
        load("sglang-eagle", mla)
    (fault,) = caught.value.faults
    assert fault.path == "drafter.architecture"
    assert "sglang 0.5.10.post1 does not load Eagle3DeepseekV2ForCausalLM" in fault.what
    load("sglang-eagle", [*mla, "engine.line=cuda13"])


@pytest.mark.parametrize(
    ("profile", "layers", "sets", "what"),
    [
        ("vllm-eagle", "[]", (), "names no layer"),
        ("vllm-eagle", "[2, 2, 30]", (), "names a layer twice"),
        ("vllm-cpu-eagle", "[2, 2, 5]", (), "names a layer twice"),
        ("vllm-eagle", "[2]", (), "its fc is made for 3"),
        ("vllm-eagle", "[2, 30, 99]", (), "the target has 61 layers"),
        ("vllm-eagle", "[0, 30, 58]", ("engine.line=cuda13",), "layer 0 has none"),
        ("sglang-eagle", "[3, 31, 59]", (), "with CUDA graphs"),
        # Whose class is not stated is fed from the same target.
        ("sglang-eagle-custom", "[2, 30, 99]", (), "the target has 61 layers"),
    ],
)
def test_layers_that_no_overlay_can_get_to_the_drafter_are_refused(
    profile: str, layers: str, sets: tuple[str, ...], what: str
) -> None:
    with pytest.raises(ProfileError) as caught:
        load(profile, [*sets, f"drafter.aux_layers={layers}"])
    (fault,) = caught.value.faults
    assert (fault.path, fault.origin) == ("drafter.aux_layers", "--set")
    assert what in fault.what


@pytest.mark.parametrize(
    ("profile", "layers", "sets"),
    [
        ("sglang-eagle", "[3, 31, 59]", ("engine.line=cuda13",)),
        ("sglang-eagle", "[3, 31, 59]", ("execution.eager=true",)),
        ("sglang-eagle", "[58, 2, 30]", ()),
        # What is not known of this target is found out where it is read, before the launch.
        ("sglang-eagle", "[2, 30, 99]", ("target.model=/models/own",)),
    ],
)
def test_layers_that_an_overlay_can_get_to_the_drafter(
    profile: str, layers: str, sets: tuple[str, ...]
) -> None:
    load(profile, [*sets, f"drafter.aux_layers={layers}"])


def test_an_architecture_that_vllm_completes_is_one_that_it_loads() -> None:
    load("vllm-eagle", ["drafter.architecture=LlamaForCausalLM"])
    with pytest.raises(ProfileError, match="1 fault"):
        load("sglang-eagle", ["drafter.architecture=LlamaForCausalLM"])


def test_a_tree_states_its_depth_and_its_nodes() -> None:
    words = load("sglang-eagle", ["env.SGLANG_ENABLE_SPEC_V2=0", *TREE]).command.argv()
    at = words.index("--speculative-num-steps")
    assert words[at + 1] == "3"
    assert words[words.index("--speculative-eagle-topk") + 1] == "4"
    assert words[words.index("--speculative-num-draft-tokens") + 1] == "16"


@pytest.mark.parametrize(
    ("sets", "path"),
    [
        (("speculation.topk=4",), "speculation.depth"),
        (("speculation.depth=3",), "speculation.depth"),
        # The first step has 4 nodes, the second and third 4 for each of 4 parents: 36.
        ((*TREE, "speculation.num_speculative_tokens=37"), "speculation.num_speculative_tokens"),
        ((*TREE, "speculation.num_speculative_tokens=2"), "speculation.num_speculative_tokens"),
    ],
)
def test_a_tree_that_cannot_be(sets: tuple[str, ...], path: str) -> None:
    with pytest.raises(ProfileError) as caught:
        load("sglang-eagle", ["env.SGLANG_ENABLE_SPEC_V2=0", *sets])
    assert [fault.path for fault in caught.value.faults] == [path]


@pytest.mark.parametrize(
    ("profile", "flag"),
    [
        ("sglang", "tensor-parallel-size"),
        ("sglang", "model"),
        ("sglang-eagle", "speculative-draft-model"),
        ("sglang", "config"),
        ("vllm-eagle", "speculative-config.num_speculative_tokens"),
        ("vllm-baseline", "tensor_parallel_size"),
    ],
)
def test_a_derived_flag_is_refused_under_any_of_its_names(profile: str, flag: str) -> None:
    with pytest.raises(ProfileError) as caught:
        load(profile, [f'engine_flags={{"{flag}" = "8"}}'])
    assert (
        "set that instead" in caught.value.lines()[1] or "put what it says there" in caught.value.lines()[1]
    )


def test_rules_are_about_flags_and_variables_that_exist() -> None:
    """A misspelt name in a rule would never be found stated."""
    for rule in combinations():
        contracts = [
            load_contract(pin)
            for pin in ("vllm-cuda12", "vllm-cuda13", "sglang-cuda12", "sglang-cuda13", "sglang-cpu")
        ]
        concerned = [one for one in contracts if rule.concerns(one)]
        assert concerned, rule.name
        for key in (one for keys in rule.when for one in keys):
            if key.startswith("--"):
                flag, _, part = key.partition(".")
                assert any(flag in one.flags for one in concerned), (rule.name, key)
                known = [one.speculative_keys or {} for one in concerned]
                assert part in ("", "backend") or any(part in one for one in known), (rule.name, key)
            elif "." not in key:
                assert any(key in one.variables for one in concerned), (rule.name, key)

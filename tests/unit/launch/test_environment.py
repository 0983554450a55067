from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from draftgate.engine.command import Variable
from draftgate.launch.environment import engine_environment, key_config, secret_values
from tests.standin.launching import command, profile

PYTHON = Path("/engine/bin/python")
COMMAND = replace(
    command(profile(8000), None, []),
    variables=(
        Variable("OMP_NUM_THREADS", "2", "execution.threads"),
        Variable("MY_PATH", "x", "env.MY_PATH"),
    ),
)
INHERITED = {
    "PATH": "/usr/bin",
    "HOME": "/home/user",
    "HF_HOME": "/models",
    "HF_TOKEN": "hf_secret-token",
    "https_proxy": "http://proxy:1",
    "AWS_SECRET_ACCESS_KEY": "object-store",
    "OMP_NUM_THREADS": "64",
    "PYTHONPATH": "/mine",
    "VIRTUAL_ENV": "/venv",
    "PROMETHEUS_MULTIPROC_DIR": "/metrics",
    "DRAFTGATE_STATE_DIR": "/state",
    "DRAFTGATE_LAUNCH_ID": "another",
    "VLLM_API_KEY": "inherited",
    "OPENAI_API_KEY": "nothing of an engine's",
    "GITHUB_TOKEN": "neither",
    "DB_PASSWORD": "nor this",
}


def test_what_is_kept_dropped_and_set() -> None:
    assert engine_environment(INHERITED, COMMAND, PYTHON, None) == {
        "PATH": "/engine/bin:/usr/bin",
        "HOME": "/home/user",
        "HF_HOME": "/models",
        "HF_TOKEN": "hf_secret-token",
        "https_proxy": "http://proxy:1",
        "AWS_SECRET_ACCESS_KEY": "object-store",
        "OMP_NUM_THREADS": "2",
        "MY_PATH": "x",
    }


def test_the_key_comes_from_its_file_alone() -> None:
    assert engine_environment(INHERITED, COMMAND, PYTHON, "given")["VLLM_API_KEY"] == "given"


def test_secrets_that_no_log_may_show() -> None:
    environment = engine_environment(INHERITED | {"MODELSCOPE_API_TOKEN": "none"}, COMMAND, PYTHON, "given")
    assert sorted(secret_values(environment, "given")) == ["given", "hf_secret-token", "object-store"]


def test_a_key_that_goes_by_a_file() -> None:
    by_file = replace(COMMAND, api_key_variable=None, api_key_config="--config")
    assert "VLLM_API_KEY" not in engine_environment(INHERITED, by_file, PYTHON, "given")
    text = key_config(by_file, 'it\'s "a" key: #1')
    assert text is not None
    assert json.loads(text) == {"api-key": 'it\'s "a" key: #1'}
    assert key_config(by_file, None) is None
    assert key_config(COMMAND, "given") is None

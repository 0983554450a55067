# The two commands that matter: make demo, make test. Both do all their set-up.
DRAFTGATE = .venv/bin/draftgate
PROFILE_ENGINE = vllm-cpu

.PHONY: demo test check unit contract kernels engine container docs lock bench clean venv

## demo: a real engine with a real EAGLE-3 drafter on this machine; ONCE=1 ends after the demo
## traffic, ENGINE=sglang takes SGLang instead of vLLM
demo: venv
	$(DRAFTGATE) demo $(if $(ENGINE),--engine $(ENGINE)) $(if $(ONCE),--once)

## test: everything that can run here; what cannot says why
test: check unit contract kernels engine container

check: venv
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy
	.venv/bin/lint-imports

unit: venv
	.venv/bin/pytest -n auto tests/unit

## contract: what is known of the pinned engines, against their own packages (downloads about 1 GB)
contract: venv
	$(DRAFTGATE) engine install $(PROFILE_ENGINE)
	.venv/bin/pytest -n auto --dist loadgroup tests/contract

## kernels: the operators of tools/sgl-kernel-cpu and the model of tools/kimimodel, in the engine's
## environment, which has torch, with our pytest
kernels: venv
	$(DRAFTGATE) engine install $(PROFILE_ENGINE)
	cd tools/sgl-kernel-cpu && PYTHONPATH=src:$$(echo $(CURDIR)/.venv/lib/python3*/site-packages) \
	    $$($(CURDIR)/$(DRAFTGATE) engine python $(PROFILE_ENGINE)) -m pytest -p no:cacheprovider
	PYTHONPATH=.:$$(echo .venv/lib/python3*/site-packages) \
	    $$($(DRAFTGATE) engine python $(PROFILE_ENGINE)) -m pytest -p no:cacheprovider tools/kimimodel/tests

engine: venv
	$(DRAFTGATE) engine install $(PROFILE_ENGINE)
	$(DRAFTGATE) engine install sglang-cpu
	.venv/bin/pytest tests/engine

## container: the composition in Docker, which it needs running
container: venv
	.venv/bin/pytest tests/container

## docs: write the generated references anew
docs: venv
	.venv/bin/python -m tools.reference

## lock: write every lock anew (needs uv)
lock:
	tools/lock

## bench: what the tool itself costs, as ratios
bench: venv
	.venv/bin/python -m benchmarks.render
	.venv/bin/python -m benchmarks.scrape

venv:
	@tools/venv

clean:
	rm -rf .venv .demo demo-summary.json

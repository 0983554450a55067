"""Expositions of pinned engines that need a GPU, made by the engines' own metric code on a CPU.

Run with the Python of an engine's environment (torch, prometheus_client), and a wheel of the pin unpacked::

    PYTHONPATH=src:. $(draftgate engine python vllm-cpu) -m tools.expositions.vllm --source DIR --out DIR
    PYTHONPATH=src:. $(draftgate engine python sglang-cpu) -m tools.expositions.sglang --source DIR --out DIR

Only what that environment lacks is stood in for by placeholders; the life that is counted is scripted, and
so are the times.
"""

"""EAGLE-3 drafters that are wrong on purpose, and what engines make of them.

python -m tools.wrongdrafters --drafter models/tiny-drafter --out DIR
python -m tools.wrongdrafters.measure --profile vllm-cpu-eagle --drafters DIR --out FILE
"""

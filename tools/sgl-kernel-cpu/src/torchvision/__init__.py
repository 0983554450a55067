"""In the place of torchvision: SGLang and transformers import it at start, text models never call it, and the
index's build is for CUDA and does not import beside a CPU build of torch."""

from declared_only import Declared, declare_package

__version__ = "0.28.0"  # the release for torch 2.13
__path__: list[str] = []
__getattr__ = declare_package("torchvision", Declared)

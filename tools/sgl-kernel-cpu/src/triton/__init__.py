"""In the place of triton, which is a gigabyte and compiles for GPUs: SGLang defines triton kernels in most of
its modules and launches none on a CPU. A kernel that is launched raises NotImplementedError with its name."""

from declared_only import DecoratorName, declare_package

__version__ = "3.9.0"
__path__: list[str] = []
__getattr__ = declare_package("triton", DecoratorName)


def cdiv(x: int, y: int) -> int:
    """x / y, rounded up."""
    return -(x // -y)


def next_power_of_2(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << (n - 1).bit_length() if n > 0 else 1

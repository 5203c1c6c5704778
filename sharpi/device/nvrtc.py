"""The compiler options of kernels: sharpi's own, and those that CuPy adds to them."""


def own_options(quant_type: str | None = None) -> tuple[str, ...]:
    """Returns sharpi's options; with a quant type ("q4_k"), only its entry points are compiled."""
    only = () if quant_type is None else (f"-DONLY_{quant_type.upper()}",)
    return ("-std=c++17", *only)


def compile_options(architecture: int, quant_type: str | None = None) -> tuple[str, ...]:
    """Returns all options that change the code for `sm_<architecture>`.

    CuPy 13.6 to 14.2 (`cupy/cuda/compiler.py`) adds the last three, and include folders, of which
    kernels need only the one with `cuda_fp16.h`.
    """
    added = ("-ftz=true", f"-arch=sm_{architecture}", "--device-as-default-execution-space")
    return own_options(quant_type) + added

"""The options that kernels are compiled with: sharpi's own, and those that CuPy adds to them."""


def own_options(quant_type: str | None = None) -> tuple[str, ...]:
    """What sharpi asks for; with a quant type ("q4_k"), its entry points alone."""
    only = () if quant_type is None else (f"-DONLY_{quant_type.upper()}",)
    return ("-std=c++17", *only)


def compile_options(architecture: int, quant_type: str | None = None) -> tuple[str, ...]:
    """All options that change code for `sm_<architecture>`.

    CuPy 13.6 to 14.2 (`cupy/cuda/compiler.py`) adds the last three, and folders to look for
    headers in, of which kernels need just the one with `cuda_fp16.h`.
    """
    added = ("-ftz=true", f"-arch=sm_{architecture}", "--device-as-default-execution-space")
    return own_options(quant_type) + added

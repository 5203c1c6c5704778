"""The compiler options of kernels: sharpi's own, and the ones that CuPy adds."""


def defines(quant_type: str | None, size: int | None = None) -> tuple[str, ...]:
    """Returns the macros that restrict a .cu file to a quant type and to a size.

    "q4_k" names one type, "q4_k+q6_k" a kernel that reads matrices of two or three types. The size
    is one that the file tests with HAS_SIZE. None returns no macro, so that the file is compiled
    for all types, or for all sizes.
    """
    return *_types(quant_type), *(() if size is None else (f"ONLY_SIZE={size}",))


def _types(quant_type: str | None) -> tuple[str, ...]:
    match [] if quant_type is None else quant_type.upper().split("+"):
        case []:
            return ()
        case [one]:
            return (f"ONLY_{one}",)
        case several:
            names = ("FIRST_TYPE", "SECOND_TYPE", "THIRD_TYPE")
            return tuple(f"{name}={each}" for name, each in zip(names, several, strict=False))


def own_options(quant_type: str | None = None, size: int | None = None) -> tuple[str, ...]:
    """Returns sharpi's options; a quant type and a size compile only their entry points."""
    return ("-std=c++17", *(f"-D{each}" for each in defines(quant_type, size)))


def compile_options(
    architecture: int, quant_type: str | None = None, size: int | None = None
) -> tuple[str, ...]:
    """Returns all options that change the code for `sm_<architecture>`.

    CuPy 13.6 to 14.2 (`cupy/cuda/compiler.py`) adds the last three, and include folders. Kernels
    need only the folder with `cuda_fp16.h`.
    """
    added = ("-ftz=true", f"-arch=sm_{architecture}", "--device-as-default-execution-space")
    return own_options(quant_type, size) + added

"""GpuFeatures: the optional features of a GPU that are in use.

None of them is needed for an answer. One that fails is switched off with a note, as by `--disable`.
"""

from collections.abc import Callable, Collection

from sharpi.device.device import Device
from sharpi.device.gpu_errors import KernelError
from sharpi.device.launch import Kernel
from sharpi.system.process import print_running_note

LIBRARY = "the library"  # torch's products and attention; `--disable` has parts of it
# What is done without a feature.
_INSTEAD = {
    "graphs": "each of a token's kernels is launched by itself",
    "programmatic-launches": "a kernel begins when the one before it has ended",
    "folding": "each operation has a kernel of its own",
    "tensor-cores": "kernels without tensor cores compute prompts",
    LIBRARY: "sharpi's own kernels compute prompts",
}
# The kernels that a feature adds; others do the same work, more slowly.
_ADDED = {
    "folding": ("slot_route", "experts_gather_gate_up", "matvec_mixed"),
    "tensor-cores": (
        *("tiled_attention", "split_attention", "matvec_tiled", "experts_tiled_gate_up"),
        *("experts_tiled_product", "experts_f16_gate_up", "experts_f16_product"),
    ),
}
_FEATURES = {file: feature for feature, files in _ADDED.items() for file in files}


class GpuFeatures:
    """The features of one GPU's part of a model, without those of `disabled`."""

    def __init__(self, disabled: Collection[str] = ()) -> None:
        self._off = set(disabled)

    def has(self, feature: str) -> bool:
        """Returns True if the feature is in use."""
        return feature not in self._off

    def drop(self, feature: str, why: object) -> None:
        """Switches a feature off because it failed; the first call prints a note."""
        if self.has(feature):
            self._off.add(feature)
            print_running_note(f"the GPU goes on without {feature}, {_INSTEAD[feature]}: {why}")

    def prepare(self, device: Device, kernels: Callable[[], Collection[Kernel]]) -> None:
        """Tries the library, and compiles the kernels that `kernels` returns.

        If one cannot be compiled, the feature that it belongs to is dropped. Raises KernelError for
        a kernel that has no substitute.
        """
        why = device.library_fault
        if why is not None:
            self.drop(LIBRARY, why)
        while True:
            try:
                return device.prepare(kernels())
            except KernelError as error:
                feature = _FEATURES.get(error.file)
                if feature is None or not self.has(feature):
                    raise
                self.drop(feature, error)

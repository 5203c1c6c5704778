"""Which kernels run as PTX: all, but for those that are named here."""

from pathlib import Path

from sharpi.resources import kernels_folder

# The kernels that the tests of launchers ran as PTX, and for which architectures. Written by
# SHARPI_PTX_RUNS=runs python -m pytest tests/cuda -k sm_; sort -u runs, into this file.
RUNS = Path(__file__).with_name("ptx_runs.tsv")
# Launched by whole models only: SHARPI_PTX=90 python -m pytest tests/cuda/engine.
OF_MODELS = {"slot_learn_batch"}


def test_every_kernel_runs() -> None:
    rows = [line.split("\t") for line in RUNS.read_text(encoding="utf-8").splitlines()]
    files = {path.stem for path in (kernels_folder() / "cuda").rglob("*.cu")}
    assert {file for file, _ in rows} == files - OF_MODELS
    assert {architecture for _, architecture in rows} == {"sm_75", "sm_80", "sm_90"}

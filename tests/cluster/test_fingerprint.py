"""Fingerprints tell one model file from another, and name the tensor that differs."""

import shutil
from pathlib import Path

import pytest

from sharpi.engine.cluster.agreement import Fingerprint, fingerprint, require_same
from sharpi.errors import ClusterError
from sharpi.gguf.reader import open_gguf
from sharpi.resources import demo_model

HOSTS = ("a", "b")


def of(path: Path) -> Fingerprint:
    with open_gguf(path) as file:
        return fingerprint(file)


def changed(path: Path, offset: int) -> Path:
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)
        file.seek(offset)
        file.write(bytes([byte[0] ^ 1]))
    return path


def test_the_same_file_is_the_same(tmp_path: Path) -> None:
    copy = Path(shutil.copy(demo_model(), tmp_path))
    require_same([of(demo_model()), of(copy)], HOSTS)


def test_a_changed_tensor_is_named(tmp_path: Path) -> None:
    copy = Path(shutil.copy(demo_model(), tmp_path))
    with open_gguf(copy) as file:
        tensor = file.tensors["blk.1.attn_q.weight"]
        offset = tensor.offset
    with pytest.raises(ClusterError, match=r"rank 1 on b .* blk\.1\.attn_q\.weight differs"):
        require_same([of(demo_model()), of(changed(copy, offset))], HOSTS)


def test_a_missing_tensor_is_named() -> None:
    own = of(demo_model())
    fewer = {name: value for name, value in own.tensors.items() if name != "output_norm.weight"}
    with pytest.raises(ClusterError, match=r"only one of them has the tensor output_norm\.weight"):
        require_same([own, Fingerprint(own.header, fewer)], HOSTS)


def test_other_settings_are_noticed() -> None:
    own = of(demo_model())
    with pytest.raises(ClusterError, match="the settings in the header differ"):
        require_same([own, Fingerprint(b"other", own.tensors)], HOSTS)

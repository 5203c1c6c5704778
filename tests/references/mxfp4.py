"""MXFP4 as gpt-oss ships it: expert matrices of 4-bit values with one exponent for every 32.

Source: the OCP Microscaling formats, version 1.0.
"""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

_MAGNITUDES = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
_BLOCK, _EXPONENT_BIAS, _LARGEST_EXPONENT = 32, 127, 2


def nearest(values: torch.Tensor) -> torch.Tensor:
    """Values (experts, columns, rows) that blocks along the columns hold exactly."""
    blocks = _blocks(values)
    codes, exponents = _encode(blocks)
    signs = torch.where(codes >= 8, -1.0, 1.0)
    decoded = signs * _MAGNITUDES[codes % 8] * torch.exp2(exponents)[..., None]
    return decoded.reshape(values.transpose(1, 2).shape).transpose(1, 2)


def pack(folder: Path) -> None:
    """Rewrites a saved gpt-oss so that its expert matrices are blocks and scales, as released."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    for name in [each for each in tensors if each.endswith(("gate_up_proj", "down_proj"))]:
        codes, exponents = _encode(_blocks(tensors.pop(name)))
        tensors[f"{name}_blocks"] = (codes[..., ::2] | codes[..., 1::2] << 4).to(torch.uint8)
        tensors[f"{name}_scales"] = (exponents + _EXPONENT_BIAS).to(torch.uint8)
    save_file(tensors, path, metadata={"format": "pt"})
    config = folder / "config.json"
    values = json.loads(config.read_text()) | {"quantization_config": {"quant_method": "mxfp4"}}
    config.write_text(json.dumps(values))


def _blocks(values: torch.Tensor) -> torch.Tensor:
    """(experts, columns, rows) as (experts, rows, columns / 32, 32)."""
    experts, columns, rows = values.shape
    return values.transpose(1, 2).reshape(experts, rows, columns // _BLOCK, _BLOCK)


def _encode(blocks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes (..., 32), sign and magnitude in four bits, and exponents (...)."""
    peak = blocks.abs().amax(dim=-1)
    exponents = torch.floor(torch.log2(peak)) - _LARGEST_EXPONENT
    scaled = (blocks.abs() / torch.exp2(exponents)[..., None])[..., None]
    magnitude = (scaled - _MAGNITUDES).abs().argmin(dim=-1)
    return magnitude + 8 * (blocks < 0), exponents

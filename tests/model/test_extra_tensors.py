"""Tensors that are not run: known kinds are counted, unknown ones named."""

from sharpi.model.extra_tensors import notes_on_extra


def test_nothing_to_say() -> None:
    assert notes_on_extra((), 3) == ()


def test_known_kinds_have_a_line_each() -> None:
    names = ("blk.3.attn_q.weight", "blk.3.nextn.eh_proj.weight", "v.blk.0.ln1.weight", "mm.0.bias")
    assert notes_on_extra(names, 3) == (
        "multi-token prediction (MTP), not used: 2 tensors",
        "images or audio, not used: 2 tensors",
    )


def test_indexers_of_sparse_attention_have_a_line() -> None:
    names = ("blk.1.indexer.proj.weight", "blk.1.indexer.k_norm.bias", "blk.3.indexer.proj.weight")
    assert notes_on_extra(names, 3) == (
        "multi-token prediction (MTP), not used: 1 tensor",
        "sparse attention, not used (attention goes to all earlier positions): 2 tensors",
    )


def test_unknown_tensors_are_named() -> None:
    names = tuple(f"blk.{i}.odd" for i in range(5))
    (note,) = notes_on_extra(names, 9)
    assert note.startswith("unknown to this architecture, not used: 5 tensors, blk.0.odd, ")
    assert note.endswith("blk.3.odd, ...")

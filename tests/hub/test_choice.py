"""The model that a name means among those available."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharpi.errors import HubError
from sharpi.hub.catalogue import require_name
from sharpi.hub.choice import choose, find_variants

UNSLOTH = ("UD-Q4_K_XL", "UD-Q2_K_XL", "Q4_K_M", "Q4_K_S", "Q8_0", "BF16")


def chosen(name: str, *quants: str) -> tuple[str, str | None]:
    variants = find_variants([f"m-{quant}.gguf" for quant in quants])
    variant, note = choose(require_name(name), variants, "at the hub")
    return variant.label, note


@pytest.mark.parametrize("quant", ["Q4_K_M", "q4_k_m", "m-Q4_K_M", "m-Q4_K_M.gguf"])
def test_by_name_whatever_the_case(quant: str) -> None:
    assert chosen(f"org/repo:{quant}", *UNSLOTH) == ("Q4_K_M", None)


def test_the_bare_quant_is_preferred_to_one_with_a_prefix() -> None:
    assert chosen("org/repo:Q4_K_M", "UD-Q4_K_M", "Q4_K_M") == ("Q4_K_M", None)


def test_a_part_of_the_name_is_enough_and_said() -> None:
    note = "org/repo:Q4_K_XL is UD-Q4_K_XL at the hub"
    assert chosen("org/repo:Q4_K_XL", *UNSLOTH) == ("UD-Q4_K_XL", note)


@pytest.mark.parametrize("quant", ["Q4_K", "Q4", "K_M", "4_K_M"])
def test_half_a_quant_is_none(quant: str) -> None:
    with pytest.raises(HubError, match="is not at the hub"):
        chosen(f"org/repo:{quant}", *UNSLOTH)


def test_ambiguous_names_list_what_they_may_be() -> None:
    variants = find_variants(["a-Q4_0.gguf", "b-Q4_0.gguf", "b-Q8_0.gguf"])
    with pytest.raises(HubError, match="may be any of a-Q4_0, b-Q4_0 at the hub; name one"):
        choose(require_name("org/repo:Q4_0"), variants, "at the hub")


@pytest.mark.parametrize(
    ("quants", "expected"),
    [
        (UNSLOTH, "Q4_K_M"),
        (("Q8_0", "UD-Q4_K_XL", "Q4_0"), "UD-Q4_K_XL"),
        (("F16", "MXFP4_MOE"), "MXFP4_MOE"),
        (("F16", "Q6_K", "Q8_0"), "Q8_0"),
        (("Q6_K", "F16"), "F16"),
    ],
)
def test_the_usual_one_is_said_with_the_others(quants: tuple[str, ...], expected: str) -> None:
    label, note = chosen("org/repo", *quants)
    assert label == expected
    assert note is not None
    assert note.startswith(f"org/repo:{expected}, as no quant was named")
    assert all(quant in note for quant in quants)


def test_the_only_one_needs_no_note() -> None:
    assert chosen("org/repo", "F16") == ("F16", None)


def test_several_models_are_not_chosen_among() -> None:
    variants = find_variants(["a-Q4_K_M.gguf", "b-Q4_K_M.gguf"])
    with pytest.raises(HubError, match="several models: a-Q4_K_M, b-Q4_K_M"):
        choose(require_name("org/repo"), variants, "at the hub")


def test_long_lists_end() -> None:
    variants = find_variants([f"m{i:02}-Q8_0.gguf" for i in range(40)])
    with pytest.raises(HubError, match=r"m11-Q8_0 and 28 more") as caught:
        choose(require_name("org/repo:Q8_0"), variants, "at the hub")
    assert "m12" not in str(caught.value)


def labels(*paths: str) -> list[str]:
    return [variant.label for variant in find_variants(paths)]


def test_quants_are_labels() -> None:
    assert labels("m-Q4_K_M.gguf", "m.i1-IQ2_XXS.gguf", "m-UD-Q4_K_XL.gguf", "m-bf16.GGUF") == [
        "Q4_K_M",
        "UD-Q4_K_XL",
        "bf16",
        "IQ2_XXS",
    ]


def test_odd_quants() -> None:
    assert labels("gpt-oss-20b-mxfp4.gguf") == ["mxfp4"]
    assert labels("a-MXFP4_MOE.gguf", "a-NVFP4.gguf", "a-TQ1_0.gguf", "a-fp16.gguf") == [
        "MXFP4_MOE",
        "NVFP4",
        "TQ1_0",
        "fp16",
    ]
    assert labels("Q8_0-of-Qwen-Q4_K_S_v2.gguf") == ["Q4_K_S"]


def test_a_name_without_quant_is_its_own_label() -> None:
    assert labels("model.gguf", "README.md", "config.json") == ["model"]
    assert labels("Q4_K_M/model.gguf", "Q8_0/model.gguf") == ["Q4_K_M", "Q8_0"]


def test_several_models_of_one_quant_are_told_apart_by_file_or_path() -> None:
    assert labels("a-Q4_0.gguf", "b-Q4_0.gguf", "b-Q8_0.gguf") == ["a-Q4_0", "b-Q4_0", "Q8_0"]
    assert labels("x/m-Q4_0.gguf", "y/m-q4_0.gguf") == ["x/m-Q4_0", "y/m-q4_0"]


def test_what_goes_with_a_model_is_left_out() -> None:
    assert labels("mmproj-F16.gguf", "m.mmproj-Q8_0.gguf", "imatrix.gguf", "m-imatrix.gguf") == []
    assert labels("m-imatrix-Q4_0.gguf", "imatrix_unsloth.dat") == ["Q4_0"]


def test_split_sets() -> None:
    [variant] = find_variants([f"Q2_K/m-Q2_K-0000{i}-of-00003.gguf" for i in (3, 1, 2)])
    assert (variant.label, variant.num_parts, variant.missing_parts) == ("Q2_K", 3, [])
    assert variant.paths[0].endswith("00001-of-00003.gguf")
    assert variant.stem == "Q2_K/m-Q2_K"


def test_a_set_with_a_hole() -> None:
    [variant] = find_variants(["m-00001-of-00003.gguf", "m-00003-of-00003.gguf"])
    assert (variant.label, variant.missing_parts) == ("m", [2])


_NAMES = st.text("abQ48_KM/.-", min_size=1, max_size=12).map("{}.gguf".format)


@given(st.lists(_NAMES, max_size=6, unique_by=str.lower))
def test_every_file_is_in_one_variant_and_labels_differ(paths: list[str]) -> None:
    variants = find_variants(paths)
    assert sorted(path for each in variants for path in each.paths) == sorted(paths)
    found = [each.label.lower() for each in variants]
    assert len(set(found)) == len(found)

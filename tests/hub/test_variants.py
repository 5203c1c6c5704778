"""The models among a repository's files, with the names of real repositories."""

from hypothesis import given
from hypothesis import strategies as st

from sharpi.hub.variants import find_variants


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


_NAMES = st.from_regex(r"[abQ48_KM/.-]{1,12}\.gguf", fullmatch=True)


@given(st.lists(_NAMES, max_size=6, unique_by=str.lower))
def test_every_file_is_in_one_variant_and_labels_differ(paths: list[str]) -> None:
    variants = find_variants(paths)
    assert sorted(path for each in variants for path in each.paths) == sorted(paths)
    found = [each.label.lower() for each in variants]
    assert len(set(found)) == len(found)

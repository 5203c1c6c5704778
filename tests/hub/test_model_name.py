"""Valid and invalid names of models."""

import pytest

from sharpi.errors import UsageError
from sharpi.hub.catalogue import ModelName, read_name, require_name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("org/repo", ModelName("org/repo")),
        ("org/repo:Q4_K_M", ModelName("org/repo", "Q4_K_M")),
        ("org/repo@v1.0", ModelName("org/repo", None, "v1.0")),
        ("org/repo:UD-Q4_K_XL@refs/pr/1", ModelName("org/repo", "UD-Q4_K_XL", "refs/pr/1")),
        ("org/repo:BF16/small-BF16", ModelName("org/repo", "BF16/small-BF16")),
        ("hf.co/org/repo:Q8_0", ModelName("org/repo", "Q8_0")),
        ("https://huggingface.co/org/Re.po-1_x", ModelName("org/Re.po-1_x")),
    ],
)
def test_names(text: str, name: ModelName) -> None:
    assert read_name(text) == name
    assert read_name(str(name)) == name


@pytest.mark.parametrize(
    "text",
    [
        "",
        "repo",
        "org/",
        "/repo",
        "./repo",
        "../repo",
        "~/repo",
        "org/repo/more",
        "org/re..po",
        "org/re--po",
        "org/repo.git",
        "org/model.gguf",
        "org/repo:",
        "org/repo@",
        "org/repo@../../x",
        "org/repo:Q4 K",
        "org/" + "x" * 93,
        "C:\\models\\x",
        "tell me a/b",
    ],
)
def test_no_names(text: str) -> None:
    assert read_name(text) is None
    with pytest.raises(UsageError, match="ORG/REPO:QUANT"):
        require_name(text)

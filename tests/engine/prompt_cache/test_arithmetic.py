from sharpi.engine.prompt_cache.model_digest import arithmetic_files


def test_the_code_of_pages_is_that_of_every_processor() -> None:
    """What lays pages out, on a CPU or a GPU, decides whether files of pages can be used."""
    names = {path.name for path in arithmetic_files()}
    assert {"kv_packed.cuh", "heads.cu", "attention_calls.py", "kv_cache.py"} <= names
    assert any(name.endswith(".so") for name in names)

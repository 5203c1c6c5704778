"""Says what a file that is not GGUF seems to be, so that the user knows what to do."""

_CONVERT = "convert it to GGUF first"
_DOWNLOAD = "the download went wrong"
_KINDS = (
    (b"version https://git-lfs", "a git-lfs pointer; fetch the file itself with `git lfs pull`"),
    (b"<!doctype", f"a web page; {_DOWNLOAD}"),
    (b"<html", f"a web page; {_DOWNLOAD}"),
    (b"<?xml", f"an XML answer of a server; {_DOWNLOAD}"),
    (b"pk\x03\x04", f"a zip archive; unpack it, or if it is a PyTorch checkpoint, {_CONVERT}"),
    (b"\x1f\x8b", "a gzip archive; unpack it first"),
    (b"lmgg", f"an old GGML file; {_CONVERT}"),
    (b"tjgg", f"an old GGML file; {_CONVERT}"),
    (b"fmgg", f"an old GGML file; {_CONVERT}"),
    (b"{", "JSON; name the .gguf file"),
)


def describe_mistake(start: bytes) -> str:
    """What to say of a file that begins with `start` instead of GGUF."""
    lowered = start.lstrip().lower() if start[:1].isspace() else start.lower()
    for magic, kind in _KINDS:
        if lowered.startswith(magic):
            return f"not a GGUF file but {kind}"
    if start[8:9] == b"{":  # after the length of its header
        return f"not a GGUF file but safetensors; {_CONVERT}"
    if not any(start):
        return "not a GGUF file: it begins with zeros, as an unfinished download does"
    return "not a GGUF file: it does not begin with GGUF"

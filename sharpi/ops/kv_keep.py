"""The sizes of SnapKV's rule, by which a prompt's keys and values are kept or dropped."""

# The last tokens of a prompt: their queries choose, and all their keys and values are kept.
KEEP_WINDOW = 32
# A key gets the largest weight among so many keys on either side, so that phrases are not split.
KEEP_POOL = 3

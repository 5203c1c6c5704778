"""The sizes of SnapKV's rule, by which a prompt's keys and values are kept or dropped."""

# The last tokens of a prompt: their queries choose, and their own keys and values are all kept.
KEEP_WINDOW = 32
# A key takes the largest weight among so many keys on either side, so that phrases stay whole.
KEEP_POOL = 3

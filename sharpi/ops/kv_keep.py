"""The sizes of SnapKV's rule, by which a prompt's keys and values are kept or dropped."""

# The last tokens of a prompt, whose queries choose and whose own keys and values are kept.
KEEP_WINDOW = 32
# A key has the largest weight of so many keys to either side, so that phrases stay whole.
KEEP_POOL = 3

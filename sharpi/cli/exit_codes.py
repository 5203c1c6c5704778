"""Exit codes beside those of SharpiError, as shells and sysexits.h know them."""

USAGE = 2
INTERNAL = 70  # EX_SOFTWARE of sysexits.h
INTERRUPTED = 130  # 128 + SIGINT
TERMINATED = 143  # 128 + SIGTERM

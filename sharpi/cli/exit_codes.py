"""Exit codes that shells and sysexits.h define; SharpiError has its own."""

USAGE = 2
INTERNAL = 70  # EX_SOFTWARE of sysexits.h
TEMPORARY = 75  # EX_TEMPFAIL of sysexits.h: waiting may help
HUNG_UP = 129  # 128 + SIGHUP
INTERRUPTED = 130  # 128 + SIGINT
TERMINATED = 143  # 128 + SIGTERM

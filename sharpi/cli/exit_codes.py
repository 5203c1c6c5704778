"""Exit codes that shells and sysexits.h define; a SharpiError has its code in `exit_code`."""

USAGE = 2
INTERNAL = 70  # EX_SOFTWARE of sysexits.h
TEMPORARY = 75  # EX_TEMPFAIL of sysexits.h: waiting may help
HUNG_UP = 129  # 128 + SIGHUP
INTERRUPTED = 130  # 128 + SIGINT
TERMINATED = 143  # 128 + SIGTERM

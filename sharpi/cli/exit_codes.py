"""Exit codes other than SharpiError's, as in shells and sysexits.h."""

USAGE = 2
INTERNAL = 70  # EX_SOFTWARE of sysexits.h
TEMPORARY = 75  # EX_TEMPFAIL there: waiting may mend it
HUNG_UP = 129  # 128 + SIGHUP
INTERRUPTED = 130  # 128 + SIGINT
TERMINATED = 143  # 128 + SIGTERM

"""The values of `format` that llguidance enforces; other formats are only annotations."""

FORMATS = frozenset(
    ["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"]
)

"""The formats that llguidance enforces; to JSON Schema other formats are annotations."""

FORMATS = frozenset(
    ["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"]
)

"""The formats that llguidance enforces; to the JSON Schema specification, others are notes."""

FORMATS = frozenset(
    ["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"]
)

"""The commands for finding and keeping models."""

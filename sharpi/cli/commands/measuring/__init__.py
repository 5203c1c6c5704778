"""The commands for measuring a model and a machine."""

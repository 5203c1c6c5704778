"""The commands for asking a model."""

"""The options of commands that load a model."""

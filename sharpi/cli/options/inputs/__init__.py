"""The model and the prompt that a command is given."""

"""The commands that send prompts to a model, and the log of conversations."""

"""The commands that serve a model, to clients or to another machine."""

"""The commands for serving a model to others."""

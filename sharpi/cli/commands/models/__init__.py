"""The commands that find, download, list, inspect and remove models."""

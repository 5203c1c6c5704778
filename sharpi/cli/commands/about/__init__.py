"""The commands about sharpi itself."""

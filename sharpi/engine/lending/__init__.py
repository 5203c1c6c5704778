"""Experts that ranks compute for each other, where one has them in memory and another has not."""

"""sharpi: a runner for GGUF mixture-of-experts models on one's own machine."""

__version__ = "0.1.0"

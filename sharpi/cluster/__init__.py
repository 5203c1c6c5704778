"""Connects several machines that run one model together, over torch.distributed."""

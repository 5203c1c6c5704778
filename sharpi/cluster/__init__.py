"""Several machines that run one model over torch.distributed: their names, links and watch."""

"""Several machines that run one model, with torch.distributed: their names, links and watch."""

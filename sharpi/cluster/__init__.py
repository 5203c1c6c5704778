"""Several machines that run one model, with torch.distributed: who they are, links, watch."""

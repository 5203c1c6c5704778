"""One model over several machines: each rank runs some layers, and the first rank the output."""

"""One model over several machines: each rank runs a range of layers, the first also the output."""

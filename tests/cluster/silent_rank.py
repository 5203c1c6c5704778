"""`python -m tests.cluster.silent_rank PORT`: a rank that joins the group and says no more."""

import sys

from sharpi.cluster.group import join_group
from sharpi.cluster.rendezvous import Rendezvous

if __name__ == "__main__":
    group = join_group(Rendezvous("127.0.0.1", int(sys.argv[1])))
    print("joined", flush=True)
    sys.stdin.read()

"""`python -m sharpi`: the same program as the `sharpi` command."""

import sys

from sharpi.cli.start import main

sys.exit(main())

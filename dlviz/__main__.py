"""`python -m dlviz` is the command `dlviz`."""

import sys

from dlviz.cli import main

sys.exit(main())

"""`python -m launch`: the same as the command `pairshard`."""

import sys

from launch.command import main

if __name__ == "__main__":
    sys.exit(main())

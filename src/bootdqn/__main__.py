"""`python -m bootdqn`."""

import sys

from bootdqn.cli.main import main

sys.exit(main())

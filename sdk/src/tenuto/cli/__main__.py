"""`python -m tenuto.cli`."""

from __future__ import annotations

import sys

from tenuto.cli import main

if __name__ == "__main__":
    sys.exit(main())

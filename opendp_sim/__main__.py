"""``python -m opendp_sim`` is the command ``opendp-sim``."""

from __future__ import annotations

from opendp_sim._entry import main

if __name__ == "__main__":
    main()

from __future__ import annotations

import opendp.prelude as dp

dp.enable_features("contrib", "honest-but-curious", "idealized-numerics")

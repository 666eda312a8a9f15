"""The theorems' quantities, measured on a trained agent: `dcp diagnose`.

Each measure is a module: `gaps` (theorem 2), `alignment`, `controllability` (theorem 3), `calibration`, `energies`,
`conditioning`. `visits` gathers the states at which they are taken, `truth` knows the true distances, `diagnosis` runs
them all. Letters as in `types`, and K states, H episodes.
"""

from dcp.theory.diagnostics.diagnosis import diagnose
from dcp.theory.diagnostics.parts import PARTS

__all__ = ["PARTS", "diagnose"]

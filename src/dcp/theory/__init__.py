"""The paper's three theorems as executable statements, and (diagnostics/) their quantities on a trained agent.

Systems with known d*: `curved`, `linear`, `unicycle`; d* found numerically: `grid_distance`, `direct`.
Theorem 1: `sufficiency`. Theorem 2: `invariance`, `sweep`, `limits`. Theorem 3: `controllability`. Figures: `report`.
NumPy in double precision throughout. Letters: n state, m action; a function takes one state unless it says [..., n].
"""

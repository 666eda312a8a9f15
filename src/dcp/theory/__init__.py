"""The paper's three theorems as executable statements, and (diagnostics/) their quantities on a trained agent.

Systems with known d*: `curved`, `linear`, `unicycle`; d* solved on a grid: `grid_distance`, `value_iteration`.
Theorem 1: `sufficiency`. Theorem 2: `invariance`, `sweep`, `limits`. Theorem 3: `controllability`. Figures: `report`.
NumPy in double precision throughout. Letters: n state, m action; every function takes one state unless it says [..., n].
"""

"""The paper's three theorems as executable statements, and (diagnostics/) their quantities on a trained agent.

Systems with known d*: `control_systems`, `unicycle`. The theorems: `theorems`. Their hypotheses: `counterexamples`.
NumPy in double precision throughout. Letters: n state, m action; a function takes one state unless it says [..., n].
The figures of docs/theory.md are drawn by docs/theory/make.py.
"""

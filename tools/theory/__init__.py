"""The paper's three theorems as executable statements; diagnostics/ measures their quantities on a trained agent.

`control_systems` and `unicycle` have systems with known d*, `theorems` the theorems, `counterexamples` what their
hypotheses are for. All is NumPy in double precision. Letters: n state, m action; functions take one state unless they
say [..., n]. tools/theory/figures.py draws the figures of docs/theory.md.
"""

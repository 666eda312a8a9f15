"""The paper's three theorems as executable statements, outside the package; docs/theory.md says which parts hold.

`control_systems` and `unicycle` have systems with known d*, `theorems` the theorems, `counterexamples` what their
hypotheses are for, `figures` the figures of docs/theory.md. All is NumPy in double precision. Letters: n state, m
action; functions take one state unless they say [..., n]. `dcp diagnose` measures the theorems' quantities on a trained
agent.
"""

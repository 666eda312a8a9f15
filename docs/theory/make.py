"""Draws the figures of docs/theory.md beside this file: `python docs/theory/make.py`."""

from pathlib import Path

from dcp.theory.report import theorem_figures

if __name__ == "__main__":
    for path in theorem_figures(Path(__file__).parent):
        print(path)

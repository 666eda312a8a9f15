"""Several seeds as one program: every array of a run's state with a leading axis of seeds, K.

What a seed computes is what it would compute alone, from the same random streams; only the order of floating-point
sums may differ. Each seed has an ordinary run folder, which can go on alone or together with others.
"""

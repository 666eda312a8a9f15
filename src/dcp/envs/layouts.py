"""Mazes as text: `#` wall, `r` start, `g` goal, `.` free. A new maze is a few lines here."""

U = """
#####
#rgg#
###g#
#ggg#
#####
"""

BIG = """
########
#rg##gg#
#gg#ggg#
##ggg###
#gg#ggg#
#g#gg#g#
#ggg#gg#
########
"""

HARDEST = """
############
#rggg#ggggg#
#g##g#g#g#g#
#gggggg#ggg#
#g####g###g#
#gg#g#ggggg#
##g#g#g#g###
#gg#ggg#ggg#
############
"""

# The evaluation layouts keep only far goals.
U_EVAL = """
#####
#r..#
###.#
#ggg#
#####
"""

BIG_EVAL = """
########
#r.##gg#
#..#.gg#
##...###
#..#...#
#.#g.#g#
#.gg#gg#
########
"""

LAYOUTS: dict[str, str] = {"u_maze": U, "big_maze": BIG, "hardest_maze": HARDEST}
EVAL_LAYOUTS: dict[str, str] = {"u_maze": U_EVAL, "big_maze": BIG_EVAL}

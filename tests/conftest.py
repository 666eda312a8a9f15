"""For every test: an array that changes its rank by itself is a mistake."""

import jax

jax.config.update("jax_numpy_rank_promotion", "raise")

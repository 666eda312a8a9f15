"""One backbone for all three networks; depth, LayerNorm and residual connections by config."""

from collections.abc import Callable

import flax.linen as nn

from dcp.types import Array

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {"swish": nn.swish, "relu": nn.relu}

# Uniform within sqrt(1 / fan_in).
KERNEL_INIT = nn.initializers.variance_scaling(1 / 3, "fan_in", "uniform")


class MLP(nn.Module):
    width: int
    depth: int
    out: int
    activation: str = "swish"
    layer_norm: bool = False
    residual_every: int = 0

    @nn.compact
    def __call__(self, x: Array) -> Array:
        skip = x
        for layer in range(self.depth):
            x = nn.Dense(self.width, kernel_init=KERNEL_INIT, name=f"hidden_{layer}")(x)
            if self.layer_norm:
                x = nn.LayerNorm(name=f"norm_{layer}")(x)
            x = ACTIVATIONS[self.activation](x)
            if layer == 0:
                skip = x
            elif self.residual_every and layer % self.residual_every == 0:
                x = skip = x + skip
        return nn.Dense(self.out, kernel_init=KERNEL_INIT, name="out")(x)

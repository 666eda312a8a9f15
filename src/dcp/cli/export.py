"""`dcp export`: write a trained policy as one file that runs without dcp."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from dcp.cli.flags import POSITIONAL, Burst, parse
from dcp.cli.main import COMMANDS
from dcp.errors import UserError


@dataclass(frozen=True)
class ExportOptions:
    run: Annotated[str, POSITIONAL] = ""
    """A run's folder, a policy file, or zoo/<env>/<method>."""
    format: Literal["onnx", "stablehlo", "numpy"] | None = None
    """onnx: runs in onnxruntime. stablehlo: needs only JAX. numpy: needs only NumPy, and is the fastest. Default:
    what the ending of --out says (.onnx, .stablehlo, .npz), else onnx."""
    out: Path | None = None
    """Default: policy.onnx, policy.stablehlo or policy.npz in the run's folder."""
    burst: Burst = None
    """P L: the file asks its runtime for random actions in the last L of every P steps. Without values: 100 10."""


def main(argv: list[str]) -> int:
    options = parse(ExportOptions(), argv, "dcp export", COMMANDS["export"])
    if not options.run:
        raise UserError("nothing to export: name a run's folder or a policy file")
    from dcp.policies.exports import export_policy, format_of
    from dcp.policies.policy_file import load_policy

    form = options.format or ("onnx" if options.out is None else format_of(options.out))
    if options.out is not None and not options.out.parent.is_dir():
        raise UserError(f"there is no folder {options.out.parent}: make it first, or choose another --out")
    out = export_policy(options.run, form, options.out, options.burst)
    spec = load_policy(options.run).spec
    sizes = f"state [{spec.state_size}], goal [{spec.goal_size}] -> action [{spec.action_size}]"
    period, length = options.burst or (0, 0)
    burst = f", random in the last {length} of every {period} steps" if length else ""
    print(f"Wrote {out} ({out.stat().st_size / 1000:,.0f} kB): {sizes}{burst}.")
    return 0

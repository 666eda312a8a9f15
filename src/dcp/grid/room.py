"""What runs at once on one machine: cores, memory and GPUs, given out and taken back."""

from dataclasses import dataclass, field

from dcp.errors import UserError
from dcp.grid.jobs import Job, Resources

_ROUNDING = 1e-6  # three times a third of a GPU fits into one


@dataclass
class Room:
    """What is left. `gpus`: by index, the share of each that is free."""

    cores: int
    memory_bytes: int | None = None  # None: nobody knows, so nothing is bounded by it
    gpus: dict[str, float] = field(default_factory=dict)
    most: int | None = None  # jobs at once

    def take(self, needed: Resources) -> tuple[str, ...] | None:
        """-> the GPUs for this job; None where there is no room for it now"""
        if needed.cores > self.cores or (self.most is not None and self.most < 1):
            return None
        if self.memory_bytes is not None and needed.memory_bytes > self.memory_bytes:
            return None
        chosen = self._gpus(needed.gpus)
        if chosen is None:
            return None
        self._change(needed, chosen, -1)
        return chosen

    def give_back(self, needed: Resources, chosen: tuple[str, ...]) -> None:
        self._change(needed, chosen, +1)

    def _change(self, needed: Resources, chosen: tuple[str, ...], sign: int) -> None:
        self.cores += sign * needed.cores
        self.most = None if self.most is None else self.most + sign
        self.memory_bytes = None if self.memory_bytes is None else self.memory_bytes + sign * needed.memory_bytes
        for index in chosen:
            self.gpus[index] += sign * min(needed.gpus, 1.0)

    def _gpus(self, share: float) -> tuple[str, ...] | None:
        """The fullest GPUs in which it still has room: whole ones stay free for those that need them whole."""
        count, each = (int(share), 1.0) if share >= 1 else (int(share > 0), share)
        free = sorted((left, index) for index, left in self.gpus.items() if left >= each - _ROUNDING)
        return tuple(index for _, index in free[:count]) if len(free) >= count else None


def require_room(room: Room, jobs: list[Job]) -> None:
    """Every job must fit into the empty machine, or it would wait for ever."""
    for job in jobs:
        needed = job.resources
        if needed.cores > room.cores:
            raise UserError(f"a run is to have {needed.cores} cores, but there are {room.cores}: lower --cores-per-run")
        if room.memory_bytes is not None and needed.memory_bytes > room.memory_bytes:
            raise UserError(
                f"{job.name} needs about {needed.memory_bytes / 1e9:.1f} GB, but there are "
                f"{room.memory_bytes / 1e9:.3g} GB: lower its replay_rows or num_envs, or raise --memory"
            )
        if needed.gpus > len(room.gpus) + _ROUNDING:
            raise UserError(
                f"a run is to have {needed.gpus:g} GPUs, but there are {len(room.gpus)}: lower --gpus-per-run"
            )

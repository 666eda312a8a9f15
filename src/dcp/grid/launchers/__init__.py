"""Where jobs run: here (local), on a Ray cluster (ray), under SLURM (slurm)."""

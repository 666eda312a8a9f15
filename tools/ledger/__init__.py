"""The ledger of results: one folder per submitted run, which anyone can check, evaluate again and rerun.

    results/<env>/<method>/seed_<n>_<id>/
      config.json, metrics.csv, policy.safetensors    as the run left them
      entry.json                                      who ran it, how, checksums, and the evaluation that was repeated
    results/README.md                                 the tables, written by `dcp results check --write`

An entry is a run folder without checkpoints, so `dcp report results`, `dcp eval` and `dcp train --config` read it.
"""

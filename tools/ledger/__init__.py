"""The ledger of results: one folder per submitted run, which anyone can check, evaluate again and train again.

    ledger/<env>/<method>/seed_<n>_<id>/
      config.json, metrics.csv, policy.safetensors    as the run left them
      entry.json                                      who ran it, how, checksums, and the evaluation that was repeated
    ledger/README.md                                  the tables, written by `python -m tools.ledger check --write`

An entry is a run folder without checkpoints, so `dcp report ledger`, `dcp eval` and `dcp train --config` read it.
Entries come from strangers: checking one reads its files and never imports or calls what they name.
"""

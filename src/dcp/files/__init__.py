"""What a run folder holds, and how files of strangers are read."""

CONFIG_FILE = "config.json"
METRICS_FILE = "metrics.csv"
POLICY_FILE = "policy.safetensors"
POLICIES_DIR = "policies"  # of `--keep-policies`: the policy of each evaluation, by environment steps
PLOTS_DIR = "plots"
CHECKPOINTS_DIR = "checkpoints"
TENSORBOARD_DIR = "tensorboard"
FAULT_FILE = "fault.json"
TRACKING_FILE = "tracking.json"  # which run it is at W&B and trackio

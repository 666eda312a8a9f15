"""A policy of dcp in LeRobot: importing this registers the type `dcp`. LeRobot's commands import it themselves."""

from lerobot_policy_dcp.configuration_dcp import DcpConfig

__all__ = ["DcpConfig"]

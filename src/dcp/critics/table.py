"""All critics by name."""

from dcp.components import Table
from dcp.critics.contrastive import Contrastive
from dcp.critics.quasimetric import TMD, Quasimetric
from dcp.critics.survival import SRL, ChronoSRL
from dcp.critics.td_infonce import TDInfoNCE
from dcp.critics.value import GCBC, SAC, TD3

CRITICS = Table(
    "critic",
    {
        "contrastive": Contrastive,
        "quasimetric": Quasimetric,
        "tmd": TMD,
        "srl": SRL,
        "chronosrl": ChronoSRL,
        "sac": SAC,
        "td3": TD3,
        "td_infonce": TDInfoNCE,
        "gcbc": GCBC,
    },
)

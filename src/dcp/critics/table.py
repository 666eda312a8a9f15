"""Every critic by name."""

from dcp.components import Table
from dcp.critics.contrastive import Contrastive
from dcp.critics.quasimetric import TMD, Quasimetric

CRITICS = Table("critic", {"contrastive": Contrastive, "quasimetric": Quasimetric, "tmd": TMD})

"""`dcp doctor`: one small file a kind of check; `command` puts them in order and shows what they found."""

from dcp.cli.doctor.command import main as main

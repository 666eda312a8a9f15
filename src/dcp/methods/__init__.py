"""The paper: commands, conditions and the table that names them."""

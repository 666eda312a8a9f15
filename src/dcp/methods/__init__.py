"""The paper's methods: commands, conditions and the table that combines them."""

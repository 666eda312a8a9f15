"""How XLA compiles our programs, and where it keeps them: for every command that runs one."""

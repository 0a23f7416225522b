"""How the core reads the five documents: one test for each settled row, driven without a clock."""

"""Where state lives. The gate is the only writer of it: a decision is stored as a whole or not at all."""

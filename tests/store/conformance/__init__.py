"""What every store must do, whatever it is made of: one suite, and one entry for each driver."""

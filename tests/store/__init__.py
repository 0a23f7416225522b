"""The store: real files and databases, and other processes that write to them."""

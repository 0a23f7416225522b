"""The machines: against their own tables, and against the documents restated by hand."""

"""The steps that bring a database from one version of its tables to the next. Steps are never edited."""

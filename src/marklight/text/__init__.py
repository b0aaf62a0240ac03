"""Text functions shared by documents, queries and all engines: analyzer, dates, globs, languages, lines, markup."""

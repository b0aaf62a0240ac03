"""The PostgreSQL engine: one server for many people, one schema for each library."""

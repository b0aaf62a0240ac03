"""Client configuration: add Marklight to the configuration files of assistants, and install its skill file."""

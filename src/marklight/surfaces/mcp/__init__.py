"""The protocol of assistants: tools, resources and prompts over the same verbs as everywhere."""

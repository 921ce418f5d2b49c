"""The client of the Sprites API. It does not know why it is called."""

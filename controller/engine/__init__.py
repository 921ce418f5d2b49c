"""Where time passes: observe, plan, apply, write the status once."""

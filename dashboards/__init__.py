"""What people look at: in the terminal now."""

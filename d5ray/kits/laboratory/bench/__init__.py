"""`d5ray bench`: what is measured, for how long, and in how many fresh processes."""

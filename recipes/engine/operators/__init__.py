"""`d5ray bench operators`: which problems are measured, for how long, and in how many processes."""

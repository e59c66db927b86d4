"""Parameter servers as actors, and the driver's side of them"""

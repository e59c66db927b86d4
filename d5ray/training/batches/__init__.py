"""From epochs to batches: how many, of which size, loaded ahead, with repeatable randomness"""

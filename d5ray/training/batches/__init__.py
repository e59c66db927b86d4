"""The way from epochs to batches: how many, of which size, loaded ahead, with repeatable randomness"""

"""Events of a training, at its hook points: stopping, checkpoints, curves, and one's own"""

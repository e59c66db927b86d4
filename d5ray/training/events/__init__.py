"""What happens around a training, at its hook points: stopping, checkpoints, curves, and one's own events"""

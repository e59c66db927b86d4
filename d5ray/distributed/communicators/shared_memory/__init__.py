"""The parts of the shared-memory communicator: segments, flags, meetings, lanes between members"""

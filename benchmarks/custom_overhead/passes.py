"""Which passes of an operator are timed, as tables and criteria name them"""

FORWARD, BOTH = "forward", "forward and backward"

"""The parts of a report, one file each: every one makes a section of what the runs have, or none"""

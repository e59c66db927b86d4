"""The command line: a file for each command, and the application that has them all"""

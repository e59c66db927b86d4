"""The record of a run: rows, columns, the Arrow schema, the folder and its reader"""

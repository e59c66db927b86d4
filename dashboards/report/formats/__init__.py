"""The formats of a report: a page, a text, and how figures look"""

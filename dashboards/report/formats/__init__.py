"""What a report becomes: a page, a text, and how figures look"""

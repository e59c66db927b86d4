"""What nobody foresaw: one sentence for people, the traceback in a file"""

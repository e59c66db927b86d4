"""Ray itself: how a program starts or joins it, notices its end and leaves nothing behind"""

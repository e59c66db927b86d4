"""DeepBench's sizes as problems to measure"""

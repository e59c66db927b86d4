"""Data sets: published ones in memory; images in folders, Parquet and made-up samples of any size"""

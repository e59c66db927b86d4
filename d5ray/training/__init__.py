"""Level 2: data sets, samplers, transformations, optimizers, schedules, events"""

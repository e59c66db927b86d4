"""Level-2 optimizers: rules by which a gradient becomes new parameters, one family a file"""

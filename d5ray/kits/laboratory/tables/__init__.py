"""Tables and figures of the laboratory: contenders, calls, studies, profiles, scaling"""

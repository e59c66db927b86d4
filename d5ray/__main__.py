"""`python -m d5ray` and `d5ray`: the command line, or one line where it cannot be loaded"""

from d5ray.failures.interrupts import repeat_lost_interrupts

repeat_lost_interrupts()
try:
    from d5ray.cli.app import main
except Exception as error:  # a package is broken, or a file of the user's has its name
    import sys

    from d5ray.failures.tracebacks import say_unloadable

    sys.exit(say_unloadable(error))

if __name__ == "__main__":
    main()

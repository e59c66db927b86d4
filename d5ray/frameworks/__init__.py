"""One adapter a framework; a framework is imported when something of it is asked for, not before."""

"""Authentication on a run's sockets: a secret of the run, a handshake that proves it, frames bound to it"""

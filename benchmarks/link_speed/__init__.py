"""How quickly agents on hosts of their own sum arrays: sockets, plain and under TLS, against gloo."""

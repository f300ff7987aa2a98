"""HTTP/1.1 as it is spoken to clients that are not trusted: a uvicorn protocol with limits and deadlines.

`protocol.py` is the connection; `head.py` says what a request may look like, `refusals.py` what is answered to
what is none, `allowance.py` how slow a client may be, `connections.py` how many there may be, `limits.py` has
every number.
"""

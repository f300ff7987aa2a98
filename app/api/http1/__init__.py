"""HTTP/1.1 as it is spoken to clients that are not trusted: a uvicorn protocol with limits and deadlines.

`protocol.py` is the connection, `receiving.py` the half of it that takes requests in; `head.py` says what a
request may look like, `refusals.py` what is answered to what is none; `cycle.py` writes the answers of the
application; `access_log.py` tells of each; `deadlines.py` and `allowance.py` say how slow a client may be,
`connections.py` how many there may be, and `limits.py` has every number.

Three classes here extend uvicorn's own (`HttpToolsProtocol`, `RequestResponseCycle`, `FlowControl`), which it
does not promise to keep. `pyproject.toml` therefore caps uvicorn, and `tests/unit/api/http1/test_uvicorn.py`
lists every name that they use of it.
"""

"""
The account: what has happened since the server started, as plain numbers.
"""

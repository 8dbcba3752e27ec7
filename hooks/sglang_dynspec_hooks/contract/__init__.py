"""
What this package relies on in SGLang, and how that is checked.

A `seam` states what is hooked and why; `comparison` holds every seam, and every function that is
called or overridden, against the installed SGLang's `source`; `version` knows which releases are
supported.
"""

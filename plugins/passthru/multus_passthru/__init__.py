"""The delegate ``passthru``: it makes nothing, and answers with the previous result, or with an empty one.

At the head of a plugin list it lets chained plugins (``tuning``, ``sbr``) work on an interface that exists already.
"""

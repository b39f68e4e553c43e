"""The drain: how long an engine may keep working once its Pod is being deleted.

Called by the preStop hook (`hook`, in a zip application that `bundle` builds), by the sidecar's `/drain` (`endpoint`)
and by `infscale drain`. Runs on Python 3.9, but for what only the sidecar and the command line need.
"""

"""Stands in for ``/var/runtime/bootstrap.py`` of a managed Python runtime: runs ``_HANDLER`` on awslambdaric.

awslambdaric is the one in the function's bundle, since nothing else is in sight.
"""

import os
import sys

if __name__ == "__main__":
    sys.path[:1] = [os.environ["LAMBDA_TASK_ROOT"]]
    from awslambdaric.__main__ import main

    main([sys.argv[0], os.environ["_HANDLER"]])

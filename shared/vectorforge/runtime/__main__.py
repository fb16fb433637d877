"""``python -m vectorforge.runtime <module>.<handler>``: run a Lambda function whose handler may stream."""

import sys

from vectorforge.runtime.process import main

if __name__ == "__main__":
    main(sys.argv)

"""`python -m dlviz` is the command `dlviz`."""

import os
import signal
import sys
from types import FrameType


def main() -> int:
    """Run the command. An interrupt ends it immediately, but during a run `launch` handles it. (A
    module that is loading could swallow the exception and stay half loaded.)"""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else it is ignored
        signal.signal(signal.SIGINT, _leave)
    from dlviz.cli import main as command

    return command()


def _leave(number: int, frame: FrameType | None) -> None:
    if os.environ.get("LOCAL_RANK", "0") == "0":  # else torchrun's process 0 says it
        os.write(2, b"dlviz: interrupted\n")
    start = sys.modules.get("dlviz.cluster.parent.start")
    getattr(start, "end_server", lambda: None)()
    os._exit(130)


if __name__ == "__main__":
    sys.exit(main())

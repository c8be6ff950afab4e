"""A trainer that kills its site: travels in the job of the simulator's test, so it stands alone."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from nvflare.apis.executor import Executor


class Dying(Executor):
    """The first site that is told to train dies, as one that loses its power; others train as in the example."""

    def __init__(self, folder="", code=""):
        super().__init__()
        self.folder, self.code = folder, code

    def execute(self, task_name, shareable, fl_ctx, abort_signal):
        name, mark = fl_ctx.get_identity_name(), Path(self.folder).parent / "dead.txt"
        try:
            with mark.open("x") as file:
                file.write(name)
        except FileExistsError:
            if mark.read_text() != name:
                sys.path.insert(0, self.code)
                trainer = __import__("trainer").Trainer(self.folder)
                return trainer.execute(task_name, shareable, fl_ctx, abort_signal)
        os._exit(1)

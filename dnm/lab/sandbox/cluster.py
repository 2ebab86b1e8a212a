"""The embedded cluster behind HTTP, and the thread that advances it in real time.

`Sandbox(directory)` is a whole cluster in this process; `start()` makes it listen on loopback. With
a manual clock, time advances only by `tick()`, so that tests need not sleep and are repeatable. In
real time, a thread executes what is due."""

from __future__ import annotations

import threading
import time
import traceback
from pathlib import Path

from dnm.lab.sandbox.access import AccessRules
from dnm.lab.sandbox.api import Api
from dnm.lab.sandbox.clock import Timing
from dnm.lab.sandbox.control import Control
from dnm.lab.sandbox.embedded import EmbeddedCluster
from dnm.lab.sandbox.files import converter_text, kubeconfig_text, write_file
from dnm.lab.sandbox.http_server import HttpServer
from dnm.lab.sandbox.http_values import Request, ServerAnswer, error_answer
from dnm.lab.sandbox.store import ApiError
from dnm.lab.sandbox.yunikorn_api import YunikornApi

_IDLE_SECONDS = 5.0
_STEP_PAUSE_SECONDS = 0.02


class Sandbox(EmbeddedCluster):
    """A cluster with an HTTP server; `tests/conftest.py` has the fixture, the README the command.
    It inherits all methods of the embedded cluster for tests."""

    def __init__(
        self,
        directory: Path,
        *,
        manual: bool = True,
        speed: float = 1.0,
        seed: int = 0,
        port: int = 0,
        timing: Timing | None = None,
    ) -> None:
        super().__init__(directory, manual=manual, speed=speed, seed=seed, timing=timing)
        self.access = AccessRules()
        self.api = Api(self.store, self.access, self.admission)
        self.yunikorn_api = YunikornApi(self.store, self.scheduler, self.yunikorn)
        self.control = Control(self)
        self.server = HttpServer(self.handle, self.faults, self.clock, port)
        self._thread: threading.Thread | None = None
        self._stopping = False

    # --- HTTP -------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def kubeconfig(self) -> Path:
        return self.directory / "kubeconfig"

    def start(self) -> Sandbox:
        """Listens on loopback and writes the kubeconfig; raises SandboxError for a taken port."""
        self.server.start()
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_file(self.kubeconfig, kubeconfig_text(self.url))
        write_file(self.node_convert_path, converter_text(self.url), mode=0o700)
        if not self.clock.manual:
            self._stopping = False
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()
        return self

    def stop(self) -> None:
        self._stopping = True
        self.server.stop()
        if self._thread is not None:
            with self.store.changed:
                self.store.changed.notify_all()
            self._thread.join()
            self._thread = None

    def handle(self, request: Request) -> ServerAnswer:
        try:
            if request.path.startswith("/sandbox"):
                answer = self.control.handle(request)
            elif request.path.startswith("/ws/v1"):
                with self.lock:
                    answer = self.yunikorn_api.handle(request)
            else:
                with self.lock:
                    answer = self._answer_api(request)
        except ApiError as error:
            answer = error_answer(error)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            problem = f"an object of another shape was expected: {error!r}"
            answer = error_answer(ApiError(400, problem))
        self.requests.note(request, answer.code)
        return answer

    def _answer_api(self, request: Request) -> ServerAnswer:
        steps = request.path.strip("/").split("/")
        is_node_deletion = request.method == "DELETE" and steps[:-1] == ["api", "v1", "nodes"]
        if is_node_deletion and self.store.get("nodes", "", steps[-1]) is not None:
            self.conversion.note_pods(steps[-1], request.headers.get("user-agent", "a client"))
        return self.api.handle(request)

    @property
    def node_convert_path(self) -> Path:
        """Returns the path of the executable that implements the converter's contract."""
        return self.directory / "node-convert"

    def _run(self) -> None:
        """Runs a step after every change and at every due time, in the thread of real time."""
        seen = -1
        while not self._stopping:
            with self.store.changed:
                due = self.clock.next_due()
                waits = _IDLE_SECONDS if due is None else max(0.0, due - self.clock.now())
                if self.store.version == seen and waits > 0:
                    self.store.changed.wait(min(waits, _IDLE_SECONDS))
                try:
                    self.step()
                except Exception:  # a step that fails must not end the cluster's time
                    traceback.print_exc()
                seen = self.store.version
            time.sleep(_STEP_PAUSE_SECONDS)

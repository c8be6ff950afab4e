"""Controller: a workflow of NVFlare that asks for releases first and then knows the chosen sites only."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from nvflare.app_common.abstract.fl_model import FLModel
from nvflare.app_common.workflows.fedavg import FedAvg

from ..coordinator.choice import Choice
from ..coordinator.federation import Federation, Turnover
from ..coordinator.gathering import gather
from ..coordinator.inquiry import Waiting
from ..errors import FedwiseError
from ..planning import Plan
from ..training.records import Record
from .channel import NVFlareChannel

_LOG = logging.getLogger("fedwise")


class Selected:
    """Put this in front of a `ModelController`: ``class Mine(Selected, Scaffold)``.

    Its sites are chosen before its first round; `sample_clients` gives the chosen ones, and a task for anybody else is
    an error. All settings are plain values, so that a job's configuration can hold them.

    Parameters
    ----------
    plan
        The public request: its JSON, or the path of a ``plan.json`` on the server.
    k
        Size of the federation.
    release_timeout, grace
        Seconds for the release phase; seconds to wait for stragglers once `min_releases` have answered.
    min_releases, expected
        Fewest releases to go on with (default `k`), and sites to wait for.
    round_timeout
        Seconds after which a round goes on without a site that does not deliver; 0 waits without end.
    selection
        For `fedwise.select`: ``{"seed": 0, "include": ["site-1"]}`` and the like. Of a plan with stages only a
        shortlist is asked again; ``{"shortlist": {"most": 10}}`` are keywords of `fedwise.shortlist`.
    substitutes, reselect
        As for `fedwise.flower.select_federation`.
    output
        Directory for what `fedwise report` reads. Default: nothing is written.
    kwargs
        For the controller behind. NVFlare's Job API knows them by this name.
    """

    def __init__(
        self,
        *args: Any,
        plan: str = "",
        k: int = 0,
        release_timeout: float = 600.0,
        grace: float | None = None,
        min_releases: int | None = None,
        expected: int | None = None,
        round_timeout: int = 0,
        selection: Mapping[str, Any] | None = None,
        substitutes: int = 0,
        reselect: int = 0,
        output: str = "",
        **kwargs: Any,
    ) -> None:
        # A refusal or a dead site must not end the job: who delivered is counted here.
        super().__init__(*args, **{"ignore_result_error": True, **kwargs})
        self.plan, self.k = plan, k
        self.release_timeout, self.grace = release_timeout, grace
        self.min_releases, self.expected = min_releases, expected
        self.round_timeout, self.selection = int(round_timeout), dict(selection or {})
        self.substitutes, self.reselect, self.output = substitutes, reselect, output
        self._federation: Federation | None = None
        self._asked: set[str] = set()
        self._delivered: set[str] = set()
        self._records: list[Record] = []

    @property
    def federation(self) -> Federation:
        """The chosen federation, once there is one."""
        if self._federation is None:
            raise FedwiseError("the federation is chosen when the workflow runs; it has not run yet")
        return self._federation

    def run(self) -> None:
        """Release, selection, then the controller's own rounds."""
        self._federation = self._form()
        super().run()  # type: ignore[misc]  # of the controller behind
        self._end_round()
        if self.output:
            self.federation.save(
                self.output, metrics=self._records, engine=f"NVFlare {version('nvflare')}", force=True
            )

    def sample_clients(self, num_clients: int | None = None) -> list[str]:
        """The chosen sites; members that did not deliver in the last round may be replaced first."""
        self._end_round()
        return [str(node) for node in self.federation.members.values()]

    def send_model(self, *args: Any, **given: Any) -> Any:
        """To chosen sites only, and not waiting for ever."""
        given = self._addressed(given)
        given["callback"] = self._noting(given.get("callback"))
        return super().send_model(*args, **given)  # type: ignore[misc]

    def send_model_and_wait(self, *args: Any, **given: Any) -> Any:
        """To chosen sites only, and not waiting for ever."""
        results = super().send_model_and_wait(*args, **self._addressed(given))  # type: ignore[misc]
        for result in results:
            self._note(result)
        return results

    def _addressed(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The keywords of a task with chosen sites as its targets."""
        members = [str(node) for node in self.federation.members.values()]
        names = [str(getattr(target, "name", target)) for target in given.get("targets") or members]
        others = sorted(set(names) - set(members))
        if others:
            raise FedwiseError(f"task must go to a chosen site, got '{others[0]}'; others get no tasks")
        self._asked, self._delivered = set(names), set()
        return {"timeout": self.round_timeout, **given, "targets": names}

    def _form(self) -> Federation:
        plan = self._plan()
        options = dict(self.selection)
        settings = dict(options.pop("shortlist", None) or {})
        choice = Choice(self.k, int(options.pop("seed", 0)), None, options)
        least = choice.least(self.min_releases)
        waiting = Waiting(self.release_timeout, self.grace, least, max(self.expected or 0, least), 0.2, _LOG)
        channel = NVFlareChannel(self)
        try:
            gathered = gather(
                channel, plan, waiting, least=least, again=lambda pool: choice.shortlist(pool, settings)
            )
        finally:
            channel.close()
        return Federation(
            channel, gathered, choice, waiting, turnover=Turnover(self.substitutes, self.reselect)
        )

    def _plan(self) -> Plan:
        if self.plan.lstrip().startswith("{"):
            return Plan.decode(self.plan.encode())
        return Plan.load(Path(self.plan))

    def _noting(self, callback: Any) -> Any:
        """Writes down who delivered before the controller takes the result."""
        if callback is None:
            return None

        def noted(result: FLModel) -> Any:
            self._note(result)
            return callback(result)

        return noted

    def _note(self, result: FLModel) -> None:
        name = str((result.meta or {}).get("client_name", ""))
        self._delivered.add(name)
        for metric, value in (result.metrics or {}).items():
            if isinstance(value, int | float):
                place = self.federation.rounds + 1
                self._records.append(Record(place, "training", name, str(metric), "", float(value)))

    def _end_round(self) -> None:
        if not self._asked:
            return
        names = {str(node): client for client, node in self.federation.nodes.items()}
        missing = {names[site]: "no answer in time" for site in self._asked - self._delivered}
        self._asked = set()
        self.federation.after_round(missing)


class SelectedFedAvg(Selected, FedAvg):  # type: ignore[misc]  # nvflare is not typed for us
    """NVFlare's FedAvg on the sites that were chosen before its first round. Settings: `Selected`, then FedAvg's."""

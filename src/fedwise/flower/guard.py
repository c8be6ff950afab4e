"""Guard: the owner's policy in front of every message a node receives, whoever wrote the app's handlers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Literal

from flwr.app import Context, Error, Message
from flwr.clientapp import ClientApp

from ..errors import FedwiseError
from ..owner.admission import Asked, admit
from ..owner.policies import Policies
from ..owner.policy import Declined, Policy, Refusal
from ..owner.replies import describe
from . import wire
from .secagg_wire import RECORD

_LOG = logging.getLogger("flwr")
#: Flower's code for an exception in a ClientApp.
_RAISED = 2
#: Flower routes ``query.fedwise_loss`` to ``@app.query("fedwise_loss")``.
LOSS_ACTION = "fedwise_loss"
FAILED = Refusal.FAILED.sentence
#: Key of the record in ``context.state`` that holds what this run's release said.
STATE = "fedwise.release"
#: Set while a message is handled that the guard of its app let pass: in the clear, or inside a masked sum.
_ADMITTED: ContextVar[Literal["no", "open", "masked"]] = ContextVar("fedwise_admitted", default="no")

#: The policy that the message at hand was admitted under: the one reading of it that handlers may act on.
_POLICY: ContextVar[Policy | None] = ContextVar("fedwise_policy", default=None)
#: Replies of fedwise's DP-SGD to the message at hand. Under `train_epsilon` nothing else leaves.
_PRIVATE: ContextVar[list[Message] | None] = ContextVar("fedwise_private", default=None)

Handler = Callable[[Message, Context], Message]


class GuardedApp(ClientApp):  # type: ignore[misc]  # flwr is not typed for us
    """A ClientApp that asks the owner's policy before any mod or handler sees a message."""

    fedwise_guard: Guard

    def __call__(self, message: Message, context: Context) -> Message:
        """Execute the app, if the policy allows the message."""
        return self.fedwise_guard(message, context, super().__call__)


class Guard:
    """Lets a message pass to an app, or answers it with a reason from a fixed list.

    Attributes
    ----------
    policy
        Where the app says the policy is; the node's own configuration goes first.
    private
        Types of messages that fedwise's DP-SGD answers. Flower refuses a second handler for a type; what mods
        around it make of the reply does not leave.
    releases
        Whether fedwise answers plans in this app; only then may a message ask for a release.
    """

    def __init__(self, policy: Any = None) -> None:
        self.policy = policy
        self.private: set[str] = set()
        self.releases = False

    def __call__(self, message: Message, context: Context, call_next: Handler) -> Message:
        """The app's answer, or a refusal."""
        kind = message.metadata.message_type
        asked = classify(kind)
        if asked is Asked.RELEASE and not self.releases:
            asked = Asked.OTHER  # somebody else's handler under our name
        masked = asked in (Asked.TRAINING, Asked.METRICS) and is_masked(message)

        def admitted(inner: Message, inner_context: Context) -> Message:
            if policy is not None:
                admit(policy, asked, name=kind, private=kind in self.private, masked=masked)
            replies: list[Message] = []
            tokens = (
                _ADMITTED.set("masked" if masked else "open"), _POLICY.set(policy), _PRIVATE.set(replies)
            )  # fmt: skip
            try:
                answer = call_next(inner, inner_context)
            finally:
                _ADMITTED.reset(tokens[0])
                _POLICY.reset(tokens[1])
                _PRIVATE.reset(tokens[2])
            if asked is Asked.TRAINING and policy is not None and policy.train_epsilon is not None:
                if not replies:
                    raise Declined(Refusal.HANDLER)  # a mod answered in its place
                return replies[-1]
            return answer

        policy: Policy | None = None
        try:
            if asked is Asked.RELEASE:  # a plan is checked, and declined, by the handler that reads it
                return admitted(message, context)
            policy = find_policy(self.policy, context)
            if not masked:
                return admitted(message, context)
            from .secagg_client import secagg_mod_for

            # The guard speaks the protocol itself, so that leaving the mod out of an app opens nothing, and what
            # the policy counts is counted once in a round: when the update is asked for.
            return secagg_mod_for(policy)(message, context, admitted)
        except Exception as cause:
            return refuse(message, cause)


def guard(app: ClientApp, *, policy: Any = None) -> Guard:
    """Put the owner's policy in front of `app`: of handlers it has, and of those it will get."""
    if not isinstance(app, GuardedApp):
        # In place: apps are module-level objects that Flower finds by name, decorated before and after this.
        app.__class__ = GuardedApp
        app.fedwise_guard = Guard(policy)
    found: Guard = app.fedwise_guard
    if found.policy is None:
        found.policy = policy
    return found


def guard_mod(message: Message, context: Context, call_next: Handler) -> Message:
    """A Flower mod that asks the node's policy, and keeps the text of exceptions on the node.

    Flower sends ``str(exception)`` of a failing handler to the server, and that text may quote a record.
    With ``ClientApp(mods=[guard_mod])`` the server gets a fixed sentence, the node's log the type. A node with
    a policy in its configuration answers what that policy allows, also in an app without `release_app`.
    """
    if _ADMITTED.get() == "no" and "policy" in context.node_config:
        guarded = Guard()
        guarded.releases = True  # by `release_mod`, or a handler that reads the plan
        return guarded(message, context, call_next)
    try:
        return call_next(message, context)
    except Exception as cause:
        return refuse(message, cause)


def is_masked(message: Message) -> bool:
    """Whether a message belongs to secure aggregation."""
    return message.has_content() and RECORD in message.content.config_records


def admitted_policy() -> Policy:
    """The policy the guard admitted the message at hand under. Raises `Declined` where no guard did."""
    found = _POLICY.get()
    if found is None:
        raise Declined(Refusal.POLICY)
    return found


def hand_over(reply: Message) -> None:
    """Give the guard a reply of DP-SGD, past whatever mods stand between."""
    replies = _PRIVATE.get()
    if replies is not None:
        replies.append(reply)


def masked_already() -> bool:
    """Whether the guard of the app masks the answer to the message at hand."""
    return _ADMITTED.get() == "masked"


def classify(kind: str) -> Asked:
    """What a message of this type wants."""
    if kind == wire.MESSAGE_TYPE:
        return Asked.RELEASE
    category = kind.split(".")[0]
    if category == "train":
        return Asked.TRAINING
    if category == "evaluate" or kind == f"query.{LOSS_ACTION}":
        return Asked.METRICS
    return Asked.OTHER


def refuse(message: Message, cause: Exception) -> Message:
    """An error with a sentence from the fixed list; the node's log says more."""
    kind = message.metadata.message_type
    if isinstance(cause, Declined):
        _LOG.warning("fedwise: declined a %s message: %s", kind, cause.refusal.sentence)
        return Message(Error(code=_RAISED, reason=cause.refusal.sentence), reply_to=message)
    _LOG.error("fedwise: a %s message failed with %s", kind, describe(cause))
    return Message(Error(code=_RAISED, reason=FAILED), reply_to=message)


def find_policies(source: Any, context: Context) -> Policies:
    """The owner's policies: the node's own configuration first, then the app's. Raises `Declined`."""
    try:
        found = context.node_config.get("policy") or (source(context) if callable(source) else source)
        if found is None:
            raise FedwiseError("no policy file; name one with --node-config 'policy=\"policy.toml\"'")
        if isinstance(found, Policies):
            return found
        return Policies([found]) if isinstance(found, Policy) else Policies.load(str(found))
    except Exception as cause:
        _LOG.error("fedwise: the policy cannot be used: %s", describe(cause))
        raise Declined(Refusal.POLICY) from None


def find_policy(source: Any, context: Context) -> Policy:
    """The one policy that holds for a message; of several, that of the plan answered last in this run.

    Raises `Declined` where a node has several policies and answered no plan in this run.
    """
    found = find_policies(source, context)
    said = context.state.config_records.get(STATE, {}) if len(found) > 1 else {}
    return found.named(said.get("policy"))

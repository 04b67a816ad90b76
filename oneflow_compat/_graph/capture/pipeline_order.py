"""Put the operators of a captured step into the order of a pipeline's schedule.

A capture records the micro batches one after another. In this program of the first of two stages, the rank
waits for the gradient of micro batch 0 before it computes forward of micro batch 1:

    h0 = forward(x0); send(h0); g0 = receive(); backward(g0); h1 = forward(x1); send(h1); ...

Each operator is part of forward or of backward of one micro batch. The parts move as a whole:

    h0 = forward(x0); send(h0); h1 = forward(x1); send(h1); g0 = receive(); backward(g0); ...

Sends and receives are asynchronous broadcasts on the routes of `_global/stage_transfers.py`. A receive
starts one part before the one that needs it. The wait for the end of a send comes later: in backward of the
same micro batch. If a gradient was sent, it comes as many backward parts later as there are stages.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.fx import Node

from ..._global.stage_routes import routes
from ..errors import UsageError
from ..pipeline_plan import Action
from ..program.operators import communicates
from ..program.passes.cleanup import drop_dead, has_effect
from ..program.passes.patterns import base_of
from ..program.program import written_args
from ..program.random_functions import PYTHON_NAMES, get_cpu_state, samples, set_cpu_state

if TYPE_CHECKING:
    from ..pipeline_plan import PipelinePlan
    from ..program.program import Program

_STATE_FUNCTIONS = frozenset(PYTHON_NAMES.values())
_STATISTICS: dict[
    object, tuple[tuple[int, ...], int]
] = {  # operator -> positions of the statistics that it takes and does not read in training
    torch.ops.aten.native_batch_norm_backward.default: ((3, 4), 7),
    torch.ops.aten.batch_norm_backward.default: ((3, 4), 7),
}


def in_pipeline_order(
    program: Program, plan: PipelinePlan, rank: int, overlaps: Iterable[tuple[int, int]]
) -> Program:
    """Return the program with its operators in the order of the plan's actions for this rank.

    `overlaps`: pairs of slots in the same memory.
    """
    program = drop_dead(program)
    _Order(program, plan, rank, overlaps).apply()
    return program.with_(pipeline=plan)


@dataclass
class _Parts:
    """The nodes of a program by the part that they belong to."""

    before: list[Node] = field(default_factory=list)  # before the first micro batch
    of_action: dict[Action, list[Node]] = field(default_factory=dict)
    after: list[Node] = field(default_factory=list)  # the results, and the update


class _Order:
    """The new order of one program."""

    def __init__(
        self, program: Program, plan: PipelinePlan, rank: int, overlaps: Iterable[tuple[int, int]]
    ) -> None:
        self.graph, self.plan, self.rank = program.graph, plan, rank
        self.old = {node: i for i, node in enumerate(self.graph.nodes)}
        inputs = program.placeholders
        self.same_memory: dict[Node, Node] = {}  # an input -> another one in the same memory
        for i, j in sorted(overlaps):
            self.same_memory[inputs[j]] = self.same_memory.get(inputs[i], inputs[i])
        self.stage = plan.stage_of(rank)
        self.parts, self.action_of = _Parts(), dict[Node, Action]()
        self._assign()

    def apply(self) -> None:
        """Compute the order, check that it keeps every value, and move the nodes."""
        self._share_inputs()
        late = self._late_results()
        self._check_routes()
        posts = self._posts()
        waits, last_waits = self._waits_of_sends()
        moved = late | waits.keys() | {node for nodes in posts.values() for node in nodes}
        order = list(self.parts.before)
        actions = self.plan.actions
        order += posts.get(actions[0], [])
        for action, following in itertools.zip_longest(actions, actions[1:]):
            order += posts.get(following, [])
            order += [node for node, at in waits.items() if at == (action, "begin")]
            order += [node for node in self.parts.of_action.get(action, ()) if node not in moved]
            order += [node for node, at in waits.items() if at == (action, "end")]
        order += last_waits
        order += sorted(late, key=self.old.__getitem__)
        order += self.parts.after
        self._check(order)
        self._move(order)

    # -- parts -----------------------------------------------------------------------
    def _assign(self) -> None:
        """Give each node its part. A node that the recorder did not annotate follows the one before it."""
        parts, action, has_begun = self.parts, None, False
        for node in self.graph.nodes:
            if node.op in ("placeholder", "output"):
                continue
            if node.op == "get_attr":
                parts.before.append(node)
                continue
            if "phase" in node.meta:
                micro_batch = node.meta.get("micro_batch")
                action = None if micro_batch is None else Action(node.meta["phase"], micro_batch)
                has_begun = has_begun or action is not None
            if action is not None:
                parts.of_action.setdefault(action, []).append(node)
                self.action_of[node] = action
            else:
                (parts.after if has_begun else parts.before).append(node)

    def _share_inputs(self) -> None:
        """Run collectives of several stages on the arguments of the call before the first micro batch.

        UsageError for a collective of several stages on computed values, which no order of the parts allows.
        """
        for node in [node for node in self.action_of if self._joins_stages(node)]:
            cone = self._cone(node)
            computed = [n for n in cone if n is not node and has_effect(n) and n.target is not _WAIT]
            if self.action_of[node].part != "forward" or computed:
                location = node.meta.get("location")
                raise UsageError(
                    f"build() makes ranks of several pipeline stages exchange a computed tensor"
                    f" ({node.target})",
                    "Compute it inside one stage, and move it to a later one with to_global(placement=...).",
                    location,
                )
            for member in cone:
                self.parts.of_action[self.action_of.pop(member)].remove(member)
                self.parts.before.append(member)

    def _joins_stages(self, node: Node) -> bool:
        """Whether a node is a collective of ranks of several stages, and no move between two of them."""
        if not communicates(node.target) or node.target is _WAIT:
            return False
        name: Any = node.args[-1]
        if name in routes:
            return False
        ranks = dist.get_process_group_ranks(dist.distributed_c10d._resolve_process_group(name))
        return len({self.plan.stage_of(rank) for rank in ranks}) > 1

    def _cone(self, node: Node) -> list[Node]:
        """Return a node of a part with all nodes of parts that it is computed from, in order."""
        cone, todo = {node}, [node]
        while todo:
            for source in todo.pop().all_input_nodes:
                if source in self.action_of and source not in cone:
                    cone.add(source)
                    todo.append(source)
        return sorted(cone, key=self.old.__getitem__)

    # -- sends and receives ------------------------------------------------------------
    def _check_routes(self) -> None:
        """Raise if a route serves both forward and backward, because its ends would order these differently.

        A move that a checkpoint computes again in backward is such a case.
        """
        part_of: dict[str, str] = {}
        for node in [*self._transfers(sends=True), *self._transfers(sends=False)]:
            route, part = str(node.args[-1]), self.action_of[node].part
            if part_of.setdefault(route, part) != part:
                raise UsageError(
                    "backward moves a tensor between pipeline stages in the direction of forward, as in a"
                    " checkpoint that contains a move",
                    "Move tensors before the call that is computed again, or set activation_checkpointing on"
                    " the blocks of one stage.",
                    node.meta.get("location"),
                )

    def _transfers(self, sends: bool) -> list[Node]:
        """Return the broadcasts on routes that this rank sends, or those that it receives."""
        return [
            node
            for node in self.action_of
            if communicates(node.target)
            and node.target is not _WAIT
            and str(node.args[-1]) in routes
            and (routes[str(node.args[-1])].source == self.rank) is sends
        ]

    def _late_results(self) -> set[Node]:
        """Return what is computed from forward values of later stages: results, which are needed at the end.

        UsageError if more than results depend on them, because then data passes the stages backward.
        """
        late: set[Node] = set()
        for node in self._transfers(sends=False):
            source = self.plan.stage_of(routes[str(node.args[-1])].source)
            if self.action_of[node].part != "forward" or not self._is_later(source):
                continue
            dependent = self._dependent(node)
            if any(has_effect(n) and n.target is not _WAIT for n in dependent):
                raise UsageError(
                    f"build() moves a tensor from stage {source} back to stage {self.stage} and computes with"
                    " it there",
                    "Number the stages in the order in which data passes them. Return such a tensor without"
                    " another computation, and call backward() on the loss of the last stage.",
                    node.meta.get("location"),
                )
            late |= dependent
        return late

    def _is_later(self, source: int | None) -> bool:
        return source is not None and self.stage is not None and source > self.stage

    def _dependent(self, node: Node) -> set[Node]:
        """Return the nodes of parts that are computed from a node, without the node itself."""
        dependent: set[Node] = set()
        todo = [node]
        while todo:
            for user in todo.pop().users:
                if user in self.action_of and user not in dependent:
                    dependent.add(user)
                    todo.append(user)
        return dependent

    def _posts(self) -> dict[Action, list[Node]]:
        """Return the nodes that start the receives of each action: an empty tensor and its broadcast."""
        posts: dict[Action, list[Node]] = {}
        for node in self._transfers(sends=False):
            action = self.action_of[node]
            sources = [n for n in node.all_input_nodes if self.action_of.get(n) == action]
            if all(not n.all_input_nodes and len(n.users) == 1 for n in sources):
                posts.setdefault(action, []).extend([*sources, node])
        return posts

    def _waits_of_sends(self) -> tuple[dict[Node, tuple[Action, str]], list[Node]]:
        """Return where this rank waits for the end of its sends: with an action, or after the last one."""
        waits: dict[Node, tuple[Action, str]] = {}
        last: list[Node] = []
        actions = set(self.plan.actions)
        for node in self._transfers(sends=True):
            dependent = self._dependent(node)
            if any(n.target is not _WAIT for n in dependent):
                continue  # the sender computes with the result
            part, micro_batch = self.action_of[node].part, self.action_of[node].micro_batch
            chain = sorted(dependent, key=self.old.__getitem__)
            if part == "forward":
                at = Action("backward", micro_batch), "begin"
            else:
                at = Action("backward", micro_batch + len(self.plan.placements)), "end"
            if at[0] in actions:
                waits.update(dict.fromkeys(chain, at))
            else:
                last += chain
                for member in chain:
                    waits[member] = at
        return waits, last

    # -- checks ----------------------------------------------------------------------
    def _check(self, order: list[Node]) -> None:
        """Raise unless the new order has every node once, after its inputs, and keeps reads and writes."""
        new = {node: i for i, node in enumerate(order)}
        moved = [n for n in self.old if n.op not in ("placeholder", "output")]
        assert len(order) == len(new) == len(moved), "the new order has each node once"
        for node in order:
            late = next((n for n in node.all_input_nodes if new.get(n, -1) > new[node]), None)
            if late is not None:
                self._refuse(node, "forward of a micro batch needs a value that backward computes")
        for accesses in self._accesses().values():
            writes = [node for node, is_write in accesses if is_write]
            if writes:
                self._check_accesses(accesses, new)

    def _accesses(self) -> dict[object, list[tuple[Node, bool]]]:
        """Return the nodes that read or write each memory, in order, and whether they write."""
        accesses: dict[object, list[tuple[Node, bool]]] = {}
        forked = self._forks_of_random_numbers()
        for node in self.old:
            if node.op != "call_function":
                continue
            if (samples(node.target) or node.target in _STATE_FUNCTIONS) and node not in forked:
                accesses.setdefault("random numbers", []).append((node, True))
            written = set(map(self._memory_of, written_args(node)))
            for source in {*map(self._memory_of, _read(node)), *written}:
                accesses.setdefault(source, []).append((node, source in written))
        return accesses

    def _memory_of(self, node: Node) -> Node:
        base = base_of(node)
        return self.same_memory.get(base, base)

    def _forks_of_random_numbers(self) -> set[Node]:
        """Return the random nodes of backward parts that leave the generator as they found it.

        Recomputation samples the numbers of forward again, and restores the generator.
        """
        forked: set[Node] = set()
        for action, nodes in self.parts.of_action.items():
            random = [n for n in nodes if samples(n.target) or n.target in _STATE_FUNCTIONS]
            if action.part == "backward" and _restores_generator(random):
                forked.update(random)
        return forked

    def _check_accesses(self, accesses: list[tuple[Node, bool]], new: dict[Node, int]) -> None:
        """Raise if a write and another access of the same memory have changed places."""
        latest = latest_write = -1
        for node, is_write in accesses:
            if new[node] < (latest if is_write else latest_write):
                self._refuse(node, "it reads or writes what another micro batch writes")
            latest = max(latest, new[node])
            if is_write:
                latest_write = max(latest_write, new[node])

    def _refuse(self, node: Node, why: str) -> None:
        raise UsageError(
            f"the schedule {self.plan.schedule!r} cannot move {node.target}: {why}",
            "Leave the stages out (then the micro batches run one after another), or change build().",
            node.meta.get("location"),
        )

    def _move(self, order: Iterable[Node]) -> None:
        last = next(reversed(self.graph.find_nodes(op="placeholder")), None)
        for node in order:
            if last is None:
                next(iter(self.graph.nodes)).prepend(node)
            else:
                last.append(node)
            last = node


_WAIT = torch.ops._c10d_functional.wait_tensor.default


def _restores_generator(random: Iterable[Node]) -> bool:
    """Whether the random nodes of a part leave the generator of the CPU in the state that they found."""
    state: Node | None = None  # the node that set it last; None: as before the part
    states: dict[Node, Node | None] = {}
    for node in random:
        if node.target is get_cpu_state:
            states[node] = state
        elif node.target is set_cpu_state:
            source: Any = node.args[0]
            state = states.get(source, node)
        else:
            state = node
    return state is None


def _read(node: Node) -> Iterable[Node]:
    """Return the tensors whose values an operator reads."""
    positions, training = _STATISTICS.get(node.target, ((), -1))
    if positions and node.args[training]:
        return [a for i, a in enumerate(node.args) if isinstance(a, Node) and i not in positions]
    return node.all_input_nodes

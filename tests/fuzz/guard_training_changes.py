"""Changes of optimizers, schedules and arguments between calls, for the guard fuzzer; see
guard_module_changes.
"""

import torch
from guard_module_changes import Inapplicable, pick


def trained(world, rng):
    return pick(rng, [p for group in world.optimizer.param_groups for p in group["params"]])


def option(world, rng):
    group = pick(rng, world.optimizer.param_groups)
    name = pick(
        rng,
        [
            n
            for n in ("lr", "momentum", "weight_decay", "betas", "eps", "nesterov", "dampening", "alpha")
            if n in group
        ],
    )
    group[name] = {
        "lr": rng.choice([0.05, 0.2]),
        "momentum": rng.choice([0.0, 0.5]),
        "weight_decay": rng.choice([0.0, 0.1]),
        "betas": (0.5, 0.9),
        "eps": 1e-3,
        "nesterov": False,
        "dampening": 0.1,
        "alpha": 0.5,
    }[name]


def replace_state(world, rng):
    trained = [p for group in world.optimizer.param_groups for p in group["params"]]
    p = pick(rng, [p for p in trained if world.optimizer.state.get(p)])
    world.optimizer.state[p] = {
        k: v * 0.5 if isinstance(v, torch.Tensor) and v.dim() else v
        for k, v in world.optimizer.state[p].items()
    }


def replace_state_tensor(world, rng):
    trained = [p for group in world.optimizer.param_groups for p in group["params"]]
    p = pick(rng, [p for p in trained if world.optimizer.state.get(p)])
    name = pick(
        rng, [k for k, v in world.optimizer.state[p].items() if isinstance(v, torch.Tensor) and v.dim()]
    )
    world.optimizer.state[p][name] = torch.full_like(world.optimizer.state[p][name], 0.1)


def forget_state(world, rng):
    del world.optimizer.state[pick(rng, list(world.optimizer.state))]


def clear_state(world, rng):
    world.optimizer.state.clear()


def reload_state(world, rng):
    world.optimizer.load_state_dict(world.optimizer.state_dict())


def remove_parameter(world, rng):
    group = pick(rng, [g for g in world.optimizer.param_groups if len(g["params"]) > 1])
    group["params"].pop(rng.randrange(len(group["params"])))


def reverse_parameters(world, rng):
    pick(rng, world.optimizer.param_groups)["params"].reverse()


def replace_group(world, rng):
    index = rng.randrange(len(world.optimizer.param_groups))
    world.optimizer.param_groups[index] = dict(world.optimizer.param_groups[index], lr=0.03)


def split_group(world, rng):
    group = pick(rng, [g for g in world.optimizer.param_groups if len(g["params"]) > 1])
    moved = group["params"].pop()
    world.optimizer.add_param_group({"params": [moved], "lr": 0.02})


def step_hook(world, rng):
    register = rng.choice(["register_step_pre_hook", "register_step_post_hook"])
    p = trained(world, rng)

    def hook(optimizer, args, kwargs):
        with torch.no_grad():
            p.mul_(0.9)

    getattr(world.optimizer, register)(hook)


def replace_step(world, rng):
    step, p = type(world.optimizer).step, trained(world, rng)

    def replaced(*args):
        step(world.optimizer, *args)
        with torch.no_grad():
            p.mul_(0.9)

    world.optimizer.step = replaced


def flag(world, rng):
    group = pick(rng, world.optimizer.param_groups)
    name = pick(
        rng,
        [
            n
            for n in ("maximize", "foreach", "amsgrad", "centered", "nesterov", "decoupled_weight_decay")
            if n in group
        ],
    )
    group[name] = not group[name]


def rate_as_tensor(world, rng):
    pick(rng, world.optimizer.param_groups)["lr"] = torch.tensor(rng.choice([0.05, 0.2]))


def schedule_value(world, rng):
    if world.schedule is None:
        raise Inapplicable
    name = pick(
        rng,
        [n for n in ("gamma", "step_size", "T_max", "eta_min", "last_epoch") if hasattr(world.schedule, n)],
    )
    setattr(
        world.schedule,
        name,
        {"gamma": 0.7, "step_size": 3, "T_max": 7, "eta_min": 0.01, "last_epoch": 0}[name],
    )


def schedule_rates(world, rng):
    if world.schedule is None:
        raise Inapplicable
    world.schedule.base_lrs = [0.3 for _ in world.schedule.base_lrs]


def merge_groups(world, rng):
    groups = world.optimizer.param_groups
    if len(groups) < 2:
        raise Inapplicable
    groups[0]["params"] += groups.pop()["params"]


def load_other_options(world, rng):
    state = world.optimizer.state_dict()
    state["param_groups"] = [dict(group, lr=0.07) for group in state["param_groups"]]
    world.optimizer.load_state_dict(state)


# -- arguments ------------------------------------------------------------------------------------------------


def pass_buffer(world, rng):
    """The next call gets a buffer that the program writes."""
    world.next_shift = world.model.seen


def pass_parameter(world, rng):
    """The next call gets the memory of a parameter that the optimizer writes."""
    world.next_shift = pick(rng, [p for p in world.model.parameters() if p.shape == (4,)]).detach()


def pass_overlapping(world, rng):
    world.next_shift = torch.full((1,), 0.2).expand(4) if rng.random() < 0.5 else torch.arange(8.0)[::2]


def transposed_rows(world, rng):
    world.next_rows = lambda x: x.T.contiguous().T


def rows_with_gradient(world, rng):
    world.next_rows = lambda x: x.clone().requires_grad_()


def rows_of_a_view(world, rng):
    world.next_rows = lambda x: torch.cat([x, x], 1)[:, 2:6]


def rows_with_an_attribute(world, rng):
    def tagged(x):
        x.tag = 2.0
        return x

    world.next_rows = tagged


def rows_with_an_earlier_gradient(world, rng):
    def with_gradient(x):
        x.requires_grad_().grad = torch.ones_like(x)
        return x

    world.next_rows = with_gradient


def rows_with_a_history(world, rng):
    world.next_rows = lambda x: x.requires_grad_() * 1


def rows_that_are_a_parameter(world, rng):
    world.next_rows = lambda x: torch.nn.Parameter(x, requires_grad=rng.random() < 0.5)


def rows_of_a_larger_memory(world, rng):
    world.next_rows = lambda x: torch.cat([x, x])[len(x) :]


def other_shape(world, rng):
    world.rows = rng.choice([2, 3, 5])


def other_number(world, rng):
    world.factor = rng.choice([1, 1.0, 2.0, -1.0, True])


OPTIMIZER_CHANGES = (
    option, replace_state, replace_state_tensor, forget_state, clear_state, reload_state, remove_parameter,
    reverse_parameters, replace_group, split_group, step_hook, replace_step, flag, rate_as_tensor, schedule_value,
    schedule_rates, merge_groups, load_other_options,
)  # fmt: skip
ARGUMENT_CHANGES = (
    pass_buffer, pass_parameter, pass_overlapping, transposed_rows, rows_with_gradient, rows_of_a_view, other_shape,
    other_number, rows_with_an_attribute, rows_with_an_earlier_gradient, rows_with_a_history,
    rows_that_are_a_parameter, rows_of_a_larger_memory,
)  # fmt: skip

"""Functions that a program calls to read, set and seed the states of random generators."""

import torch


def get_cpu_state() -> torch.Tensor:
    return torch.default_generator.get_state()


def set_cpu_state(state: torch.Tensor) -> None:
    torch.default_generator.set_state(state)


def get_cuda_state(index: int) -> torch.Tensor:
    return torch.cuda.get_rng_state(index)


def set_cuda_state(state: torch.Tensor, index: int) -> None:
    torch.cuda.set_rng_state(state, index)


def seed_all(seed: int) -> None:
    torch.manual_seed(seed)


def seed_cpu(seed: torch.Tensor) -> None:
    torch.default_generator.manual_seed(int(seed))


def seed_cuda(seed: int, index: int | None) -> None:
    """Seed one CUDA device; `index` is None if there was no CUDA where the program was captured."""
    if index is not None:
        with torch.cuda.device(index):
            torch.cuda.manual_seed(seed)


def seed_every_cuda(seed: int) -> None:
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(seed)


PYTHON_NAMES = {
    "random.state": get_cpu_state,
    "random.set_state": set_cpu_state,
    "random.seed": seed_all,
    "random.seed_cpu": seed_cpu,
    "random.cuda_state": get_cuda_state,
    "random.set_cuda_state": set_cuda_state,
    "random.seed_cuda": seed_cuda,
    "random.seed_every_cuda": seed_every_cuda,
}


def samples(target: object) -> bool:
    """Whether the target of a node is an operator that samples random numbers."""
    return isinstance(target, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in target.tags


def replays_random_numbers(graph: torch.fx.Graph) -> bool:
    """Whether random numbers come from a generator object, or generator states are used between samplings.

    A compiler that samples by itself would give other numbers.
    """
    if any(isinstance(a, torch.Generator) for n in graph.nodes for a in (*n.args, *n.kwargs.values())):
        return True
    targets = {n.target for n in graph.nodes}
    return not targets.isdisjoint(PYTHON_NAMES.values()) and any(map(samples, targets))


def seed_generator(generator: torch.Generator, seed: int) -> None:
    generator.manual_seed(seed)

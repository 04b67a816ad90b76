"""Random training steps: a model, an optimizer and pieces of steps as people write them, joined as text.

The pieces are in `step_pieces.toml`. A section of a piece holds statements for one location of a program:

- `define`: classes and functions, at module level;
- `setup`: state, created once. A name `$x` becomes a global, an attribute, a closure variable or an item;
- `pre`: statements of the step before the forward pass;
- `forward`: statements instead of the plain forward pass, which compute `out` and `h`;
- `loss`: statements between forward and backward;
- `grad`: statements between backward and the update;
- `post`: statements after the update;
- `stepcond`: the condition of the update;
- `ret`: an expression that the step also returns;
- `change`: what the caller changes between two calls.

A piece may have flags: `clears_gradients` (the step has no other `zero_grad()`), `scales_loss`, `autocast`,
and `branches_on_values` (rounding may choose a branch, or what a file holds).
"""

import random
import re
import sys
from dataclasses import dataclass
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

IMPORTS = """
import abc, array, asyncio, bisect, collections, contextlib, contextvars, copy, csv, ctypes, dataclasses
import decimal, enum, fractions, functools, gc, hashlib, heapq, io, itertools, json, logging, math, mmap
import operator, os, pathlib, pickle, queue, random, re, shutil, signal, sqlite3, struct, subprocess, sys
import threading, time, types, typing, warnings, weakref, zlib

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
"""
SECTIONS = ("define", "setup", "pre", "forward", "loss", "grad", "stepcond", "post", "ret", "change")
FLAGS = ("clears_gradients", "scales_loss", "autocast", "branches_on_values")
LOCATIONS = ("global", "self", "closure", "dict")
FIRST_CHANGE = 2  # the call before which the caller makes the first change

_TABLES = tomllib.loads((Path(__file__).parent / "step_pieces.toml").read_text(encoding="utf-8"))
MODELS = {name: table["code"].strip() for name, table in _TABLES["models"].items()}


@dataclass(frozen=True)
class Piece:
    """The sections and facts of one piece, as in the data file."""

    define: str = ""
    setup: str = ""
    pre: str = ""
    forward: str = ""
    loss: str = ""
    grad: str = ""
    stepcond: str = ""
    post: str = ""
    ret: str = ""
    change: str = ""
    clears_gradients: bool = False
    scales_loss: bool = False
    autocast: bool = False
    branches_on_values: bool = False


def _read_pieces(group: str) -> dict[str, Piece]:
    return {
        name: Piece(**{key: v.strip() if isinstance(v, str) else v for key, v in table.items()})
        for name, table in _TABLES[group].items()
    }


OPTIMIZERS = _read_pieces("optimizers")
PIECES = _read_pieces("pieces")


def indent(text: str, levels: int = 1) -> str:
    return "\n".join("    " * levels + line if line.strip() else line for line in text.splitlines())


@dataclass(frozen=True)
class Plan:
    """What one program consists of."""

    seed: int
    model: str
    optimizer: str
    location: str
    pieces: tuple[str, ...]
    detaches: bool = True

    def names(self) -> tuple[str, ...]:
        """Everything that the table counts."""
        return (*self.pieces, f"model {self.model}", f"optimizer {self.optimizer}", f"in {self.location}")

    def source(self) -> str:
        """Return the file of the program: it has a function `step(x, y)` and a function `change(call)`."""
        pieces = [PIECES[name] for name in self.pieces]
        optimizer = OPTIMIZERS[self.optimizer]
        setup = "\n".join(
            part for part in ("$model = Net()", optimizer.setup, *(p.setup for p in pieces)) if part
        )
        define = "\n\n".join(p.define for p in (optimizer, *pieces) if p.define)
        parts = setup, _step_body(pieces, self.detaches), _change_body(pieces)
        return f"{IMPORTS}\n\n{MODELS[self.model]}\n\n\n" + _LAYOUTS[self.location](define, *parts)

    def branches_on_values(self) -> bool:
        """Whether rounding may decide what the step does."""
        return (
            self.model == "moe"
            or self.optimizer == "own"
            or any(PIECES[name].branches_on_values for name in self.pieces)
        )

    def __str__(self) -> str:
        pieces = ", ".join(self.pieces) or "none"
        return f"model {self.model}, optimizer {self.optimizer}, state in {self.location}, pieces {pieces}"


def _step_body(pieces: list[Piece], detaches: bool) -> str:
    """The statements of the step, with `$` before names of state."""

    def sections(name):
        return [section for piece in pieces if (section := getattr(piece, name))]

    conditions, scales = sections("stepcond"), any(piece.scales_loss for piece in pieces)
    body = []
    if not conditions and not any(piece.clears_gradients for piece in pieces):
        body.append("$opt.zero_grad()")
    body += sections("pre")
    forward = (sections("forward") or ["out, h = $model(x)"])[0] + "\nloss = F.cross_entropy(out, y)"
    if any(piece.autocast for piece in pieces):
        forward = f"with torch.autocast('cpu', dtype=torch.bfloat16):\n{indent(forward)}"
        forward += "\nh = h.float()\nout = out.float()"
    body += [forward, *sections("loss")]
    body += ["$scaler.scale(loss).backward()", "$scaler.unscale_($opt)"] if scales else ["loss.backward()"]
    body += sections("grad")
    update = "$scaler.step($opt)\n$scaler.update()" if scales else "$opt.step()"
    if conditions:
        update = f"if {conditions[0]}:\n{indent(update)}\n    $opt.zero_grad()"
    body += [update, *sections("post")]
    results = ["loss.detach()" if detaches else "loss", *sections("ret")]
    return "\n".join([*body, f"return {', '.join(results)}"])


def _change_body(pieces: list[Piece]) -> str:
    changes = [piece.change for piece in pieces if piece.change]
    return (
        "\n".join(f"if call == {FIRST_CHANGE + i}:\n{indent(text)}" for i, text in enumerate(changes))
        or "pass"
    )


def _state_names(setup: str) -> str:
    return ", ".join(sorted(set(re.findall(r"\$(\w+)", setup))))


def _functions(step: str, change: str, argument: str = "") -> str:
    functions = {f"train_step({argument}x, y)": step, f"change({argument}call)": change}
    return "\n\n".join(f"def {head}:\n{indent(body)}\n" for head, body in functions.items())


def _global_layout(define: str, setup: str, step: str, change: str) -> str:
    names = f"global {_state_names(setup)}\n"
    text = f"{define}\n\n\n{setup}\n\n\n{_functions(names + step, names + change)}\n\nstep = train_step\n"
    return text.replace("$", "")


def _dict_layout(define: str, setup: str, step: str, change: str) -> str:
    text = f"{define}\n\n\nSTATE = {{}}\n{setup}\n\n\n{_functions(step, change)}\n\nstep = train_step\n"
    return re.sub(r"\$(\w+)", r"STATE['\1']", text)


def _self_layout(define: str, setup: str, step: str, change: str) -> str:
    methods = f"def __init__(self):\n{indent(setup)}\n\n{_functions(step, change, 'self, ')}"
    names = "trainer = Trainer()\nstep = trainer.train_step\nchange = trainer.change\n"
    return f"{define}\n\n\nclass Trainer:\n{indent(methods)}\n\n\n{names}".replace("$", "self.")


def _closure_layout(define: str, setup: str, step: str, change: str) -> str:
    names = f"nonlocal {_state_names(setup)}\n"
    body = f"{define}\n{setup}\n\n{_functions(names + step, names + change)}\nreturn train_step, change"
    return f"def make():\n{indent(body)}\n\n\nstep, change = make()\n".replace("$", "")


_LAYOUTS = {
    "global": _global_layout,
    "self": _self_layout,
    "closure": _closure_layout,
    "dict": _dict_layout,
}


def sample_plan(seed: int) -> Plan:
    """A random program of two to seven pieces. At most three of them change something between calls."""
    rng = random.Random(seed)
    model, optimizer = rng.choice(list(MODELS)), rng.choice(list(OPTIMIZERS))
    pieces = rng.sample(list(PIECES), rng.choice([2, 3, 4, 5, 6, 7]))
    if sum(bool(PIECES[name].change) for name in pieces) > 3:
        pieces = pieces[:4]
    return Plan(seed, model, optimizer, rng.choice(LOCATIONS), tuple(pieces), rng.random() < 0.7)


def plan_of_one_piece(seed: int) -> Plan:
    """The seed counts the pieces, then the models and the optimizers. Each location has its turn."""
    names = [*PIECES, *MODELS, *OPTIMIZERS]
    turn, index = divmod(seed, len(names))
    name, location = names[index], LOCATIONS[(index + turn) % len(LOCATIONS)]
    if index < len(PIECES):
        return Plan(seed, "mlp", "sgd", location, (name,))
    if index < len(PIECES) + len(MODELS):
        return Plan(seed, name, "sgd", location, ())
    return Plan(seed, "mlp", name, location, ())

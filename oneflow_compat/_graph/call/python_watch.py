"""The check before each call that Python values are unchanged since the capture."""

from __future__ import annotations

import torch
from ..program.python_values import (
    BY_IDENTITY,
    Cell,
    Elements,
    Length,
    MISSING,
    get_item,
    is_plain_container,
    is_record,
    same_value,
    tensor_meta,
)


class Watch:
    """The check before each call that every watched value is still the object of the capture.

    `holds()` is True while this is so.
    """

    def __init__(self, entries, free_of):
        """Generate the check.

        `free_of` covers the tensors that the program reads: id(tensor) -> index among the free tensors, or
        None.
        """
        self.entries = [list(e) for e in entries]
        self.free_of = free_of
        self.changed = None  # label of the value that changed
        self._write()

    def _write(self):
        scope, tests, names = {}, [], {}
        for i, (container, key, value, _) in enumerate(self.entries):
            if isinstance(container, Cell):
                name, template = container.cell, "{}.cell_contents"
            elif isinstance(container, Length):
                name, template = container.of, "len({})"
            elif isinstance(container, Elements):
                name, template = container, "{}[0]"
            else:
                name, template = container, f"{{}}[{self._key(key, scope)}]"
            variable = names.get(id(name))
            if variable is None:
                variable = names[id(name)] = f"c{len(names)}"
                scope[variable] = name
            if value is MISSING:
                tests.append(f"{self._key(key, scope)} not in {variable}")
                continue
            scope[f"v{i}"] = value
            plain = isinstance(value, (list, dict)) and is_plain_container(value)
            comparison = "==" if plain or isinstance(container, (Length, Elements)) else "is"
            tests.append(f"{template.format(variable)} {comparison} v{i}")
        lines = [" and ".join(tests[i : i + 200]) for i in range(0, len(tests), 200)]
        body = "".join(f"    if not ({line}):\n        return False\n" for line in lines) or "    pass\n"
        source = (
            f"def same():\n  try:\n{body}  except (KeyError, IndexError, ValueError):\n    return False\n "
            " return True\n"
        )
        exec(compile(source, "<watched values>", "exec"), scope)
        self.scope, self.same = scope, scope["same"]

    @staticmethod
    def _key(key, scope):
        """Code for a key of a dict: a literal, or a generated name for keys without one, such as a dtype."""
        if type(key) in (str, int):
            return repr(key)
        name = f"k{len(scope)}"
        scope[name] = key
        return name

    def holds(self, rebind) -> bool:
        """Whether all values are unchanged or equal.

        `rebind(free index, tensor)` is called for a tensor that was replaced by one with the same metadata.
        """
        if self.same():
            return True
        new = []
        for i, (container, key, value, label) in enumerate(self.entries):
            now = get_item(container, key)
            if now is value:
                continue
            if isinstance(value, torch.Tensor) and isinstance(now, torch.Tensor):
                free = self.free_of.get(id(value), MISSING)
                if free is None or tensor_meta(value) != tensor_meta(now):
                    self.changed = label
                    return False
                new.append((i, free, now))
            elif now is MISSING or isinstance(value, BY_IDENTITY) or not same_value(value, now):
                self.changed = label
                return False
            elif not isinstance(value, (list, dict)):
                new.append((i, MISSING, now))
        moved: dict = {}
        for i, free, now in new:
            if free is not MISSING:
                moved.setdefault(free, []).append((i, now))
        for free, uses in moved.items():
            old = self.entries[uses[0][0]][2]
            if len({id(now) for _, now in uses}) > 1 or len(uses) != sum(e[2] is old for e in self.entries):
                self.changed = self.entries[uses[0][0]][3]
                return False  # only one of two names of a tensor was rebound
        for free, uses in moved.items():
            rebind(free, uses[0][1])
            self.free_of[id(uses[0][1])] = self.free_of.pop(id(self.entries[uses[0][0]][2]))
        for i, _, now in new:
            old, self.entries[i][2] = self.entries[i][2], now
            self.scope[f"v{i}"] = now
            # an equal record replaced the old one, so its attributes are watched in the new record
            if is_record(type(now)) and any(e[0] is vars(old) for e in self.entries):
                self.entries = [[vars(now) if e[0] is vars(old) else e[0], *e[1:]] for e in self.entries]
                self._write()
        return True

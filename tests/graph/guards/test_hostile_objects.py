"""Programs that look at classes and objects of the interpreter: the graph follows a change between two calls,
or a warning named it.
"""

import collections
import collections.abc
import dataclasses
import queue
import threading
import types

from hostile_cases import verdict


def test_format_of_an_object_is_followed():

    class Formatted:
        digits = "2"

        def __format__(self, spec):
            return self.digits + spec

    formatted = Formatted()

    def build(x):
        return x * float(f"{formatted:0}")

    def change():
        Formatted.digits = "3"

    assert verdict(build, change) == "followed"


def test_text_of_an_object_is_followed():

    class Text:
        def __init__(self):
            self.digits = "2"

        def __str__(self):
            return self.digits

    text_object = Text()

    def build(x):
        return x * float("%s" % text_object)

    def change():
        text_object.digits = "3"

    assert verdict(build, change) == "followed"


def test_asynchronous_function_is_named():
    holder = types.SimpleNamespace(factor=2.0)

    async def read():
        return holder.factor

    def build(x):
        coroutine = read()
        try:
            coroutine.send(None)
        except StopIteration as stop:
            return x * stop.value

    def change():
        holder.factor = 3.0

    assert verdict(build, change) == "named"


FACTORS = [1.0, 2.0]


def test_body_of_a_class_that_reads_a_closure_is_named():
    factor = 2.0

    def build(x):
        class Scale:
            value = factor

        return x * Scale.value

    def change():
        nonlocal factor
        factor = 3.0

    assert verdict(build, change) == "named"


def test_body_of_a_class_that_reads_a_slice_is_named():
    def build(x):
        class Scale:
            [value] = FACTORS[1:]

        return x * Scale.value

    assert verdict(build, lambda: FACTORS.__setitem__(1, 3.0)) == "named"


def test_data_of_an_exception_is_followed():
    holder = types.SimpleNamespace(factor=2.0)

    class Carrier(Exception):
        pass

    def raise_it():
        raise Carrier(holder.factor)

    def build(x):
        try:
            raise_it()
        except Carrier as error:
            return x * error.args[0]

    def change():
        holder.factor = 3.0

    assert verdict(build, change) == "followed"


def test_arguments_of_a_kept_exception_are_followed():
    error = ValueError(2.0)

    def build(x):
        return x * error.args[0]

    def change():
        error.args = (3.0,)

    assert verdict(build, change) == "followed"


def test_kept_view_of_a_dict_is_followed():
    table = {"a": 2.0}
    view = table.values()

    def build(x):
        return x * sum(view)

    def change():
        table.update(owner=3.0)

    assert verdict(build, change) == "followed"


def test_attributes_of_a_class_through_vars_are_followed():

    class Owner:
        factor = 2.0

    attributes = vars(Owner)

    def build(x):
        return x * attributes["factor"]

    def change():
        Owner.factor = 3.0

    assert verdict(build, change) == "followed"


def test_chain_map_is_followed():
    front, back = ({}, {"k": 2.0})
    chain = collections.ChainMap(front, back)

    def build(x):
        return x * chain["k"]

    def change():
        front.update(k=3.0)

    assert verdict(build, change) == "followed"


def test_default_of_a_dataclass_is_followed():

    @dataclasses.dataclass
    class Settings:
        factor: float = 2.0

    def build(x):
        return x * Settings().factor

    def change():
        Settings.__init__.__defaults__ = (3.0,)

    assert verdict(build, change) == "followed"


def test_fields_of_a_dataclass_are_followed():

    @dataclasses.dataclass
    class Settings:
        factor: float = 2.0

    def build(x):
        return x * dataclasses.fields(Settings)[0].default

    def change():
        Settings.__dataclass_fields__["factor"].default = 3.0

    assert verdict(build, change) == "followed"


def test_name_of_a_class():

    class Owner:
        pass

    def build(x):
        return x * len(Owner.__name__)

    def change():
        Owner.__name__ = "CC"

    assert verdict(build, change) == "followed"


def test_names_of_an_object():

    class Owner:
        pass

    owner = Owner()

    def build(x):
        return x * len([name for name in dir(owner) if name[0] != "_"] + [0])

    def change():
        owner.later = 1

    assert verdict(build, change) == "followed"


def test_class_of_an_object_is_followed():

    class First:
        factor = 2.0

    class Second:
        factor = 3.0

    instance = First()

    def build(x):
        return x * type(instance).factor

    def change():
        instance.__class__ = Second

    assert verdict(build, change) == "followed"


def test_length_of_a_queue_is_followed():
    waiting = queue.Queue()
    waiting.put(2.0)

    def build(x):
        return x * waiting.qsize()

    def change():
        waiting.put(1)

    assert verdict(build, change) == "followed"


def test_event_of_a_thread_is_followed():
    event = threading.Event()

    def build(x):
        return x * (2.0 if event.is_set() else 1.0)

    def change():
        event.set()

    assert verdict(build, change) == "followed"


def test_name_of_a_thread():
    thread = threading.current_thread()

    def build(x):
        return x * len(threading.current_thread().name)

    def change():
        thread.name = thread.name + "x"

    assert verdict(build, change) == "followed"

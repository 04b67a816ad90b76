"""Programs that look at functions, classes and objects of the interpreter: the graph follows a change between
two calls, or a warning named it.
"""

import collections
import collections.abc
import dataclasses
import inspect
import queue
import threading
import types

from hostile_cases import verdict


def test_name_of_the_calling_function():
    box = ["a"]

    def who():
        return len(inspect.stack()[1].function)

    def short():
        return who()

    def much_longer():
        return who()

    box = [short]

    def build(x):
        return x * box[0]()

    def change():
        box.__setitem__(0, much_longer)

    assert verdict(build, change) == "followed"


def test_eval_with_locals():
    holder = types.SimpleNamespace(factor=2.0)

    def build(x):
        factor_here = holder.factor
        return x * eval("factor_here+1", {}, locals())

    def change():
        holder.factor = 3.0

    assert verdict(build, change) == "followed"


def test_namespace_of_executed_code():
    namespace = {"factor": 2.0}
    code = compile("y=factor", "<u>", "exec")

    def build(x):
        exec(code, namespace)
        return x * namespace["y"]

    def change():
        namespace.update(factor=3.0)

    assert verdict(build, change) == "followed"


def test_replaced_code_of_a_function():

    def function(value):
        return value * 2

    def replacement(value):
        return value * 3

    def build(x):
        return function(x)

    def change():
        function.__code__ = replacement.__code__

    assert verdict(build, change) == "followed"


def test_replaced_code_of_a_property():

    class Owner:
        @property
        def factor(self):
            return 2.0

    def replacement(self):
        return 3.0

    owner = Owner()

    def build(x):
        return x * owner.factor

    def change():
        Owner.factor.fget.__code__ = replacement.__code__

    assert verdict(build, change) == "followed"


def test_replaced_code_of_an_operator():

    class Owner:
        def __mul__(self, other):
            return other * 2.0

    def replacement(self, other):
        return other * 3.0

    owner = Owner()

    def build(x):
        return owner * x

    def change():
        Owner.__mul__.__code__ = replacement.__code__

    assert verdict(build, change) == "followed"


def test_defaults_of_a_special_method():

    class Owner:
        def __getitem__(self, key, default=2.0):
            return default

    owner = Owner()

    def build(x):
        return x * owner[0]

    def change():
        Owner.__getitem__.__defaults__ = (3.0,)

    assert verdict(build, change) == "followed"


def test_keyword_defaults():

    def function(value, *, factor=2.0):
        return value * factor

    def build(x):
        return function(x)

    def change():
        function.__kwdefaults__.update(factor=3.0)

    assert verdict(build, change) == "followed"


def test_contents_of_a_closure_cell():
    factor = 2.0

    def function(value):
        return value * factor

    def build(x):
        return function(x)

    def change():
        function.__closure__[0].cell_contents = 3.0

    assert verdict(build, change) == "followed"


def test_class_of_a_method():

    class Owner:
        factor = 2.0

        def own_factor(self):
            return __class__.factor

    owner = Owner()

    def build(x):
        return x * owner.own_factor()

    def change():
        Owner.factor = 3.0

    assert verdict(build, change) == "followed"


def test_state_of_a_metaclass_call():

    class Meta(type):
        factor = 2.0

        def __call__(cls, *arguments):
            instance = super().__call__(*arguments)
            instance.factor = Meta.factor
            return instance

    class Owner(metaclass=Meta):
        pass

    def build(x):
        return x * Owner().factor

    def change():
        Meta.factor = 3.0

    assert verdict(build, change) == "followed"


def test_replaced_metaclass_call():

    class Meta(type):
        def __call__(cls, *arguments):
            instance = super().__call__(*arguments)
            instance.factor = 2.0
            return instance

    class Owner(metaclass=Meta):
        pass

    def new(cls, *arguments):
        instance = type.__call__(cls, *arguments)
        instance.factor = 3.0
        return instance

    def build(x):
        return x * Owner().factor

    def change():
        Meta.__call__ = new

    assert verdict(build, change) == "followed"


def test_replaced_constructor():

    class Owner:
        def __init__(self):
            self.factor = 2.0

    def new(self):
        self.factor = 3.0

    def build(x):
        return x * Owner().factor

    def change():
        Owner.__init__ = new

    assert verdict(build, change) == "followed"


def test_format_of_an_object():

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


def test_text_of_an_object():

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


def test_data_of_an_exception():
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


def test_arguments_of_a_kept_exception():
    error = ValueError(2.0)

    def build(x):
        return x * error.args[0]

    def change():
        error.args = (3.0,)

    assert verdict(build, change) == "followed"


def test_kept_view_of_a_dict():
    table = {"a": 2.0}
    view = table.values()

    def build(x):
        return x * sum(view)

    def change():
        table.update(owner=3.0)

    assert verdict(build, change) == "followed"


def test_attributes_of_a_class_through_vars():

    class Owner:
        factor = 2.0

    attributes = vars(Owner)

    def build(x):
        return x * attributes["factor"]

    def change():
        Owner.factor = 3.0

    assert verdict(build, change) == "followed"


def test_chain_map():
    front, back = ({}, {"k": 2.0})
    chain = collections.ChainMap(front, back)

    def build(x):
        return x * chain["k"]

    def change():
        front.update(k=3.0)

    assert verdict(build, change) == "followed"


def test_default_of_a_dataclass():

    @dataclasses.dataclass
    class Settings:
        factor: float = 2.0

    def build(x):
        return x * Settings().factor

    def change():
        Settings.__init__.__defaults__ = (3.0,)

    assert verdict(build, change) == "followed"


def test_fields_of_a_dataclass():

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


def test_class_of_an_object():

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


def test_length_of_a_queue():
    waiting = queue.Queue()
    waiting.put(2.0)

    def build(x):
        return x * waiting.qsize()

    def change():
        waiting.put(1)

    assert verdict(build, change) == "followed"


def test_event_of_a_thread():
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

"""Programs that look at code, closures, metaclasses: the graph follows a change between two calls, or a
warning named it.
"""

import inspect
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


def test_eval_with_locals_is_followed():
    holder = types.SimpleNamespace(factor=2.0)

    def build(x):
        factor_here = holder.factor
        return x * eval("factor_here+1", {}, locals())

    def change():
        holder.factor = 3.0

    assert verdict(build, change) == "followed"


def test_namespace_of_executed_code_is_followed():
    namespace = {"factor": 2.0}
    code = compile("y=factor", "<u>", "exec")

    def build(x):
        exec(code, namespace)
        return x * namespace["y"]

    def change():
        namespace.update(factor=3.0)

    assert verdict(build, change) == "followed"


def test_replaced_code_of_a_function_is_followed():

    def function(value):
        return value * 2

    def replacement(value):
        return value * 3

    def build(x):
        return function(x)

    def change():
        function.__code__ = replacement.__code__

    assert verdict(build, change) == "followed"


def test_replaced_code_of_a_property_is_followed():

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


def test_replaced_code_of_an_operator_is_followed():

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


def test_defaults_of_a_special_method_are_followed():

    class Owner:
        def __getitem__(self, key, default=2.0):
            return default

    owner = Owner()

    def build(x):
        return x * owner[0]

    def change():
        Owner.__getitem__.__defaults__ = (3.0,)

    assert verdict(build, change) == "followed"


def test_keyword_defaults_are_followed():

    def function(value, *, factor=2.0):
        return value * factor

    def build(x):
        return function(x)

    def change():
        function.__kwdefaults__.update(factor=3.0)

    assert verdict(build, change) == "followed"


def test_contents_of_a_closure_cell_are_followed():
    factor = 2.0

    def function(value):
        return value * factor

    def build(x):
        return function(x)

    def change():
        function.__closure__[0].cell_contents = 3.0

    assert verdict(build, change) == "followed"


def test_class_of_a_method_is_followed():

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


def test_replaced_constructor_is_followed():

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

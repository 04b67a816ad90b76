"""Programs that read settings and files: the graph follows a change, or a warning named it."""

import decimal
import gc
import io
import locale
import logging
import os
import pathlib
import sqlite3
import sys
import tempfile

import pytest
import torch
from hostile_cases import verdict

TEN = 10.0


def test_precision_of_decimal_arithmetic_is_followed(request):
    c = decimal.getcontext()
    p = c.prec

    def build(x):
        return x * float(decimal.Decimal(1) / decimal.Decimal(3) * decimal.Decimal(1000000000))

    def change():
        decimal.getcontext().prec = 3

    request.addfinalizer(lambda: setattr(decimal.getcontext(), "prec", p))
    assert verdict(build, change) == "followed"


def test_precision_read_from_the_decimal_context(request):
    p = decimal.getcontext().prec

    def build(x):
        return x * decimal.getcontext().prec

    def change():
        decimal.getcontext().prec = 3

    request.addfinalizer(lambda: setattr(decimal.getcontext(), "prec", p))
    assert verdict(build, change) == "followed"


def test_locale_is_named(request):
    old = locale.setlocale(locale.LC_NUMERIC)

    def build(x):
        return x * len(locale.setlocale(locale.LC_NUMERIC))

    def change():
        locale.setlocale(locale.LC_NUMERIC, "C.UTF-8")

    request.addfinalizer(lambda: locale.setlocale(locale.LC_NUMERIC, old))
    assert verdict(build, change) == "named"


def test_file_that_build_reads_is_named():
    p = tempfile.mktemp()
    open(p, "w").write("2.0")

    def build(x):
        with open(p) as f:
            return x * float(f.read())

    def change():
        open(p, "w").write("3.0")

    assert verdict(build, change) == "named"


@pytest.mark.parametrize(
    "exists",
    [
        pathlib.Path.exists,
        pathlib.Path.is_file,
        os.path.exists,
        os.path.lexists,
        lambda p: not os.path.islink(p),
    ],
    ids=["Path.exists", "Path.is_file", "exists", "lexists", "islink"],
)
def test_existence_of_a_file_is_named(exists):
    p = pathlib.Path(tempfile.mktemp())
    before = exists(p)

    def build(x):
        return x * (3.0 if exists(p) == before else 2.0)

    def change():
        if before:
            p.symlink_to(tempfile.gettempdir())
        else:
            p.write_text("3.0")

    assert verdict(build, change) in ("named", "followed")  # a path of Python 3.13 keeps what it found


def test_working_directory_is_followed(request):
    old = os.getcwd()
    d = tempfile.mkdtemp(prefix="a" * 30)

    def build(x):
        return x * len(os.getcwd())

    def change():
        os.chdir(d)

    request.addfinalizer(lambda: os.chdir(old))
    assert verdict(build, change) == "followed"


def test_text_buffer_is_named():
    f = io.StringIO("2.0")

    def build(x):
        return x * float(f.getvalue())

    def change():
        f.seek(0)
        f.write("3.0")

    assert verdict(build, change) == "named"


def test_database_is_named():
    db = sqlite3.connect(":memory:")
    db.execute("create table t(v)")
    db.execute("insert into t values(2.0)")

    def build(x):
        return x * db.execute("select v from t").fetchone()[0]

    def change():
        db.execute("update t set v=3.0")

    assert verdict(build, change) == "named"


def test_arguments_of_the_process_are_followed(request):
    old = list(sys.argv)

    def build(x):
        return x * len(sys.argv)

    def change():
        sys.argv.append("x")

    request.addfinalizer(lambda: sys.argv.__setitem__(slice(None), old))
    assert verdict(build, change) == "followed"


def test_level_of_a_logger_is_followed():
    l = logging.getLogger("hostile")

    def build(x):
        return x * (3.0 if l.isEnabledFor(10) else 2.0)

    def change():
        l.setLevel(10)

    assert verdict(build, change) == "followed"


def test_level_of_a_parent_logger_is_followed():
    l = logging.getLogger("hostile.a.b")
    r = logging.getLogger("hostile.a")
    r.setLevel(30)

    def build(x):
        return x * l.getEffectiveLevel()

    def change():
        r.setLevel(10)

    assert verdict(build, change) == "followed"


def test_default_dtype_is_followed(request):

    def build(x):
        return x * torch.zeros(1).add(2).element_size() * torch.get_default_dtype().itemsize

    def change():
        torch.set_default_dtype(torch.float64)

    request.addfinalizer(lambda: torch.set_default_dtype(torch.float32))
    assert verdict(build, change) == "followed"


def test_flag_of_a_backend_is_followed(request):
    old = torch.backends.cudnn.benchmark

    def build(x):
        return x * (3.0 if torch.backends.cudnn.benchmark else 2.0)

    def change():
        torch.backends.cudnn.benchmark = not old

    request.addfinalizer(lambda: setattr(torch.backends.cudnn, "benchmark", old))
    assert verdict(build, change) == "followed"


def test_number_of_threads_is_followed(request):
    old = torch.get_num_threads()

    def build(x):
        return x * torch.get_num_threads()

    def change():
        torch.set_num_threads(old + 1)

    request.addfinalizer(lambda: torch.set_num_threads(old))
    assert verdict(build, change) == "followed"


def test_seed_of_torch_is_followed():

    def build(x):
        return x * (torch.initial_seed() % 7 + 1)

    def change():
        torch.manual_seed(torch.initial_seed() + 1)

    assert verdict(build, change) == "followed"


def test_deterministic_algorithms_are_followed(request):

    def build(x):
        return x * (3.0 if torch.are_deterministic_algorithms_enabled() else 2.0)

    def change():
        torch.use_deterministic_algorithms(True)

    request.addfinalizer(lambda: torch.use_deterministic_algorithms(False))
    assert verdict(build, change) == "followed"


def test_numbers_of_python_with_flushed_denormals_are_followed(request):

    def build(x):
        return x * (1e-310 * TEN * 1e308)

    def change():
        torch.set_flush_denormal(True)

    request.addfinalizer(lambda: torch.set_flush_denormal(False))
    assert verdict(build, change) == "followed"


def test_anomaly_detection_that_build_asks_for(request):

    def build(x):
        return x * (3.0 if torch.is_anomaly_enabled() else 2.0)

    def change():
        torch.autograd.set_detect_anomaly(True)

    request.addfinalizer(lambda: torch.autograd.set_detect_anomaly(False))
    assert verdict(build, change) == "followed"


def test_anomaly_detection_is_on_in_build_as_in_eager_mode(request):

    def build(x):
        return x * (3.0 if torch.is_anomaly_enabled() else 2.0)

    def change():
        torch.autograd.set_detect_anomaly(False)

    torch.autograd.set_detect_anomaly(True)
    request.addfinalizer(lambda: torch.autograd.set_detect_anomaly(False))
    assert verdict(build, change) == "followed"


@pytest.mark.parametrize("before", [True, False])
def test_garbage_collection_that_build_asks_for(request, before):

    def build(x):
        return x * (3.0 if gc.isenabled() else 2.0)

    request.addfinalizer(gc.enable)
    (gc.enable if before else gc.disable)()
    assert verdict(build, gc.disable if before else gc.enable) == "followed"

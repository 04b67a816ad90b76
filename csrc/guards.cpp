// The guard test that runs before each call of a graph. One loop over dicts, classes, cells and lists checks
// that nothing that build() read has changed. The library is built against Python's limited API, so it works
// with every Python from 3.10 on.
//
// The limited API hides four fields, whose offsets have not changed from 3.10 to 3.14. _graph/guards/native.py
// probes each of them when the library is loaded, and uses no test whose probe fails.
#include "guards/calls.h"
#include "guards/read_tests.h"
#include "guards/words.h"

namespace {

// Incremented whenever the format of the tests that build() takes changes. native.py uses the library only
// if the numbers match.
constexpr int kInterface = 5;

constexpr const char* kName = "oneflow.guards";

Checker* checker_of(PyObject* capsule) { return static_cast<Checker*>(PyCapsule_GetPointer(capsule, kName)); }

PyObject* first_from(PyObject* capsule, Py_ssize_t start) {
  Checker* checker = checker_of(capsule);
  if (checker == nullptr) return nullptr;
  const Py_ssize_t size = static_cast<Py_ssize_t>(checker->tests.size());
  for (Py_ssize_t index = start < 0 ? 0 : start; index < size; ++index) {
    const int result = holds(*checker, checker->tests[index]);
    if (result < 0) return nullptr;
    if (result == 0) return PyLong_FromSsize_t(index);
  }
  Py_RETURN_NONE;
}

PyObject* first_change(PyObject* capsule, PyObject*) {
  Checker* checker = checker_of(capsule);
  if (checker == nullptr) return nullptr;
  const int result = all_hold(*checker);
  if (result < 0) return nullptr;
  if (result == 1) Py_RETURN_NONE;
  return first_from(capsule, 0);
}

PyObject* first_change_after(PyObject* capsule, PyObject* index) {
  const Py_ssize_t start = PyLong_AsSsize_t(index);
  if (start == -1 && PyErr_Occurred()) return nullptr;
  return first_from(capsule, start + 1);
}

void destroy(PyObject* capsule) { delete checker_of(capsule); }

PyObject* update(PyObject* capsule, PyObject* arguments) {
  Checker* checker = checker_of(capsule);
  Py_ssize_t index;
  PyObject* tuple;
  if (checker == nullptr || !PyArg_ParseTuple(arguments, "nO!", &index, &PyTuple_Type, &tuple))
    return nullptr;
  if (index < 0 || index >= static_cast<Py_ssize_t>(checker->tests.size())) {
    PyErr_SetString(PyExc_IndexError, "guards: no test with this index");
    return nullptr;
  }
  Test test;
  if (!read_test(*checker, tuple, test)) return nullptr;
  checker->tests[index] = test;
  lay_out_words(*checker);
  Py_RETURN_NONE;
}

PyMethodDef kFirst = {"first_change", first_change, METH_NOARGS, nullptr};
PyMethodDef kAfter = {"first_change_after", first_change_after, METH_O, nullptr};
PyMethodDef kUpdate = {"update", update, METH_VARARGS, nullptr};

// build(tests, dict_versions, code, missing, present) -> (first_change, first_change_after, update). The caller
// must keep the tuples of the tests (and the new tuple after update(index, test)) as long as it keeps the
// functions.
PyObject* build(PyObject*, PyObject* arguments) {
  PyObject *tests, *missing, *present;
  int dict_versions;
  Py_ssize_t code;
  if (!PyArg_ParseTuple(arguments, "O!pnOO", &PyList_Type, &tests, &dict_versions, &code, &missing, &present))
    return nullptr;
  Checker* checker = new Checker{{}, dict_versions != 0, code, missing, present, {}, {}, {}};
  PyObject* capsule = PyCapsule_New(checker, kName, destroy);
  if (capsule == nullptr) {
    delete checker;
    return nullptr;
  }
  const Py_ssize_t size = PyList_Size(tests);
  checker->tests.reserve(size);
  for (Py_ssize_t index = 0; index < size; ++index) {
    Test test;
    PyObject* tuple = PyList_GetItem(tests, index);
    if (!PyTuple_Check(tuple)) {
      PyErr_SetString(PyExc_TypeError, "guards: a test is a tuple");
      Py_DECREF(capsule);
      return nullptr;
    }
    if (!read_test(*checker, tuple, test)) {
      Py_DECREF(capsule);
      return nullptr;
    }
    checker->tests.push_back(std::move(test));
  }
  lay_out_words(*checker);
  PyObject* result = Py_BuildValue("NNN", PyCFunction_NewEx(&kFirst, capsule, nullptr),
                                   PyCFunction_NewEx(&kAfter, capsule, nullptr),
                                   PyCFunction_NewEx(&kUpdate, capsule, nullptr));
  Py_DECREF(capsule);
  return result;
}

PyMethodDef kMethods[] = {
    {"build", build, METH_VARARGS,
     "build(tests, dict_versions, code, missing, present) -> (first_change, first_change_after, update)"},
    {"arguments", arguments, METH_VARARGS,
     "arguments(example, tensor class, descriptor of requires_grad, offsets) -> a function of the arguments"},
    {"memory", memory, METH_VARARGS,
     "memory(positions, written storages, writes arguments, tensor class, offsets) -> a function of the values"},
    {nullptr, nullptr, 0, nullptr}};

PyModuleDef kModule = {
    PyModuleDef_HEAD_INIT, "_guards", nullptr, -1, kMethods, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__guards() {
  PyObject* module = PyModule_Create(&kModule);
  if (module != nullptr && PyModule_AddIntConstant(module, "INTERFACE", kInterface) < 0) {
    Py_DECREF(module);
    return nullptr;
  }
  return module;
}

// The guard test that runs before each call of a graph. One loop over dicts, classes, cells and lists checks
// that nothing that build() read has changed. The library is built against Python's limited API, so it works
// with every Python from 3.10 on.
//
// The limited API hides four fields, whose offsets have not changed from 3.10 to 3.14. observe/guards/checkers.py
// probes each of them when the library is loaded, and uses no test whose probe fails.
#define Py_LIMITED_API 0x030A0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>
#include <cstring>
#include <vector>

// Exported by every Python from 3.10 to 3.13, and left out of the limited API. checkers.py probes them.
extern "C" {
PyObject* PyFunction_GetCode(PyObject*);
PyObject* PyFunction_GetDefaults(PyObject*);
PyObject* PyFunction_GetKwDefaults(PyObject*);
PyObject** _PyObject_GetDictPtr(PyObject*);
}

namespace {

struct Dict {
  PyObject base;
  Py_ssize_t used;
  uint64_t version;
};

struct List {
  PyVarObject base;
  PyObject** items;
};

struct Cell {
  PyObject base;
  PyObject* value;
};

constexpr size_t kTypeVersion = 384;  // of PyTypeObject.tp_version_tag

uint64_t type_version(PyObject* type) {
  unsigned int tag;
  std::memcpy(&tag, reinterpret_cast<const char*>(type) + kTypeVersion, sizeof(tag));
  return tag;
}

uint64_t dict_version(PyObject* dict) { return reinterpret_cast<Dict*>(dict)->version; }

// Incremented whenever the format of the tests that build() takes changes. checkers.py uses the library only
// if the numbers match.
constexpr int kInterface = 4;

enum Operation {
  kEntries, kPicture, kType, kCell, kList, kClass, kAttribute, kElement, kFlags, kCall, kLayouts, kFunction, kObject
};

// One key of a dict: `value` is null for a key that must be absent, `any_value` for one that must be present.
struct Entry {
  PyObject* key;
  PyObject* value;
  bool any_value;
  Py_ssize_t position;  // of the key when it was last looked up
};

// The bytes of a TensorImpl from its storage to its dtype and device (c10/core/TensorImpl.h): for a tensor of
// at most five dimensions, the sizes and strides lie among them. checkers.py probes the offsets.
struct Layout {
  std::vector<char> bytes;
  PyObject* requires_grad;  // True or False
};

struct Test {
  Operation operation;
  PyObject* owner;
  PyObject* expected;
  uint64_t version;
  descrgetfunc read;  // the getter of the descriptor, in a test of flags
  std::vector<Entry> entries;
  Py_ssize_t size;  // that a dict with these entries must have, or -1
  std::vector<Layout> layouts;
  Py_ssize_t implementation;  // offset of the TensorImpl pointer in a tensor object
};

// The references are borrowed from the tuples of the tests. The Python object behind a checker owns them: the
// garbage collector does not look into a capsule, and guards refer to the graph that owns them.
struct Checker {
  std::vector<Test> tests;
  bool dict_versions;
  PyObject* missing;
  PyObject* present;
};

bool entry_holds(PyObject* dict, Entry& entry) {
  PyObject *key, *value;
  Py_ssize_t position = entry.position;
  if (position >= 0 && PyDict_Next(dict, &position, &key, &value) && key == entry.key)
    return entry.any_value || value == entry.value;
  value = PyDict_GetItemWithError(dict, entry.key);
  if (value == nullptr) {
    PyErr_Clear();
    return entry.value == nullptr && !entry.any_value;
  }
  for (Py_ssize_t next = 0, before = 0; PyDict_Next(dict, &next, &key, nullptr); before = next)
    if (key == entry.key) entry.position = before;
  return entry.any_value || value == entry.value;
}

bool entries_hold(Test& test) {
  if (test.size >= 0 && PyDict_Size(test.owner) != test.size) return false;
  for (Entry& entry : test.entries)
    if (!entry_holds(test.owner, entry)) return false;
  return true;
}

// Whether a dict has exactly the expected keys and values, in order. `expected` is (*keys, *values).
bool picture_holds(const Test& test) {
  const Py_ssize_t size = PyTuple_Size(test.expected) / 2;
  if (PyDict_Size(test.owner) != size) return false;
  PyObject *key, *value;
  Py_ssize_t position = 0, index = 0;
  while (PyDict_Next(test.owner, &position, &key, &value)) {
    if (key != PyTuple_GetItem(test.expected, index)) return false;
    if (value != PyTuple_GetItem(test.expected, size + index)) return false;
    ++index;
  }
  return true;
}

bool list_holds(const Test& test) {
  const Py_ssize_t size = PyTuple_Size(test.expected);
  if (PyList_Size(test.owner) != size) return false;
  PyObject** items = reinterpret_cast<List*>(test.owner)->items;
  for (Py_ssize_t index = 0; index < size; ++index)
    if (items[index] != PyTuple_GetItem(test.expected, index)) return false;
  return true;
}

bool attribute_holds(const Test& test) {
  PyObject* value = PyObject_GetAttr(test.owner, PyTuple_GetItem(test.expected, 0));
  if (value == nullptr) {
    PyErr_Clear();
    return false;
  }
  const bool same = value == PyTuple_GetItem(test.expected, 1);
  Py_DECREF(value);
  return same;
}

bool element_holds(const Test& test) {
  const Py_ssize_t index = PyLong_AsSsize_t(PyTuple_GetItem(test.expected, 0));
  const Py_ssize_t size = PyList_Size(test.owner);
  const Py_ssize_t position = index < 0 ? index + size : index;
  if (position < 0 || position >= size) return false;
  return reinterpret_cast<List*>(test.owner)->items[position] == PyTuple_GetItem(test.expected, 1);
}

// Whether an attribute, read through its descriptor, is the same object for all owners.
bool flags_hold(const Test& test) {
  PyObject* descriptor = PyTuple_GetItem(test.expected, 0);
  PyObject* expected = PyTuple_GetItem(test.expected, 1);
  const Py_ssize_t size = PyTuple_Size(test.owner);
  for (Py_ssize_t index = 0; index < size; ++index) {
    PyObject* object = PyTuple_GetItem(test.owner, index);
    PyObject* value = test.read(descriptor, object, reinterpret_cast<PyObject*>(Py_TYPE(object)));
    if (value == nullptr) {
      PyErr_Clear();
      return false;
    }
    const bool same = value == expected;
    Py_DECREF(value);
    if (!same) return false;
  }
  return true;
}

const char* implementation_of(const Test& test, PyObject* tensor) {
  return *reinterpret_cast<const char* const*>(reinterpret_cast<const char*>(tensor) + test.implementation);
}

PyObject* read_flag(const Test& test, PyObject* object) {
  PyObject* value = test.read(PyTuple_GetItem(test.expected, 0), object, reinterpret_cast<PyObject*>(Py_TYPE(object)));
  if (value == nullptr) {
    PyErr_Clear();
  } else {
    Py_DECREF(value);  // True and False are never freed
  }
  return value;
}

bool layouts_hold(const Test& test) {
  const Py_ssize_t begin = PyLong_AsSsize_t(PyTuple_GetItem(test.expected, 2));
  for (size_t index = 0; index < test.layouts.size(); ++index) {
    PyObject* tensor = PyTuple_GetItem(test.owner, static_cast<Py_ssize_t>(index));
    const Layout& layout = test.layouts[index];
    if (std::memcmp(implementation_of(test, tensor) + begin, layout.bytes.data(), layout.bytes.size()) != 0) return false;
    if (read_flag(test, tensor) != layout.requires_grad) return false;
  }
  return true;
}

bool is_expected(const Checker& checker, const Test& test, Py_ssize_t index, PyObject* value) {
  PyObject* expected = PyTuple_GetItem(test.expected, index);
  return value == (expected == checker.missing ? nullptr : expected);
}

// Code, defaults and keyword defaults of a function.
bool function_holds(const Checker& checker, const Test& test) {
  return is_expected(checker, test, 0, PyFunction_GetCode(test.owner)) &&
         is_expected(checker, test, 1, PyFunction_GetDefaults(test.owner)) &&
         is_expected(checker, test, 2, PyFunction_GetKwDefaults(test.owner));
}

// The class of an object, and the dict of its attributes. A missing expectation is not compared.
bool object_holds(const Checker& checker, const Test& test) {
  PyObject* cls = PyTuple_GetItem(test.expected, 0);
  if (cls != checker.missing && cls != reinterpret_cast<PyObject*>(Py_TYPE(test.owner))) return false;
  PyObject* attributes = PyTuple_GetItem(test.expected, 1);
  if (attributes == checker.missing) return true;
  PyObject** now = _PyObject_GetDictPtr(test.owner);
  return now != nullptr && *now == attributes;
}

// 1 if the test holds, 0 if not, -1 with an error set.
int call_holds(const Test& test) {
  PyObject* result = PyObject_CallNoArgs(test.expected);
  if (result == nullptr) return -1;
  const int holds = PyObject_IsTrue(result);
  Py_DECREF(result);
  return holds;
}

int holds(const Checker& checker, Test& test) {
  switch (test.operation) {
    case kEntries:
    case kPicture: {
      const uint64_t version = dict_version(test.owner);
      if (checker.dict_versions && version == test.version) return 1;
      if (!(test.operation == kEntries ? entries_hold(test) : picture_holds(test))) return 0;
      test.version = version;  // the change was to other keys
      return 1;
    }
    case kType: return reinterpret_cast<PyObject*>(Py_TYPE(test.owner)) == test.expected;
    case kCell:
      return reinterpret_cast<Cell*>(test.owner)->value == (test.expected == checker.missing ? nullptr : test.expected);
    case kList: return list_holds(test);
    case kClass: return test.version != 0 && type_version(test.owner) == test.version;
    case kAttribute: return attribute_holds(test);
    case kElement: return element_holds(test);
    case kFlags: return flags_hold(test);
    case kCall: return call_holds(test);
    case kLayouts: return layouts_hold(test);
    case kFunction: return function_holds(checker, test);
    case kObject: return object_holds(checker, test);
  }
  return 0;
}

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

PyObject* first_change(PyObject* capsule, PyObject*) { return first_from(capsule, 0); }

PyObject* first_change_after(PyObject* capsule, PyObject* index) {
  const Py_ssize_t start = PyLong_AsSsize_t(index);
  if (start == -1 && PyErr_Occurred()) return nullptr;
  return first_from(capsule, start + 1);
}

// `expected` is (key, value, key, value, ..., size), with or without the size of the dict at its end.
bool read_entries(Checker& checker, Test& test) {
  const Py_ssize_t size = PyTuple_Size(test.expected);
  test.size = size % 2 == 0 ? -1 : PyLong_AsSsize_t(PyTuple_GetItem(test.expected, size - 1));
  if (PyErr_Occurred()) return false;
  test.entries.clear();
  for (Py_ssize_t index = 0; index + 1 < size; index += 2) {
    PyObject* value = PyTuple_GetItem(test.expected, index + 1);
    const bool present = value == checker.present;
    test.entries.push_back({PyTuple_GetItem(test.expected, index),
                            present || value == checker.missing ? nullptr : value, present, -1});
  }
  return true;
}

// `expected` holds the descriptor of requires_grad, the offset of the TensorImpl pointer, and the range
// [begin, end) of bytes to compare.
bool read_layouts(Test& test) {
  test.implementation = PyLong_AsSsize_t(PyTuple_GetItem(test.expected, 1));
  const Py_ssize_t begin = PyLong_AsSsize_t(PyTuple_GetItem(test.expected, 2));
  const Py_ssize_t end = PyLong_AsSsize_t(PyTuple_GetItem(test.expected, 3));
  if (PyErr_Occurred()) return false;
  test.layouts.clear();
  for (Py_ssize_t index = 0; index < PyTuple_Size(test.owner); ++index) {
    PyObject* tensor = PyTuple_GetItem(test.owner, index);
    const char* implementation = implementation_of(test, tensor);
    test.layouts.push_back({{implementation + begin, implementation + end}, read_flag(test, tensor)});
  }
  return true;
}

// Whether the owner and the expected value have the classes that the test reads.
bool check_classes(const Test& test) {
  const bool is_tuple = PyTuple_Check(test.expected);
  switch (test.operation) {
    case kEntries:
    case kPicture: return PyDict_Check(test.owner) && is_tuple;
    case kList: return PyList_Check(test.owner) && is_tuple;
    case kElement:
      return PyList_Check(test.owner) && is_tuple && PyTuple_Size(test.expected) == 2 &&
             PyLong_Check(PyTuple_GetItem(test.expected, 0));
    case kAttribute: return is_tuple && PyTuple_Size(test.expected) == 2;
    case kFlags: return PyTuple_Check(test.owner) && is_tuple && PyTuple_Size(test.expected) == 2;
    case kClass: return PyType_Check(test.owner);
    case kType: return PyType_Check(test.expected);
    case kCell:  // the limited API does not name its class
      return true;
    case kCall: return PyCallable_Check(test.expected);
    case kLayouts: return PyTuple_Check(test.owner) && is_tuple && PyTuple_Size(test.expected) == 4;
    case kFunction: return is_tuple && PyTuple_Size(test.expected) == 3 && PyFunction_GetCode(test.owner) != nullptr;
    case kObject: return is_tuple && PyTuple_Size(test.expected) == 2;
  }
  return false;
}

bool read_test(Checker& checker, PyObject* tuple, Test& test) {
  int operation;
  if (!PyArg_ParseTuple(tuple, "iOO", &operation, &test.owner, &test.expected)) return false;
  test.operation = static_cast<Operation>(operation);
  if (operation < kEntries || operation > kObject || !check_classes(test)) {
    PyErr_Format(PyExc_TypeError, "guards: test %d does not fit its object", operation);
    return false;
  }
  test.version = 0;
  test.read = nullptr;
  if (operation == kFlags || operation == kLayouts) {
    PyTypeObject* descriptor = Py_TYPE(PyTuple_GetItem(test.expected, 0));
    test.read = reinterpret_cast<descrgetfunc>(PyType_GetSlot(descriptor, Py_tp_descr_get));
    if (test.read == nullptr) {
      PyErr_SetString(PyExc_TypeError, "guards: a test of flags needs a descriptor");
      return false;
    }
  }
  if (operation == kEntries && !read_entries(checker, test)) return false;
  if (operation == kLayouts && !read_layouts(test)) return false;
  if (operation == kClass) {
    PyObject* looked_up =
        PyObject_GetAttrString(test.owner, "mro");  // a lookup assigns the class a version
    if (looked_up == nullptr) return false;
    Py_DECREF(looked_up);
    test.version = type_version(test.owner);
  }
  if (operation == kEntries || operation == kPicture) {
    const bool as_expected = operation == kEntries ? entries_hold(test) : picture_holds(test);
    test.version = as_expected ? dict_version(test.owner) : ~dict_version(test.owner);
  }
  return true;
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
  Py_RETURN_NONE;
}

PyMethodDef kFirst = {"first_change", first_change, METH_NOARGS, nullptr};
PyMethodDef kAfter = {"first_change_after", first_change_after, METH_O, nullptr};
PyMethodDef kUpdate = {"update", update, METH_VARARGS, nullptr};

// build(tests, dict_versions, missing, present) -> (first_change, first_change_after, update). The caller
// must keep the tuples of the tests (and the new tuple after update(index, test)) as long as it keeps the
// functions.
PyObject* build(PyObject*, PyObject* arguments) {
  PyObject *tests, *missing, *present;
  int dict_versions;
  if (!PyArg_ParseTuple(arguments, "O!pOO", &PyList_Type, &tests, &dict_versions, &missing, &present))
    return nullptr;
  Checker* checker = new Checker{{}, dict_versions != 0, missing, present};
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
  PyObject* result = Py_BuildValue("NNN", PyCFunction_NewEx(&kFirst, capsule, nullptr),
                                   PyCFunction_NewEx(&kAfter, capsule, nullptr),
                                   PyCFunction_NewEx(&kUpdate, capsule, nullptr));
  Py_DECREF(capsule);
  return result;
}

PyMethodDef kMethods[] = {
    {"build", build, METH_VARARGS,
     "build(tests, dict_versions, missing, present) -> (first_change, first_change_after, update)"},
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

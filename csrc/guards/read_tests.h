// Read a test from the tuple that _graph/guards/sources.py makes.
#pragma once
#include "tests.h"

namespace {

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
  Layouts& layouts = test.layouts;
  layouts.implementation = PyLong_AsSsize_t(PyTuple_GetItem(test.expected, 1));
  layouts.begin = PyLong_AsSsize_t(PyTuple_GetItem(test.expected, 2));
  layouts.size = PyLong_AsSsize_t(PyTuple_GetItem(test.expected, 3)) - layouts.begin;
  if (PyErr_Occurred()) return false;
  layouts.bytes.clear();
  layouts.requires_grad.clear();
  for (Py_ssize_t index = 0; index < PyTuple_Size(test.owner); ++index) {
    PyObject* tensor = PyTuple_GetItem(test.owner, index);
    const char* storage = implementation_of(tensor, layouts.implementation) + layouts.begin;
    layouts.bytes.insert(layouts.bytes.end(), storage, storage + layouts.size);
    layouts.requires_grad.push_back(has_no_autograd(storage) ? nullptr : read_flag(test, tensor));
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
    case kAnswer:
      return PyCallable_Check(test.owner) && is_tuple && PyTuple_Size(test.expected) == 2 &&
             PyTuple_Check(PyTuple_GetItem(test.expected, 0));
  }
  return false;
}

bool read_test(Checker& checker, PyObject* tuple, Test& test) {
  int operation;
  if (!PyArg_ParseTuple(tuple, "iOO", &operation, &test.owner, &test.expected)) return false;
  test.operation = static_cast<Operation>(operation);
  if (operation < kEntries || operation > kAnswer || !check_classes(test)) {
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

}  // namespace

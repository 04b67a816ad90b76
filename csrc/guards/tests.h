// One guard test: a fact about dicts, classes, cells, lists, functions or tensors, compared with what it was.
#pragma once
#define Py_LIMITED_API 0x030A0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

// Exported by every Python from 3.10 to 3.13, and left out of the limited API. native.py probes them.
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

enum Operation {
  kEntries, kPicture, kType, kCell, kList, kClass, kAttribute, kElement, kFlags, kCall, kLayouts, kFunction, kObject,
  kAnswer
};

// One key of a dict: `value` is null for a key that must be absent, `any_value` for one that must be present.
struct Entry {
  PyObject* key;
  PyObject* value;
  bool any_value;
  Py_ssize_t position;  // of the key when it was last looked up
};

// The bytes of some TensorImpls, each from its storage to its dtype and device (c10/core/TensorImpl.h): for a
// tensor of at most five dimensions, the sizes and strides lie among them. native.py probes the offsets.
struct Layouts {
  Py_ssize_t implementation;  // offset of the TensorImpl pointer in a tensor object
  Py_ssize_t begin, size;     // of the bytes of one tensor
  std::vector<char> bytes;    // of all tensors, one after the other
  std::vector<PyObject*> requires_grad;  // True, False, or null if the bytes tell it
};

// A word of memory that stays as it is while a test holds: the version of a dict, the pointer in a cell.
struct Word {
  const uint64_t* address;
  uint64_t expected;
};

struct Test {
  Operation operation;
  PyObject* owner;
  PyObject* expected;
  uint64_t version;
  descrgetfunc read;  // the getter of the descriptor, in a test of flags
  std::vector<Entry> entries;
  Py_ssize_t size;  // that a dict with these entries must have, or -1
  Layouts layouts;
};

// The references are borrowed from the tuples of the tests. The Python object behind a checker owns them: the
// garbage collector does not look into a capsule, and guards refer to the graph that owns them.
//
// Most tests are comparisons of words. They are copied into one array, because a call meets them with cold caches:
// the array is read in order, and no load waits for another one.
struct Checker {
  std::vector<Test> tests;
  bool dict_versions;
  Py_ssize_t code;  // offset of the code in a function, before its defaults; -1 if it is not known
  PyObject* missing;
  PyObject* present;
  std::vector<Word> words;
  std::vector<size_t> test_of_word;
  std::vector<size_t> others;  // indices of the tests that are no words
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

const char* implementation_of(PyObject* tensor, Py_ssize_t offset) {
  return *reinterpret_cast<const char* const*>(reinterpret_cast<const char*>(tensor) + offset);
}

// Whether the second word behind the storage, the pointer to the AutogradMeta, is null: such a tensor requires no
// gradient.
bool has_no_autograd(const char* storage) {
  uint64_t pointer;
  std::memcpy(&pointer, storage + sizeof(pointer), sizeof(pointer));
  return pointer == 0;
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
  const Layouts& layouts = test.layouts;
  const char* expected = layouts.bytes.data();
  for (size_t index = 0; index < layouts.requires_grad.size(); ++index, expected += layouts.size) {
    PyObject* tensor = PyTuple_GetItem(test.owner, static_cast<Py_ssize_t>(index));
    const char* storage = implementation_of(tensor, layouts.implementation) + layouts.begin;
    if (std::memcmp(storage, expected, layouts.size) != 0) return false;
    PyObject* requires_grad = layouts.requires_grad[index];
    if (requires_grad != nullptr && read_flag(test, tensor) != requires_grad) return false;
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

// Whether a function gives the same answer to the same arguments: the same object, or an equal text. 1, 0 or -1.
int answer_holds(const Test& test) {
  PyObject* answer = PyObject_CallObject(test.owner, PyTuple_GetItem(test.expected, 0));
  if (answer == nullptr) {
    if (!PyErr_ExceptionMatches(PyExc_Exception)) return -1;
    PyErr_Clear();
    return 0;
  }
  PyObject* expected = PyTuple_GetItem(test.expected, 1);
  const bool are_texts = PyUnicode_CheckExact(answer) && PyUnicode_CheckExact(expected);
  const int holds = answer == expected || (are_texts && PyUnicode_Compare(answer, expected) == 0);
  Py_DECREF(answer);
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
    case kAnswer: return answer_holds(test);
  }
  return 0;
}

}  // namespace

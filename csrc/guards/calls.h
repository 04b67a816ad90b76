// Tests of one call: whether its arguments are like those of the program, and whether they share memory with what
// the program writes. A function here returns False for anything but plain values and plain tensors. Then Python
// looks closer.
#pragma once
#include <algorithm>

#include "tests.h"

namespace {

// Where a tensor object keeps what the tests compare (_graph/guards/layouts.py).
struct TensorOffsets {
  Py_ssize_t implementation, begin, sizes, offset, end;
};

bool read_offsets(PyObject* tuple, TensorOffsets& offsets) {
  return PyArg_ParseTuple(tuple, "nnnnn", &offsets.implementation, &offsets.begin, &offsets.sizes, &offsets.offset,
                          &offsets.end);
}

// -- arguments ------------------------------------------------------------------------------------------------

// The sizes, strides, dtype, device and dispatch keys of a tensor, without its storage and its storage offset.
// For another value, `value` is the value.
struct Argument {
  PyObject* value;
  std::vector<char> layout;
  bool requires_grad;
};

struct Arguments {
  std::vector<Argument> arguments;
  TensorOffsets offsets;
  PyObject* tensor_class;
  PyObject* requires_grad;  // the descriptor
  descrgetfunc read;
};

constexpr Py_ssize_t kWord = sizeof(uint64_t);
constexpr const char* kArguments = "oneflow.arguments";

// Copies what is compared of a tensor to `layout`, in two pieces around the storage offset.
void copy_layout(const TensorOffsets& offsets, const char* implementation, std::vector<char>& layout) {
  layout.assign(implementation + offsets.sizes, implementation + offsets.offset);
  layout.insert(layout.end(), implementation + offsets.offset + kWord, implementation + offsets.end);
}

bool has_layout(const TensorOffsets& offsets, const char* implementation, const std::vector<char>& layout) {
  const Py_ssize_t before = offsets.offset - offsets.sizes;
  return std::memcmp(implementation + offsets.sizes, layout.data(), before) == 0 &&
         std::memcmp(implementation + offsets.offset + kWord, layout.data() + before, layout.size() - before) == 0;
}

// 1, 0, or -1 with an error set.
int requires_grad(const Arguments& expected, PyObject* tensor, const char* implementation) {
  if (has_no_autograd(implementation + expected.offsets.begin)) return 0;
  PyObject* value = expected.read(expected.requires_grad, tensor, expected.tensor_class);
  if (value == nullptr) return -1;
  const int result = value == Py_True;
  Py_DECREF(value);
  return result;
}

bool is_like(const Arguments& expected, const Argument& argument, PyObject* value) {
  if (argument.value != nullptr) {
    if (value == argument.value) return true;
    if (Py_TYPE(value) != Py_TYPE(argument.value)) return false;
    return PyObject_RichCompareBool(value, argument.value, Py_EQ) == 1;  // of int, bool, str or None
  }
  if (reinterpret_cast<PyObject*>(Py_TYPE(value)) != expected.tensor_class) return false;
  const char* implementation = implementation_of(value, expected.offsets.implementation);
  return has_layout(expected.offsets, implementation, argument.layout) &&
         requires_grad(expected, value, implementation) == argument.requires_grad;
}

PyObject* are_alike(PyObject* capsule, PyObject* arguments) {
  auto* expected = static_cast<Arguments*>(PyCapsule_GetPointer(capsule, kArguments));
  if (expected == nullptr) return nullptr;
  const Py_ssize_t size = static_cast<Py_ssize_t>(expected->arguments.size());
  if (!PyTuple_Check(arguments) || PyTuple_Size(arguments) != size) Py_RETURN_FALSE;
  for (Py_ssize_t index = 0; index < size; ++index)
    if (!is_like(*expected, expected->arguments[index], PyTuple_GetItem(arguments, index))) {
      PyErr_Clear();
      Py_RETURN_FALSE;
    }
  Py_RETURN_TRUE;
}

void destroy_arguments(PyObject* capsule) {
  auto* expected = static_cast<Arguments*>(PyCapsule_GetPointer(capsule, kArguments));
  for (Argument& argument : expected->arguments) Py_XDECREF(argument.value);
  Py_DECREF(expected->tensor_class);
  Py_DECREF(expected->requires_grad);
  delete expected;
}

PyMethodDef kAreAlike = {"are_alike", are_alike, METH_O, nullptr};

// arguments(example, tensor class, descriptor of requires_grad, offsets) -> a function of the arguments of a call.
// The example is a tuple of tensors of that class and of immutable values.
PyObject* arguments(PyObject*, PyObject* parameters) {
  PyObject *example, *tensor_class, *descriptor, *offsets;
  if (!PyArg_ParseTuple(parameters, "O!OOO!", &PyTuple_Type, &example, &tensor_class, &descriptor, &PyTuple_Type,
                        &offsets))
    return nullptr;
  auto* expected = new Arguments{};
  expected->tensor_class = Py_NewRef(tensor_class);
  expected->requires_grad = Py_NewRef(descriptor);
  expected->read = reinterpret_cast<descrgetfunc>(PyType_GetSlot(Py_TYPE(descriptor), Py_tp_descr_get));
  PyObject* capsule = PyCapsule_New(expected, kArguments, destroy_arguments);
  if (capsule == nullptr || !read_offsets(offsets, expected->offsets)) {
    Py_XDECREF(capsule);
    return nullptr;
  }
  for (Py_ssize_t index = 0; index < PyTuple_Size(example); ++index) {
    PyObject* value = PyTuple_GetItem(example, index);
    Argument& argument = expected->arguments.emplace_back(Argument{nullptr, {}, false});
    if (reinterpret_cast<PyObject*>(Py_TYPE(value)) != tensor_class) {
      argument.value = Py_NewRef(value);
      continue;
    }
    const char* implementation = implementation_of(value, expected->offsets.implementation);
    copy_layout(expected->offsets, implementation, argument.layout);
    argument.requires_grad = requires_grad(*expected, value, implementation) == 1;
  }
  PyObject* function = PyCFunction_NewEx(&kAreAlike, capsule, nullptr);
  Py_DECREF(capsule);
  return function;
}

// -- memory ---------------------------------------------------------------------------------------------------

struct Memory {
  std::vector<Py_ssize_t> positions;  // of the arguments among the values of a program
  std::vector<uint64_t> written;      // storages that the program writes, sorted
  bool writes_arguments;
  TensorOffsets offsets;
  PyObject* tensor_class;
};

constexpr const char* kMemory = "oneflow.memory";

// The storage of a plain tensor, or 0 if it has none or is another object.
uint64_t storage_of(const Memory& memory, PyObject* value) {
  if (reinterpret_cast<PyObject*>(Py_TYPE(value)) != memory.tensor_class) return 0;
  uint64_t storage;
  std::memcpy(&storage, implementation_of(value, memory.offsets.implementation) + memory.offsets.begin, sizeof(storage));
  return storage;
}

PyObject* is_separate(PyObject* capsule, PyObject* values) {
  auto* memory = static_cast<Memory*>(PyCapsule_GetPointer(capsule, kMemory));
  if (memory == nullptr) return nullptr;
  for (size_t index = 0; index < memory->positions.size(); ++index) {
    PyObject* value = PyTuple_GetItem(values, memory->positions[index]);
    if (value == nullptr) return nullptr;
    const uint64_t storage = storage_of(*memory, value);
    if (storage == 0 || std::binary_search(memory->written.begin(), memory->written.end(), storage)) Py_RETURN_FALSE;
    for (size_t before = 0; memory->writes_arguments && before < index; ++before)
      if (storage_of(*memory, PyTuple_GetItem(values, memory->positions[before])) == storage) Py_RETURN_FALSE;
  }
  Py_RETURN_TRUE;
}

void destroy_memory(PyObject* capsule) {
  auto* memory = static_cast<Memory*>(PyCapsule_GetPointer(capsule, kMemory));
  Py_DECREF(memory->tensor_class);
  delete memory;
}

PyMethodDef kIsSeparate = {"is_separate", is_separate, METH_O, nullptr};

// memory(positions, written storages, writes arguments, tensor class, offsets) -> a function of the values of a
// program: whether no argument lies in memory that the program writes.
PyObject* memory(PyObject*, PyObject* parameters) {
  PyObject *positions, *written, *tensor_class, *offsets;
  int writes_arguments;
  if (!PyArg_ParseTuple(parameters, "O!O!pOO!", &PyTuple_Type, &positions, &PyTuple_Type, &written, &writes_arguments,
                        &tensor_class, &PyTuple_Type, &offsets))
    return nullptr;
  auto* expected = new Memory{};
  expected->writes_arguments = writes_arguments != 0;
  expected->tensor_class = Py_NewRef(tensor_class);
  PyObject* capsule = PyCapsule_New(expected, kMemory, destroy_memory);
  if (capsule == nullptr || !read_offsets(offsets, expected->offsets)) {
    Py_XDECREF(capsule);
    return nullptr;
  }
  for (Py_ssize_t index = 0; index < PyTuple_Size(positions); ++index)
    expected->positions.push_back(PyLong_AsSsize_t(PyTuple_GetItem(positions, index)));
  for (Py_ssize_t index = 0; index < PyTuple_Size(written); ++index)
    expected->written.push_back(PyLong_AsUnsignedLongLong(PyTuple_GetItem(written, index)));
  std::sort(expected->written.begin(), expected->written.end());
  PyObject* function = PyErr_Occurred() ? nullptr : PyCFunction_NewEx(&kIsSeparate, capsule, nullptr);
  Py_DECREF(capsule);
  return function;
}

}  // namespace

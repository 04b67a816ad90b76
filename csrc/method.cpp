// Method: a method of a torch class that first calls torch's own method and, if that refuses, OneFlow's. On the
// class it is torch's own method, so that tables of functions, pickles and torch.compile find what torch has.
// The library is built against Python's limited API, so it works with every Python from 3.10 on.
// oneflow_compat/_method.py holds the same class in Python, for an installation without a compiler.
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030A0000
#include <Python.h>
#include <structmember.h>

// Every CPython exports this function; the limited API does not declare it.
extern "C" PyObject* PyMethod_New(PyObject* function, PyObject* self);

namespace {

constexpr int kInterface = 1;  // _method.py uses the library only if the numbers match

struct Method {
  PyObject_HEAD
  PyObject* original;
  PyObject* fallback;   // fallback(original, error or None, self, *arguments), or NotImplemented
  PyObject* dictionary;  // __name__, __doc__ and the like
  char always;           // whether the fallback is called without calling `original` first
};

PyObject* refusals = nullptr;  // the classes of errors after which OneFlow's meaning is tried

// Call the fallback with (original, error, *arguments).
PyObject* call_fallback(Method* method, PyObject* error, PyObject* arguments, PyObject* keywords) {
  const Py_ssize_t size = PyTuple_Size(arguments);
  PyObject* extended = PyTuple_New(size + 2);
  if (extended == nullptr) return nullptr;
  Py_INCREF(method->original);
  Py_INCREF(error);
  PyTuple_SetItem(extended, 0, method->original);
  PyTuple_SetItem(extended, 1, error);
  for (Py_ssize_t index = 0; index < size; ++index) {
    PyObject* argument = PyTuple_GetItem(arguments, index);
    Py_INCREF(argument);
    PyTuple_SetItem(extended, index + 2, argument);
  }
  PyObject* result = PyObject_Call(method->fallback, extended, keywords);
  Py_DECREF(extended);
  return result;
}

PyObject* call(PyObject* object, PyObject* arguments, PyObject* keywords) {
  Method* method = reinterpret_cast<Method*>(object);
  if (method->always) return call_fallback(method, Py_None, arguments, keywords);
  PyObject* result = PyObject_Call(method->original, arguments, keywords);
  if (result != nullptr) {
    if (result != Py_NotImplemented) return result;
    PyObject* other = call_fallback(method, Py_None, arguments, keywords);
    Py_DECREF(result);
    return other;
  }
  if (!PyErr_ExceptionMatches(refusals)) return nullptr;
  PyObject *type, *error, *traceback;
  PyErr_Fetch(&type, &error, &traceback);
  PyErr_NormalizeException(&type, &error, &traceback);
  if (traceback != nullptr) PyException_SetTraceback(error, traceback);
  result = call_fallback(method, error, arguments, keywords);
  if (result != Py_NotImplemented) {
    Py_XDECREF(type);
    Py_XDECREF(error);
    Py_XDECREF(traceback);
    return result;
  }
  Py_DECREF(result);
  PyErr_Restore(type, error, traceback);
  return nullptr;
}

PyObject* get(PyObject* object, PyObject* self, PyObject*) {
  if (self != nullptr && self != Py_None) return PyMethod_New(object, self);
  PyObject* original = reinterpret_cast<Method*>(object)->original;
  Py_INCREF(original);
  return original;
}

// A Method is equal to the method that it calls: torch compares what it finds in the dict of a class.
PyObject* compare(PyObject* object, PyObject* other, int operation) {
  if (operation != Py_EQ && operation != Py_NE) Py_RETURN_NOTIMPLEMENTED;
  PyObject* mine = reinterpret_cast<Method*>(object)->original;
  if (Py_TYPE(object) == Py_TYPE(other)) other = reinterpret_cast<Method*>(other)->original;
  return PyObject_RichCompare(mine, other, operation);
}

Py_hash_t hash(PyObject* object) { return PyObject_Hash(reinterpret_cast<Method*>(object)->original); }

PyObject* make(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
  static const char* names[] = {"original", "fallback", "always", nullptr};
  PyObject *original, *fallback;
  int always = 0;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "OO|p", const_cast<char**>(names), &original, &fallback,
                                   &always))
    return nullptr;
  allocfunc allocate = reinterpret_cast<allocfunc>(PyType_GetSlot(type, Py_tp_alloc));
  Method* method = reinterpret_cast<Method*>(allocate(type, 0));
  if (method == nullptr) return nullptr;
  Py_INCREF(original);
  Py_INCREF(fallback);
  method->original = original;
  method->fallback = fallback;
  method->dictionary = PyDict_New();
  method->always = always != 0;
  return reinterpret_cast<PyObject*>(method);
}

int traverse(PyObject* object, visitproc visit, void* arg) {
  Method* method = reinterpret_cast<Method*>(object);
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(method->original);
  Py_VISIT(method->fallback);
  Py_VISIT(method->dictionary);
  return 0;
}

int clear(PyObject* object) {
  Method* method = reinterpret_cast<Method*>(object);
  Py_CLEAR(method->original);
  Py_CLEAR(method->fallback);
  Py_CLEAR(method->dictionary);
  return 0;
}

void destroy(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  clear(object);
  reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(object);
  Py_DECREF(type);
}

PyMemberDef kMembers[] = {
    {"__oneflow_original__", T_OBJECT_EX, offsetof(Method, original), READONLY, "torch's own method"},
    {"__dictoffset__", T_PYSSIZET, offsetof(Method, dictionary), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};

PyGetSetDef kAttributes[] = {{"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
                             {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyType_Slot kSlots[] = {{Py_tp_new, reinterpret_cast<void*>(make)},
                        {Py_tp_call, reinterpret_cast<void*>(call)},
                        {Py_tp_descr_get, reinterpret_cast<void*>(get)},
                        {Py_tp_richcompare, reinterpret_cast<void*>(compare)},
                        {Py_tp_hash, reinterpret_cast<void*>(hash)},
                        {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
                        {Py_tp_clear, reinterpret_cast<void*>(clear)},
                        {Py_tp_dealloc, reinterpret_cast<void*>(destroy)},
                        {Py_tp_members, kMembers},
                        {Py_tp_getset, kAttributes},
                        {0, nullptr}};

PyType_Spec kType = {"oneflow._fast_method.Method", sizeof(Method), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                     kSlots};

PyModuleDef kModule = {
    PyModuleDef_HEAD_INIT, "_fast_method", nullptr, -1, nullptr, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__fast_method() {
  refusals = PyTuple_Pack(3, PyExc_TypeError, PyExc_RuntimeError, PyExc_ValueError);
  PyObject* module = PyModule_Create(&kModule);
  PyObject* type = PyType_FromSpec(&kType);
  if (refusals == nullptr || module == nullptr || type == nullptr ||
      PyModule_AddIntConstant(module, "INTERFACE", kInterface) < 0 ||
      PyModule_AddObjectRef(module, "Method", type) < 0) {
    Py_XDECREF(module);
    Py_XDECREF(type);
    return nullptr;
  }
  Py_DECREF(type);
  return module;
}

// Runs of operators of a program, called one after the other without Python.
//
// A run is a list of calls. Each reads registers and constants, and its results are registers. The operators
// are called through torch's dispatcher with the arguments that Python would pass, so kernels and bits are the
// same. This library uses torch's C++ API, which has no stable ABI: it serves the torch that it was built for.
#include <ATen/ScalarOps.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <torch/library.h>

#include <memory>
#include <mutex>
#include <unordered_map>

namespace {

using c10::IValue;

// Where an argument comes from; _Source of oneflow_compat/_graph/compile/operator_runs.py.
enum Source : int64_t { kValue, kIntegers, kRegister, kTensors, kOptionalTensors, kNumbers };

struct Argument {
  Source source;
  IValue value;                    // of kValue, kIntegers and kNumbers
  std::vector<int64_t> registers;  // of the others, -1: None; of kNumbers the numbers of a call, -1: of `value`
};

struct Call {
  c10::OperatorHandle op;
  std::vector<Argument> arguments;
  std::vector<int64_t> results;  // registers; -1: nobody reads it
  bool is_list;                  // whether the operator returns one list of tensors
  std::vector<int64_t> dead;     // registers that no later call reads
};

struct Run {
  size_t inputs, numbers, registers;
  std::vector<Call> calls;
  std::vector<int64_t> outputs;

  void check(const std::vector<int64_t>& indices, int64_t least) const {
    for (const int64_t i : indices)
      TORCH_CHECK(i >= least && i < static_cast<int64_t>(registers), "oneflow: a run has ", registers,
                  " registers, found index ", i);
  }
};

class Runs {
 public:
  static constexpr int64_t kMost = 1 << 20;


  int64_t add(int64_t inputs, int64_t numbers, int64_t registers) {
    TORCH_CHECK(inputs >= 0 && registers >= inputs && registers <= kMost && numbers >= 0 && numbers <= kMost,
                "oneflow: no run has ", inputs, " inputs, ", numbers, " numbers and ", registers, " registers");
    const std::lock_guard<std::mutex> lock(mutex_);
    runs_[++last_] = std::make_shared<Run>(
        Run{static_cast<size_t>(inputs), static_cast<size_t>(numbers), static_cast<size_t>(registers), {}, {}});
    return last_;
  }
  std::shared_ptr<Run> at(int64_t handle) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = runs_.find(handle);
    TORCH_CHECK(found != runs_.end(), "oneflow: there is no run of operators ", handle);
    return found->second;
  }
  void remove(int64_t handle) {
    const std::lock_guard<std::mutex> lock(mutex_);
    runs_.erase(handle);
  }

 private:
  std::mutex mutex_;
  std::unordered_map<int64_t, std::shared_ptr<Run>> runs_;
  int64_t last_ = 0;
};

Runs& runs() {
  static Runs all;
  return all;
}

// The argument of an operator for a list of integers, which may stand for Booleans or floats.
IValue list_of(const std::vector<int64_t>& integers, const c10::Type& element) {
  switch (element.kind()) {
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType:
      return c10::List<int64_t>(c10::ArrayRef<int64_t>(integers));
    case c10::TypeKind::BoolType: {
      c10::List<bool> list;
      for (const int64_t i : integers) list.push_back(i != 0);
      return list;
    }
    case c10::TypeKind::FloatType: {
      c10::List<double> list;
      for (const int64_t i : integers) list.push_back(static_cast<double>(i));
      return list;
    }
    default:
      TORCH_CHECK(false, "oneflow: a run has no lists of ", element.str());
  }
}

// A Python value as the argument of the type that an operator's schema has.
IValue as_argument(const IValue& value, const std::vector<int64_t>& integers, Source source,
                   const c10::Argument& argument) {
  c10::TypePtr type = argument.type();
  if (const auto optional = type->cast<c10::OptionalType>()) {
    if (source == kValue && value.isNone()) return value;
    type = optional->getElementType();
  }
  const auto list = type->cast<c10::ListType>();
  if (source == kIntegers) {
    TORCH_CHECK(list, "oneflow: the argument ", argument.name(), " is no list");
    return list_of(integers, *list->getElementType());
  }
  if (list && value.isInt() && argument.N())  // dim=0 for an argument int[1]
    return list_of(std::vector<int64_t>(*argument.N(), value.toInt()), *list->getElementType());
  if (type->kind() == c10::TypeKind::TensorType && value.isScalar()) {  // x + 1
    at::Tensor number = at::scalar_to_tensor(value.toScalar());
    number.unsafeGetTensorImpl()->set_wrapped_number(true);
    return number;
  }
  const bool fits = [&] {
    switch (type->kind()) {
      case c10::TypeKind::FloatType:
        return value.isInt() || value.isDouble();
      case c10::TypeKind::NumberType:
        return value.isScalar();
      case c10::TypeKind::IntType:
      case c10::TypeKind::SymIntType:
        return value.isInt();
      case c10::TypeKind::BoolType:
        return value.isBool();
      case c10::TypeKind::StringType:
        return value.isString();
      case c10::TypeKind::DeviceObjType:
        return value.isDevice();
      case c10::TypeKind::ListType:
        return value.isDoubleList() && list->getElementType()->kind() == c10::TypeKind::FloatType;
      default:
        return false;
    }
  }();
  TORCH_CHECK(fits, "oneflow: the argument ", argument.name(), " needs ", type->str(), ", found ",
              value.tagKind());
  if (type->kind() == c10::TypeKind::FloatType && value.isInt()) return static_cast<double>(value.toInt());
  return value;
}

int64_t new_run(int64_t inputs, int64_t numbers, int64_t registers) {
  return runs().add(inputs, numbers, registers);
}

void add_call(int64_t handle, const std::string& name, const std::string& overload,
              const std::vector<int64_t>& results, const std::vector<int64_t>& dead) {
  const auto run = runs().at(handle);
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), overload.c_str());
  const auto& returns = op.schema().returns();
  const bool is_list = returns.size() == 1 && returns[0].type()->kind() == c10::TypeKind::ListType;
  TORCH_CHECK(is_list || results.size() == returns.size(), "oneflow: ", name, " has ", returns.size(),
              " results, found ", results.size());
  run->check(results, -1);
  run->check(dead, 0);
  run->calls.push_back({op, {}, results, is_list, dead});
}

void add_argument(int64_t handle, int64_t source, const std::vector<int64_t>& integers, const IValue& value,
                  std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                  std::optional<at::MemoryFormat> format, std::optional<at::Device> device) {
  const auto run = runs().at(handle);
  TORCH_CHECK(!run->calls.empty(), "oneflow: a run without calls has no arguments");
  Call& call = run->calls.back();
  const auto& arguments = call.op.schema().arguments();
  TORCH_CHECK(call.arguments.size() < arguments.size(), "oneflow: ", call.op.schema().name(), " has ",
              arguments.size(), " arguments");
  TORCH_CHECK(source >= kValue && source <= kNumbers, "oneflow: no source ", source);
  const auto from = static_cast<Source>(source);
  if (from == kNumbers) {
    const size_t count = value.isDoubleList() ? value.toDoubleList().size() : 0;
    TORCH_CHECK(count == integers.size(), "oneflow: a list of numbers needs ", integers.size(), " values");
    for (const int64_t i : integers)
      TORCH_CHECK(i >= -1 && i < static_cast<int64_t>(run->numbers), "oneflow: a run has ", run->numbers,
                  " numbers, found index ", i);
    call.arguments.push_back({from, value, integers});
    return;
  }
  if (from >= kRegister) {
    run->check(integers, from == kOptionalTensors ? -1 : 0);
    TORCH_CHECK(from != kRegister || integers.size() == 1, "oneflow: an argument is one register");
    call.arguments.push_back({from, IValue(), integers});
    return;
  }
  const IValue of_options = dtype    ? IValue(*dtype)
                            : layout ? IValue(*layout)
                            : format ? IValue(*format)
                            : device ? IValue(*device)
                                     : value;
  call.arguments.push_back(
      {from, as_argument(of_options, integers, from, arguments[call.arguments.size()]), {}});
}

void set_outputs(int64_t handle, const std::vector<int64_t>& outputs) {
  const auto run = runs().at(handle);
  run->check(outputs, 0);
  for (Call& call : run->calls) {
    const auto& arguments = call.op.schema().arguments();
    for (size_t i = call.arguments.size(); i < arguments.size(); ++i) {
      const auto& value = arguments[i].default_value();
      TORCH_CHECK(value, "oneflow: ", call.op.schema().name(), " lacks the argument ", arguments[i].name());
      call.arguments.push_back({kValue, *value, {}});
    }
  }
  run->outputs = outputs;
}

IValue value_of(const Argument& argument, const std::vector<IValue>& registers,
                c10::ArrayRef<double> numbers) {
  const auto at = [&](int64_t i) -> const IValue& { return registers[static_cast<size_t>(i)]; };
  switch (argument.source) {
    case kRegister:
      return at(argument.registers[0]);
    case kTensors: {
      c10::List<at::Tensor> list;
      list.reserve(argument.registers.size());
      for (const int64_t i : argument.registers) list.push_back(at(i).toTensor());
      return list;
    }
    case kOptionalTensors: {
      c10::List<std::optional<at::Tensor>> list;
      list.reserve(argument.registers.size());
      for (const int64_t i : argument.registers)
        list.push_back(i < 0 ? std::nullopt : std::optional<at::Tensor>(at(i).toTensor()));
      return list;
    }
    case kNumbers: {
      c10::List<double> list = argument.value.toDoubleList().copy();
      for (size_t i = 0; i < argument.registers.size(); ++i)
        if (argument.registers[i] >= 0) list.set(i, numbers[static_cast<size_t>(argument.registers[i])]);
      return list;
    }
    default:
      return argument.value;
  }
}

void keep(std::vector<IValue>& registers, int64_t index, IValue&& value) {
  if (index >= 0) registers[static_cast<size_t>(index)] = std::move(value);
}

void keep_results(const Call& call, std::vector<IValue>& registers, torch::jit::Stack& stack) {
  if (!call.is_list) {
    for (size_t i = 0; i < call.results.size(); ++i) keep(registers, call.results[i], std::move(stack[i]));
    return;
  }
  const c10::List<at::Tensor> list = stack.back().toTensorList();
  for (size_t i = 0; i < call.results.size(); ++i)
    keep(registers, call.results[i], at::Tensor(list.get(i)));
}

std::vector<at::Tensor> call_run(at::TensorList inputs, c10::ArrayRef<double> numbers, int64_t handle) {
  const std::shared_ptr<const Run> run = runs().at(handle);
  TORCH_CHECK(inputs.size() == run->inputs && numbers.size() == run->numbers, "oneflow: a run takes ",
              run->inputs, " tensors and ", run->numbers, " numbers, found ", inputs.size(), " and ",
              numbers.size());
  std::vector<IValue> registers(run->registers);
  std::copy(inputs.begin(), inputs.end(), registers.begin());
  torch::jit::Stack stack;
  for (const Call& call : run->calls) {
    for (const Argument& argument : call.arguments) stack.push_back(value_of(argument, registers, numbers));
    call.op.callBoxed(stack);
    keep_results(call, registers, stack);
    stack.clear();
    for (const int64_t i : call.dead) registers[static_cast<size_t>(i)] = IValue();
  }
  std::vector<at::Tensor> outputs;
  outputs.reserve(run->outputs.size());
  for (const int64_t i : run->outputs) outputs.push_back(registers[static_cast<size_t>(i)].toTensor());
  return outputs;
}

void remove_run(int64_t handle) { runs().remove(handle); }

}  // namespace

TORCH_LIBRARY_FRAGMENT(oneflow, m) {
  m.def("run_of_operators(Tensor[] inputs, float[] numbers, int run) -> Tensor[]", call_run);
  m.def("new_run(int inputs, int numbers, int registers) -> int", new_run);
  m.def("add_call(int run, str name, str overload, int[] results, int[] dead) -> ()", add_call);
  m.def(
      "add_argument(int run, int source, int[] integers, Any value, ScalarType? dtype=None, "
      "Layout? layout=None, MemoryFormat? memory_format=None, Device? device=None) -> ()",
      add_argument);
  m.def("set_outputs(int run, int[] outputs) -> ()", set_outputs);
  m.def("remove_run(int run) -> ()", remove_run);
}

// A tensor subclass and a dispatch mode see the operators of a run, and not the run.
TORCH_LIBRARY_IMPL(oneflow, Python, m) { m.impl("run_of_operators", call_run); }

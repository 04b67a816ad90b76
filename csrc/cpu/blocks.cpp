// Register elementwise steps over blocks of memory as CPU operators: in place (blocks_) and into new tensors.
#include "operands.h"

#include <algorithm>

// MKL's functions, if torch is built with MKL. libtorch_cpu uses them, and they round differently from the
// processor's instructions and from at::vec.
#define ONEFLOW_MKL(name)                                                                         \
  __attribute__((weak)) void vms##name(int n, const float* x, float* y, long long mode);          \
  __attribute__((weak)) void vmd##name(int n, const double* x, double* y, long long mode);
extern "C" {
ONEFLOW_MKL(Sqrt)
ONEFLOW_MKL(Tanh)
ONEFLOW_MKL(Exp)
ONEFLOW_MKL(Ln)
ONEFLOW_MKL(Erf)
ONEFLOW_MKL(Sin)
ONEFLOW_MKL(Cos)
}
#undef ONEFLOW_MKL

namespace oneflow_ext {
namespace {

using oneflow_cpu::best;
using oneflow_cpu::Block;
using oneflow_cpu::BlockStep;
using torch::stable::parallel_for;

constexpr long long kMode = 0x2 | 0x140000 | 0x100;  // VML_HA | VML_FTZDAZ_OFF | VML_ERRMODE_IGNORE, as torch

template <auto function, class T>
oneflow_cpu::BlockFunction<T> checked() {
  if (!function) return nullptr;
  return [](int n, const T* x, T* y) { function(n, x, y, kMode); };
}

const oneflow_cpu::BlockFunctions& functions() {
  static const oneflow_cpu::BlockFunctions all = {
      {checked<vmsSqrt, float>(), checked<vmsTanh, float>(), checked<vmsExp, float>(),
       checked<vmsLn, float>(), checked<vmsErf, float>(), checked<vmsSin, float>(), checked<vmsCos, float>()},
      {checked<vmdSqrt, double>(), checked<vmdTanh, double>(), checked<vmdExp, double>(),
       checked<vmdLn, double>(), checked<vmdErf, double>(), checked<vmdSin, double>(),
       checked<vmdCos, double>()}};
  return all;
}

bool needs_mkl(Block op) { return op >= Block::tanh && op <= Block::cos; }

constexpr int64_t kMaxResults = 64;
constexpr size_t kStepNumbers = 6;  // fields of a step of blocks_: operator, result, three operands, scalar

int operands_of(Block op) { return oneflow_cpu::kBlockOperands[static_cast<int>(op)]; }

// The tensors of a call: first `writes` that steps write, then `reads`. Results have no value before a step
// computes them.
struct Operands {
  int64_t writes, reads;
  bool are_results;
  int64_t tensors() const { return writes + reads; }
};

std::vector<BlockStep> steps_of(const Checks& check, const std::vector<int64_t>& code,
                                const Operands& operands, int64_t scalars) {
  std::vector<BlockStep> steps;
  if (code.size() % kStepNumbers)
    check.refuse("code", "have ", kStepNumbers, " entries a step, found ", code.size());
  const int64_t tensors = operands.tensors(), last = tensors + oneflow_cpu::kBlockTemporaries - 1;
  std::vector<bool> has_value(static_cast<size_t>(last + 1));
  for (int64_t k = operands.are_results ? operands.writes : 0; k < tensors; ++k)
    has_value[static_cast<size_t>(k)] = true;
  for (size_t i = 0; i < code.size(); i += kStepNumbers) {
    const int64_t* n = code.data() + i;
    const auto name = [&](int64_t k) { return ArgumentName("code", static_cast<int64_t>(i) + k); };
    check.range<int64_t>(name(0), n[0], 0, static_cast<int64_t>(Block::count) - 1);
    const BlockStep step{static_cast<Block>(n[0]), n[1], n[2], n[3], n[4], n[5]};
    if (needs_mkl(step.op) && !functions().f32.tanh)
      check.refuse(name(0), "be a step without MKL, which this torch lacks, found ", n[0]);
    const int count = operands_of(step.op);
    for (int k = 0; k < 3; ++k) {
      check.range<int64_t>(name(2 + k), n[2 + k], k < count ? 0 : -1, last);
      if (k >= count || has_value[static_cast<size_t>(n[2 + k])]) continue;
      if (n[2 + k] >= tensors)
        check.refuse(name(2 + k), "be a temporary that an earlier step computes, found temporary ",
                     n[2 + k] - tensors);
      check.refuse(name(2 + k), "be a result that an earlier step computes, found result ", n[2 + k]);
    }
    check.range<int64_t>(name(1), n[1], 0, last), check.range<int64_t>(name(5), n[5], -1, scalars - 1);
    if (n[1] >= operands.writes && n[1] < tensors)
      check.refuse(name(1), "be a tensor to write or a temporary, found tensor ", n[1] - operands.writes,
                   " of those to read");
    has_value[static_cast<size_t>(n[1])] = true;
    steps.push_back(step);
  }
  for (int64_t k = 0; k < operands.writes; ++k)
    if (!has_value[static_cast<size_t>(k)]) check.refuse("code", "compute result ", k, ", found no such step");
  return steps;
}

// Whether the elements of x do not overlap and leave no gap in memory.
bool is_dense(const Tensor& x) {
  if (x.is_contiguous()) return true;
  std::vector<std::pair<int64_t, int64_t>> dims;  // (stride, size)
  for (int64_t d = 0; d < x.dim(); ++d)
    if (x.size(d) != 1) dims.emplace_back(x.stride(d), x.size(d));
  std::sort(dims.begin(), dims.end());
  int64_t expected = 1;
  for (const auto& [stride, size] : dims) {
    if (stride != expected) return false;
    expected *= size;
  }
  return true;
}

bool same_strides(const Tensor& x, const Tensor& y) {
  const auto sizes = x.sizes(), strides = x.strides(), others = y.strides();
  for (size_t d = 0; d < sizes.size(); ++d)
    if (sizes[d] != 1 && strides[d] != others[d]) return false;
  return true;
}
std::string strides_text(const Tensor& x) { return shape_text(x.strides().data(), x.strides().size()); }

// The tensors and scalars of blocks_, divided into lanes of equal length.
struct Lanes {
  const std::vector<Tensor>&written, &read;
  const std::vector<double>& own;
  size_t count;
  size_t writes() const { return written.size() / count; }
  size_t reads() const { return read.size() / count; }
  size_t scalars() const { return own.size() / count; }
  const Tensor& first(size_t lane) const { return written[lane * writes()]; }
};

// Check that all tensors written by a lane have the same dense layout. Tensors that are only read may have
// any layout.
void check_lane(const Checks& check, const Lanes& lanes, size_t lane) {
  const size_t begin = lane * lanes.writes();
  const Tensor& first = lanes.first(lane);
  const ArgumentName first_name("written", static_cast<int64_t>(begin));
  check.wide(first_name, first);
  if (!is_dense(first))
    check.refuse(first_name, "be dense, found shape ", shape_text(first), " and strides ",
                 strides_text(first));
  for (size_t i = begin + 1; i < begin + lanes.writes(); ++i) {
    const ArgumentName name("written", static_cast<int64_t>(i));
    check.alike(name, lanes.written[i], "the first of its lane", first);
    if (!same_strides(lanes.written[i], first))
      check.refuse(name, "have the strides of the first of its lane, ", strides_text(first), ", found ",
                   strides_text(lanes.written[i]));
  }
  for (size_t i = lane * lanes.reads(); i < (lane + 1) * lanes.reads(); ++i)
    check.alike({"read", static_cast<int64_t>(i)}, lanes.read[i], "what its lane writes", first);
}

void run_lane(const Lanes& lanes, size_t lane, const std::vector<BlockStep>& steps,
              const std::vector<double>& common) {
  const Tensor& first = lanes.first(lane);
  std::vector<void*> tensors;
  std::vector<Tensor> copies;
  for (size_t k = 0; k < lanes.writes(); ++k)
    tensors.push_back(lanes.written[lane * lanes.writes() + k].data_ptr());
  for (size_t k = 0; k < lanes.reads(); ++k) {
    const Tensor& t = lanes.read[lane * lanes.reads() + k];
    const bool fits = same_strides(t, first);
    if (!fits) {
      copies.push_back(fresh_strided(first, shape(first), {first.strides().begin(), first.strides().end()}));
      torch::stable::copy_(copies.back(), t);
    }
    tensors.push_back((fits ? t : copies.back()).data_ptr());
  }
  std::vector<double> scalars = common;
  const auto own = lanes.own.begin() + static_cast<int64_t>(lane * lanes.scalars());
  scalars.insert(scalars.end(), own, own + static_cast<int64_t>(lanes.scalars()));
  parallel_for(0, first.numel(), 32768, [&](int64_t a, int64_t b) {
    best().blocks(dtype_of(first), functions(), steps.data(), static_cast<int64_t>(steps.size()), tensors.data(),
                  static_cast<int64_t>(tensors.size()), scalars.data(), a, b);
  });
}

void blocks_in_place(std::vector<Tensor> written, std::vector<Tensor> read, int64_t lanes, std::vector<int64_t> code,
            std::vector<double> common, std::vector<double> own) {
  const Checks check("blocks_");
  if (written.empty()) check.refuse("written", "have a tensor for each lane, found none");
  check.range<int64_t>("lanes", lanes, 1, static_cast<int64_t>(written.size()));
  const Lanes parts{written, read, own, static_cast<size_t>(lanes)};
  for (const auto& [name, count] :
       {std::pair{"written", written.size()}, std::pair{"read", read.size()}, std::pair{"own", own.size()}})
    if (count % parts.count) check.refuse(name, "part into ", lanes, " lanes, found ", count, " entries");
  const Operands operands{static_cast<int64_t>(parts.writes()), static_cast<int64_t>(parts.reads()), false};
  const auto steps = steps_of(check, code, operands, static_cast<int64_t>(common.size() + parts.scalars()));
  for (size_t lane = 0; lane < parts.count; ++lane)
    check_lane(check, parts, lane);  // check all lanes before anything is written
  for (size_t lane = 0; lane < parts.count; ++lane) run_lane(parts, lane, steps, common);
}

// The results of steps on tensors of one shape, which the steps number after the results.
std::vector<Tensor> blocks(std::vector<Tensor> read, int64_t results, std::vector<int64_t> code,
                           std::vector<double> scalars) {
  const Checks check("blocks");
  check.range<int64_t>("results", results, 1, kMaxResults);
  const Operands operands{results, static_cast<int64_t>(read.size()), true};
  const auto steps = steps_of(check, code, operands, static_cast<int64_t>(scalars.size()));
  check.wide({"read", 0}, read[0]);
  for (size_t i = 1; i < read.size(); ++i)
    check.alike({"read", static_cast<int64_t>(i)}, read[i], "the first", read[0]);
  std::vector<Tensor> written, copies;
  std::vector<void*> addresses;
  const std::vector<int64_t> sizes = shape(read[0]);
  for (int64_t k = 0; k < results; ++k) {
    written.push_back(fresh(read[0], sizes));
    addresses.push_back(written.back().data_ptr());
  }
  for (const Tensor& t : read) {
    copies.push_back(dense(t));
    addresses.push_back(copies.back().data_ptr());
  }
  parallel_for(0, read[0].numel(), 32768, [&](int64_t a, int64_t b) {
    best().blocks(dtype_of(read[0]), functions(), steps.data(), static_cast<int64_t>(steps.size()),
                  addresses.data(), operands.tensors(), scalars.data(), a, b);
  });
  return written;
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(oneflow, CPU, m) {
  m.impl("blocks_", TORCH_BOX(&blocks_in_place));
  m.impl("blocks", TORCH_BOX(&blocks));
}

}  // namespace oneflow_ext

// Register the updates of optimizers as CPU operators: one rule for all elements, or steps block by block.
#include "operands.h"

#include <algorithm>

// MKL's square roots, if torch is built with MKL. libtorch_cpu uses them, and they round differently from the
// processor's instruction.
extern "C" {
__attribute__((weak)) void vmsSqrt(int n, const float* x, float* y, long long mode);
__attribute__((weak)) void vmdSqrt(int n, const double* x, double* y, long long mode);
}

namespace oneflow_ext {
namespace {

using oneflow_cpu::best;
using oneflow_cpu::Block;
using oneflow_cpu::BlockStep;
using torch::stable::parallel_for;

void adam(std::vector<Tensor> model, std::vector<Tensor> diff, std::vector<Tensor> m, std::vector<Tensor> v,
          std::vector<double> s) {
  check_adam(model, diff, m, v, s);
  for (size_t i = 0; i < model.size(); ++i) {
    const Tensor d = dense(diff[i]);
    parallel_for(0, model[i].numel(), 4096, [&](int64_t a, int64_t b) {
      best().adam(dtype_of(model[i]), model[i].data_ptr(), d.data_ptr(), m[i].data_ptr(), v[i].data_ptr(),
                  s.data(), a, b);
    });
  }
}

void momentum(std::vector<Tensor> model, std::vector<Tensor> diff, std::vector<Tensor> buffer,
              std::vector<double> s) {
  check_momentum(model, diff, buffer, s);
  for (size_t i = 0; i < model.size(); ++i) {
    const Tensor d = dense(diff[i]);
    parallel_for(0, model[i].numel(), 4096, [&](int64_t a, int64_t b) {
      best().momentum(dtype_of(model[i]), model[i].data_ptr(), d.data_ptr(), buffer[i].data_ptr(), s.data(),
                      a, b);
    });
  }
}

void sgd(std::vector<Tensor> model, std::vector<Tensor> diff, std::vector<double> s) {
  check_sgd(model, diff, s);
  for (size_t i = 0; i < model.size(); ++i) {
    const Tensor d = dense(diff[i]);
    parallel_for(0, model[i].numel(), 4096, [&](int64_t a, int64_t b) {
      best().sgd(dtype_of(model[i]), model[i].data_ptr(), d.data_ptr(), s.data(), a, b);
    });
  }
}

oneflow_cpu::SquareRoots roots() {
  constexpr long long mode =
      0x2 | 0x140000 | 0x100;  // VML_HA | VML_FTZDAZ_OFF | VML_ERRMODE_IGNORE, as ATen/cpu/vml.h
  return {vmsSqrt ? +[](int n, const float* x, float* y) { vmsSqrt(n, x, y, mode); } : nullptr,
          vmdSqrt ? +[](int n, const double* x, double* y) { vmdSqrt(n, x, y, mode); } : nullptr};
}

constexpr size_t kStepNumbers = 6;  // fields of a step of blocks_: operator, result, three operands, scalar

int operands_of(Block op) { return op < Block::add ? 1 : op < Block::addcmul ? 2 : 3; }

std::vector<BlockStep> steps_of(const Checks& check, const std::vector<int64_t>& code, int64_t tensors,
                                int64_t scalars) {
  std::vector<BlockStep> steps;
  if (code.size() % kStepNumbers)
    check.refuse("code", "have ", kStepNumbers, " entries a step, found ", code.size());
  const int64_t last = tensors + oneflow_cpu::kBlockTemporaries - 1;
  bool computed[oneflow_cpu::kBlockTemporaries] = {};  // the temporaries that hold a value
  for (size_t i = 0; i < code.size(); i += kStepNumbers) {
    const int64_t* n = code.data() + i;
    const auto name = [&](int64_t k) { return ArgumentName("code", static_cast<int64_t>(i) + k); };
    check.range<int64_t>(name(0), n[0], 0, static_cast<int64_t>(Block::count) - 1);
    const BlockStep step{static_cast<Block>(n[0]), n[1], n[2], n[3], n[4], n[5]};
    const int operands = operands_of(step.op);
    for (int k = 0; k < 3; ++k) {
      check.range<int64_t>(name(2 + k), n[2 + k], k < operands ? 0 : -1, last);
      if (k < operands && n[2 + k] >= tensors && !computed[n[2 + k] - tensors])
        check.refuse(name(2 + k), "be a temporary that an earlier step computes, found temporary ",
                     n[2 + k] - tensors);
    }
    check.range<int64_t>(name(1), n[1], 0, last), check.range<int64_t>(name(5), n[5], -1, scalars - 1);
    if (n[1] >= tensors) computed[n[1] - tensors] = true;
    steps.push_back(step);
  }
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
    best().blocks(dtype_of(first), roots(), steps.data(), static_cast<int64_t>(steps.size()), tensors.data(),
                  static_cast<int64_t>(tensors.size()), scalars.data(), a, b);
  });
}

void blocks(std::vector<Tensor> written, std::vector<Tensor> read, int64_t lanes, std::vector<int64_t> code,
            std::vector<double> common, std::vector<double> own) {
  const Checks check("blocks_");
  if (written.empty()) check.refuse("written", "have a tensor for each lane, found none");
  check.range<int64_t>("lanes", lanes, 1, static_cast<int64_t>(written.size()));
  const Lanes parts{written, read, own, static_cast<size_t>(lanes)};
  for (const auto& [name, count] :
       {std::pair{"written", written.size()}, std::pair{"read", read.size()}, std::pair{"own", own.size()}})
    if (count % parts.count) check.refuse(name, "part into ", lanes, " lanes, found ", count, " entries");
  const auto steps = steps_of(check, code, static_cast<int64_t>(parts.writes() + parts.reads()),
                              static_cast<int64_t>(common.size() + parts.scalars()));
  for (size_t lane = 0; lane < parts.count; ++lane)
    check_lane(check, parts, lane);  // check all lanes before anything is written
  for (size_t lane = 0; lane < parts.count; ++lane) run_lane(parts, lane, steps, common);
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(oneflow, CPU, m) {
  m.impl("adam_", TORCH_BOX(&adam));
  m.impl("blocks_", TORCH_BOX(&blocks));
  m.impl("momentum_", TORCH_BOX(&momentum));
  m.impl("sgd_", TORCH_BOX(&sgd));
}

}  // namespace oneflow_ext

// Products of float32 matrices with the bits of ATen's own, in less time where oneDNN's kernels are faster.
//
// A product of a shape, a layout, a number of threads and a floating-point mode is tried once in a process,
// with other values. It runs in blocks if the bits are equal and the time is shorter; else ATen computes it.
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include "exact_trial.h"

namespace oneflow_ext {
namespace {

constexpr int64_t kLeastWork = 100'000;  // floating-point operations that make a trial worth its time
constexpr double kFreeSeconds = 0.5;     // of trials in a process, after which a trial waits for
constexpr int kCallsBeforeTrial = 32;    // calls of a shape: a program may meet many lengths, each one once
constexpr int64_t kMostMemory = 1 << 27;  // elements of a trial's tensors

// A rule gives the size of MKL's blocks of K. Its number is the size. If K is larger, but smaller than twice
// the size, there are two blocks of K / 2. A negative number is a size without this exception. 0: K is one
// block.
using Rules = std::vector<int64_t>;
const Rules kRules = {192,  256,  384,  128,  320,  512,  -384, -336,
                      -256, -192, -320, -448, -512, -128, 0};
constexpr int64_t kMostRule = 1 << 20;
constexpr int64_t kTriedDepths[] = {300, 385, 1000};
int64_t depth_of(int64_t rule, int64_t k) {
  const int64_t size = std::abs(rule);
  if (!rule || k <= size) return k;
  return rule > 0 && k < 2 * size ? k / 2 : size;
}

// The floating-point mode of this thread: flushing of denormal values, rounding.
int64_t float_mode() {
#if defined(__SSE__)
  return _mm_getcsr() & ~0x3fu;  // without the flags of exceptions
#else
  return 0;
#endif
}
constexpr int64_t kFlushes = 0x8040;

using Key = std::array<int64_t, 16>;
struct Hash {
  size_t operator()(const Key& key) const {
    uint64_t hash = 0xcbf29ce484222325;
    for (const int64_t part : key) hash = (hash ^ static_cast<uint64_t>(part)) * 0x100000001b3;
    return static_cast<size_t>(hash ^ hash >> 32);
  }
};

Key key_of(const ProductCall& call) {
  const Triple &a = call.a.strides, &b = call.b.strides, &c = call.addend.strides;
  const int64_t places = place_in_line(call.a.data) * 256 + place_in_line(call.b.data) * 16 +
                         place_in_line(call.addend.data);
  return {call.dims + 4 * (call.addend.data != nullptr) + 8 * places,
          call.batch,
          call.m,
          call.n,
          call.k,
          a[0],
          a[1],
          a[2],
          b[0],
          b[1],
          b[2],
          c[0],
          c[1],
          c[2],
          call.threads,
          float_mode()};
}

// The result of a trial. A depth of 0: no blocks have ATen's bits.
struct Decision {
  int64_t depth;
  bool is_faster;
};

bool by_rows_or_columns(const Operand& x, int64_t rows, int64_t columns) {
  const int64_t row = x.strides[1], column = x.strides[2];
  return x.strides[0] >= 0 && ((column == 1 && row >= columns) || (row == 1 && column >= rows));
}

// Whether the product can run in blocks. For few rows and columns MKL has other orders, which trials find.
bool can_run_in_blocks(const ProductCall& call) {
  return call.results() && call.k && at::native::cpublas::brgemm &&
         by_rows_or_columns(call.a, call.m, call.k) && by_rows_or_columns(call.b, call.k, call.n) &&
         call.addend.strides[0] >= 0 && call.addend.strides[1] >= 0 && call.addend.strides[2] >= 0;
}

bool is_worth_trial(const ProductCall& call) {
  const Triple a{call.batch, call.m, call.k}, b{call.batch, call.k, call.n}, c{call.batch, call.m, call.n};
  const double work = 2.0 * static_cast<double>(call.results()) * static_cast<double>(call.k);
  // not all threads may flush denormal values, and ATen divides the work between them in another way
  const bool is_uneven = call.threads > 1 && (float_mode() & kFlushes);
  return work >= kLeastWork && std::min(call.m, call.n) >= 2 && !is_uneven &&
         extent(a, call.a.strides) + extent(b, call.b.strides) + extent(c, call.addend.strides) +
                 call.results() <
             kMostMemory;
}

class Decisions {
 public:
  // `at_once`: try a product that is met for the first time, whatever time other trials took.
  Decision of(const Tensor& like, const ProductCall& call, bool at_once) {
    if (!can_run_in_blocks(call) || !is_worth_trial(call)) return {0, false};
    const Key key = key_of(call);
    {
      std::shared_lock<std::shared_mutex> lock(mutex_);
      const auto at = decisions_.find(key);
      if (at != decisions_.end()) return at->second;
    }
    if (!at_once && is_early(key)) return {0, false};
    const double begin = seconds_of_thread();
    const Decision decision = tried(like, call, fitting_rules(like));
    std::unique_lock<std::shared_mutex> lock(mutex_);
    spent_ += seconds_of_thread() - begin;
    decisions_[key] = decision;
    return decision;
  }

  // The first candidate that has ATen's bits here, tried with several K by the first call of a process.
  Rules fitting_rules(const Tensor& like) {
    {
      std::shared_lock<std::shared_mutex> lock(mutex_);
      if (are_tried_) return fitting_;
    }
    Rules rules;
    const float memory = 0;
    constexpr int64_t size = 48;
    try {
      std::vector<Trial> trials;
      for (const int64_t k : kTriedDepths) {
        const Operand a{&memory, {size * k, k, 1}}, b{&memory, {size * k, size, 1}};
        trials.emplace_back(like, ProductCall{2, 1, size, size, k, a, b, {nullptr, {0, 0, 0}}, 1});
      }
      const auto fits = [&](int64_t rule) {
        return std::all_of(trials.begin(), trials.end(),
                           [&](Trial& trial) { return trial.fits(depth_of(rule, trial.depth())); });
      };
      const auto rule = std::find_if(candidates_.begin(), candidates_.end(), fits);
      if (rule != candidates_.end()) rules.push_back(*rule);
    } catch (const std::exception&) {}  // the processor has no such kernel
    std::unique_lock<std::shared_mutex> lock(mutex_);
    are_tried_ = true, fitting_ = rules;
    return rules;
  }

  void replace_candidates(const Rules& candidates) {
    std::unique_lock<std::shared_mutex> lock(mutex_);
    candidates_ = candidates.empty() ? kRules : candidates;
    are_tried_ = false, spent_ = 0;
    decisions_.clear(), calls_.clear();
  }

 private:
  static constexpr size_t kMostShapes = 1 << 16;
  std::shared_mutex mutex_;
  std::unordered_map<Key, Decision, Hash> decisions_;
  Rules candidates_ = kRules;
  std::unordered_map<Key, int, Hash> calls_;  // of products that wait for a trial
  Rules fitting_;
  bool are_tried_ = false;
  double spent_ = 0;  // seconds

  // Whether a trial of the product would cost more than it may save.
  bool is_early(const Key& key) {
    std::unique_lock<std::shared_mutex> lock(mutex_);
    if (spent_ < kFreeSeconds) return false;
    if (calls_.size() > kMostShapes) calls_.clear();
    return ++calls_[key] < kCallsBeforeTrial;
  }

  static Decision tried(const Tensor& like, const ProductCall& call, const Rules& rules) {
    std::vector<int64_t> depths;
    for (const int64_t rule : rules)
      if (const int64_t depth = depth_of(rule, call.k);
          std::find(depths.begin(), depths.end(), depth) == depths.end())
        depths.push_back(depth);
    if (depths.empty()) return {0, false};
    try {
      Trial trial(like, call);
      for (const int64_t depth : depths)
        if (trial.fits(depth)) return {depth, trial.is_faster(depth)};
    } catch (const std::exception&) {}  // the processor has no such kernel, or there is no memory for a trial
    return {0, false};
  }
};

Decisions& decisions() {
  static Decisions all;
  return all;
}

Triple strides_of(const Tensor& x) {
  const int64_t d = x.dim();
  return {d == 3 ? x.stride(0) : 0, x.stride(d - 2), x.stride(d - 1)};
}

// The strides of x, of a matrix with one row or column those of a dense one.
Operand operand(const Tensor& x) {
  Triple strides = strides_of(x);
  const int64_t d = x.dim(), rows = x.size(d - 2), columns = x.size(d - 1);
  if (columns == 1) strides[2] = 1, strides[1] = rows == 1 ? 1 : strides[1];
  if (rows == 1) strides[1] = strides[2] == 1 ? columns : 1;
  return {static_cast<const float*>(x.data_ptr()), strides};
}

// The strides of an addend as one of the result's shape.
Operand expanded(const Checks& check, const Tensor& x, const std::vector<int64_t>& sizes) {
  Operand operand{static_cast<const float*>(x.data_ptr()), {0, 0, 0}};
  const int64_t dims = static_cast<int64_t>(sizes.size()), missing = dims - x.dim();
  bool fits = missing >= 0;
  for (int64_t d = 0; fits && d < x.dim(); ++d) {
    fits = x.size(d) == 1 || x.size(d) == sizes[static_cast<size_t>(d + missing)];
    operand.strides[static_cast<size_t>(3 - dims + missing + d)] = x.size(d) == 1 ? 0 : x.stride(d);
  }
  if (!fits)
    check.refuse("addend", "expand to ", shape_text(sizes.data(), sizes.size()), ", found ", shape_text(x));
  return operand;
}

// A checked call and its result, without values.
struct Prepared {
  ProductCall call;
  Tensor out;
};
Prepared prepared(const char* name, const std::optional<Tensor>& addend, const Tensor& a, const Tensor& b) {
  const Checks check(name);
  const int64_t dims = a.dim() == 3 ? 3 : 2;
  check_floats(check, "a", a, "b", b, dims);  // ATen computes the product if torch has no oneDNN
  const std::vector<int64_t> sizes = shape_of_product(check, a, b, dims);
  Operand extra{nullptr, {0, 0, 0}};
  if (addend) {
    check.same_options("addend", *addend, "a", a);
    extra = expanded(check, *addend, sizes);
  }
  return {{dims, dims == 2 ? 1 : a.size(0), a.size(dims - 2), b.size(dims - 1), a.size(dims - 1), operand(a),
           operand(b), extra, static_cast<int64_t>(torch::stable::get_num_threads())},
          fresh(a, sizes)};
}

float* values(const Tensor& x) { return static_cast<float*>(x.data_ptr()); }

// aten::mm, bmm, addmm or baddbmm.
Tensor exact_product(const std::optional<Tensor> addend, const Tensor a, const Tensor b) {
  const Prepared product = prepared("exact_product", addend, a, b);
  const Decision decision = decisions().of(a, product.call, false);
  if (decision.is_faster) {
    try {
      run_in_blocks(product.call, decision.depth, values(product.out));
      return product.out;
    } catch (const std::exception&) {}  // torch.backends.mkldnn.enabled is off now
  }
  run_in_aten(product.out, addend ? &*addend : nullptr, a, b);
  return product.out;
}

// The same in blocks of `depth`, whatever ATen computes.
Tensor product_in_blocks(const std::optional<Tensor> addend, const Tensor a, const Tensor b, int64_t depth) {
  const Prepared product = prepared("product_in_blocks", addend, a, b);
  const Checks check("product_in_blocks");
  if (depth < 1) check.refuse("depth", "be positive, found ", depth);
  if (!product.call.results() || !product.call.k)
    run_in_aten(product.out, addend ? &*addend : nullptr, a, b);
  else if (!can_run_in_blocks(product.call))
    check.refuse("a", "and b have elements, by rows or by columns, found shapes ", shape_text(a), " and ",
                 shape_text(b));
  else
    run_in_blocks(product.call, depth, values(product.out));
  return product.out;
}

std::vector<int64_t> product_blocks(const std::optional<Tensor> addend, const Tensor a, const Tensor b) {
  const Decision decision = decisions().of(a, prepared("product_blocks", addend, a, b).call, true);
  return {decision.depth, decision.is_faster};
}

void product_rules(const Tensor like, const std::vector<int64_t> candidates) {
  const Checks check("product_rules");
  check.dtype("like", like, {ScalarType::Float});
  for (size_t i = 0; i < candidates.size(); ++i)
    check.range<int64_t>({"candidates", static_cast<int64_t>(i)}, candidates[i], -kMostRule, kMostRule);
  decisions().replace_candidates(candidates);
}

}  // namespace
}  // namespace oneflow_ext

STABLE_TORCH_LIBRARY_IMPL(oneflow, CPU, m) {
  m.impl("exact_product", TORCH_BOX(&oneflow_ext::exact_product));
  m.impl("product_in_blocks", TORCH_BOX(&oneflow_ext::product_in_blocks));
  m.impl("product_blocks", TORCH_BOX(&oneflow_ext::product_blocks));
  m.impl("product_rules", TORCH_BOX(&oneflow_ext::product_rules));
}

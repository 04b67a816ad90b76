// The recurrences of RNN, LSTM and GRU layers as operators, one layer and direction a call. Rows of the batch
// are distributed to torch's threads.
#include "operands.h"

#include <cstring>

namespace oneflow_ext {
namespace {

using oneflow_cpu::best;
using oneflow_cpu::RecurrentLayer;
using torch::stable::parallel_for;

// x has these sizes, and the device and dtype of `like`.
void check_sizes(const Checks& check, const char* name, const Tensor& x, const char* like_name,
                 const Tensor& like, std::initializer_list<int64_t> sizes) {
  check.same_options(name, x, like_name, like), check.shape(name, x, sizes);
}
// Run f(begin, end) over the rows of the batch, which are independent of each other.
template <class F>
void over_rows(const RecurrentLayer& l, F&& f) {
  if (l.batch && l.hidden) parallel_for(0, l.batch, grain(l.steps * l.hidden * 4), f);
}
Tensor packed(const Tensor& weight, const RecurrentLayer& l, bool backward) {
  const Tensor w = dense(weight);
  const int64_t gates = l.hidden ? w.size(0) / l.hidden : 0;
  const Tensor to =
      fresh(weight, {best().recurrent_pack(dtype_of(w), nullptr, gates, l.hidden, backward, nullptr)});
  best().recurrent_pack(dtype_of(w), w.data_ptr(), gates, l.hidden, backward, to.data_ptr());
  return to;
}
// The cells in the workspace; they follow the gates.
void* cells_of(const Tensor& work) {
  return static_cast<char*>(work.data_ptr()) + work.numel() / 5 * 4 * work.element_size();
}
void copy(const void* from, const Tensor& to, int64_t row) {
  const size_t bytes = static_cast<size_t>(to.numel()) * to.element_size();
  if (bytes) std::memcpy(to.data_ptr(), static_cast<const char*>(from) + row * bytes, bytes);
}

// Copy the gradient of the last state to `to`, or zeros if there is none.
void begin_with(const Checks& check, const char* name, const std::optional<Tensor>& from, const Tensor& to) {
  if (from.has_value())
    check.alike(name, *from, "the state", to), copy(dense(*from).data_ptr(), to, 0);
  else if (to.numel())
    std::memset(to.data_ptr(), 0, static_cast<size_t>(to.numel()) * to.element_size());
}
std::optional<Tensor> dense_or_none(const std::optional<Tensor>& x) {
  return x.has_value() ? std::optional<Tensor>(dense(*x)) : std::nullopt;
}
const void* data_or_null(const std::optional<Tensor>& x) { return x.has_value() ? x->data_ptr() : nullptr; }

// Check given (T, B, gates H), the weight, bias and initial state of a forward call.
RecurrentLayer layer_of(const Checks& check, const Tensor& given, int64_t gates, const Tensor& weight,
                        const std::optional<Tensor>& bias, const Tensor& h0, bool reverse) {
  check.wide("given", given), check.dims("given", given, 3);
  const RecurrentLayer l{given.size(0), given.size(1), given.size(2) / gates, reverse};
  if (given.size(2) % gates)
    check.refuse("given", "have a multiple of ", gates, " columns along dimension 2, found shape ",
                 shape_text(given));
  if (l.hidden > kMaxSize)
    check.refuse("given", "have states of at most ", kMaxSize, " columns, found shape ", shape_text(given));
  check_sizes(check, "weight", weight, "given", given, {gates * l.hidden, l.hidden}),
      check_sizes(check, "h0", h0, "given", given, {l.batch, l.hidden});
  if (bias.has_value()) check_sizes(check, "bias", *bias, "given", given, {gates * l.hidden});
  return l;
}
// Check hidden (T, B, H), the weight and dhidden of a backward call.
RecurrentLayer layer_back(const Checks& check, const Tensor& hidden, int64_t gates, const Tensor& weight,
                          const std::optional<Tensor>& dhidden, bool reverse) {
  check.wide("hidden", hidden), check.dims("hidden", hidden, 3);
  const RecurrentLayer l{hidden.size(0), hidden.size(1), hidden.size(2), reverse};
  if (l.hidden > kMaxSize)
    check.refuse("hidden", "have states of at most ", kMaxSize, " columns, found shape ", shape_text(hidden));
  check_sizes(check, "weight", weight, "hidden", hidden, {gates * l.hidden, l.hidden});
  if (dhidden.has_value()) check.alike("dhidden", *dhidden, "hidden", hidden);
  return l;
}

std::tuple<Tensor, Tensor, Tensor, Tensor> lstm(const Tensor& given, const Tensor& weight, const Tensor& h0,
                                                const Tensor& c0, bool reverse) {
  const Checks check("lstm");
  const RecurrentLayer l = layer_of(check, given, 4, weight, std::nullopt, h0, reverse);
  check_sizes(check, "c0", c0, "given", given, {l.batch, l.hidden});
  const Tensor x = dense(given), w = packed(weight, l, false), h = dense(h0), c = dense(c0);
  const Tensor work = fresh(given, {5, l.steps, l.batch, l.hidden}),
               hidden = fresh(given, {l.steps, l.batch, l.hidden}), last = fresh_like(h0),
               cell = fresh_like(c0);
  over_rows(l, [&](int64_t a, int64_t b) {
    best().lstm(dtype_of(given), l, x.data_ptr(), w.data_ptr(), h.data_ptr(), c.data_ptr(), work.data_ptr(),
                cells_of(work), hidden.data_ptr(), a, b);
  });
  const int64_t end = l.steps && !reverse ? l.steps - 1 : 0;
  copy(l.steps ? hidden.data_ptr() : h.data_ptr(), last, end),
      copy(l.steps ? cells_of(work) : c.data_ptr(), cell, end);
  return {hidden, last, cell, work};
}

std::tuple<Tensor, Tensor, Tensor> lstm_backward(std::optional<Tensor> dhidden, std::optional<Tensor> dlast,
                                                 std::optional<Tensor> dcell, const Tensor& given,
                                                 const Tensor& c0, const Tensor& weight, bool reverse) {
  const Checks check("lstm_backward");
  check.wide("work", given), check.shape("work", given, {5, kAny, kAny, kAny});
  const RecurrentLayer l{given.size(1), given.size(2), given.size(3), reverse};
  if (l.hidden > kMaxSize)
    check.refuse("work", "have states of at most ", kMaxSize, " columns, found shape ", shape_text(given));
  check_sizes(check, "weight", weight, "work", given, {4 * l.hidden, l.hidden}),
      check_sizes(check, "c0", c0, "work", given, {l.batch, l.hidden});
  if (dhidden.has_value())
    check_sizes(check, "dhidden", *dhidden, "work", given, {l.steps, l.batch, l.hidden});
  const Tensor work = dense(given), c = dense(c0), w = packed(weight, l, true);
  const Tensor dgates = fresh(given, {l.steps, l.batch, 4 * l.hidden}), dh = fresh_like(c0),
               dc = fresh_like(c0);
  const std::optional<Tensor> dy = dense_or_none(dhidden);
  begin_with(check, "dlast", dlast, dh), begin_with(check, "dcell", dcell, dc);
  over_rows(l, [&](int64_t a, int64_t b) {
    best().lstm_backward(dtype_of(work), l, data_or_null(dy), work.data_ptr(), cells_of(work), c.data_ptr(),
                         w.data_ptr(), dgates.data_ptr(), dh.data_ptr(), dc.data_ptr(), a, b);
  });
  return {dgates, dh, dc};
}

Tensor rnn(const Tensor& given, const Tensor& weight, std::optional<Tensor> bias, const Tensor& h0, bool relu,
           bool reverse) {
  const auto l = layer_of(Checks("rnn"), given, 1, weight, bias, h0, reverse);
  const Tensor x = dense(given), w = packed(weight, l, false), h = dense(h0),
               hidden = fresh(given, {l.steps, l.batch, l.hidden});
  const std::optional<Tensor> b = dense_or_none(bias);
  over_rows(l, [&](int64_t begin, int64_t end) {
    best().rnn(dtype_of(given), l, relu, x.data_ptr(), w.data_ptr(), data_or_null(b), h.data_ptr(),
               hidden.data_ptr(), begin, end);
  });
  return hidden;
}

Tensor rnn_backward(std::optional<Tensor> dhidden, std::optional<Tensor> dlast, const Tensor& given,
                    const Tensor& weight, bool relu, bool reverse) {
  const Checks check("rnn_backward");
  const auto l = layer_back(check, given, 1, weight, dhidden, reverse);
  const Tensor hidden = dense(given), w = packed(weight, l, true), dgates = fresh_like(hidden),
               dh = fresh(given, {l.batch, l.hidden});
  const std::optional<Tensor> dy = dense_or_none(dhidden);
  begin_with(check, "dlast", dlast, dh);
  over_rows(l, [&](int64_t begin, int64_t end) {
    best().rnn_backward(dtype_of(given), l, relu, data_or_null(dy), hidden.data_ptr(), w.data_ptr(),
                        dgates.data_ptr(), dh.data_ptr(), begin, end);
  });
  return dgates;
}

std::tuple<Tensor, Tensor> gru(const Tensor& given, const Tensor& weight, std::optional<Tensor> bias,
                               const Tensor& h0, bool reverse) {
  const auto l = layer_of(Checks("gru"), given, 3, weight, bias, h0, reverse);
  const Tensor x = dense(given), w = packed(weight, l, false), h = dense(h0),
               hidden = fresh(given, {l.steps, l.batch, l.hidden}),
               work = fresh(given, {l.steps, l.batch, 4 * l.hidden});
  const std::optional<Tensor> b = dense_or_none(bias);
  over_rows(l, [&](int64_t begin, int64_t end) {
    best().gru(dtype_of(given), l, x.data_ptr(), w.data_ptr(), data_or_null(b), h.data_ptr(), work.data_ptr(),
               hidden.data_ptr(), begin, end);
  });
  return {hidden, work};
}

std::tuple<Tensor, Tensor, Tensor> gru_backward(std::optional<Tensor> dhidden, std::optional<Tensor> dlast,
                                                const Tensor& given, const Tensor& kept, const Tensor& h0,
                                                const Tensor& weight, bool reverse) {
  const Checks check("gru_backward");
  const auto l = layer_back(check, given, 3, weight, dhidden, reverse);
  check_sizes(check, "work", kept, "hidden", given, {l.steps, l.batch, 4 * l.hidden}),
      check_sizes(check, "h0", h0, "hidden", given, {l.batch, l.hidden});
  const Tensor hidden = dense(given), work = dense(kept), h = dense(h0), w = packed(weight, l, true);
  const Tensor dgiven = fresh(given, {l.steps, l.batch, 3 * l.hidden}), drecurrent = fresh_like(dgiven),
               dh = fresh_like(h0);
  const std::optional<Tensor> dy = dense_or_none(dhidden);
  begin_with(check, "dlast", dlast, dh);
  over_rows(l, [&](int64_t begin, int64_t end) {
    best().gru_backward(dtype_of(given), l, data_or_null(dy), hidden.data_ptr(), work.data_ptr(),
                        h.data_ptr(), w.data_ptr(), dgiven.data_ptr(), drecurrent.data_ptr(), dh.data_ptr(),
                        begin, end);
  });
  return {dgiven, drecurrent, dh};
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(oneflow, CPU, m) {
  m.impl("lstm", TORCH_BOX(&lstm));
  m.impl("lstm_backward", TORCH_BOX(&lstm_backward));
  m.impl("rnn", TORCH_BOX(&rnn));
  m.impl("rnn_backward", TORCH_BOX(&rnn_backward));
  m.impl("gru", TORCH_BOX(&gru));
  m.impl("gru_backward", TORCH_BOX(&gru_backward));
}

}  // namespace oneflow_ext

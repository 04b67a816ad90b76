// The recurrence of one RNN, LSTM or GRU layer, forward and backward: all steps for some rows of the batch.
#pragma once
#include "transpose.h"

namespace oneflow_cpu {
inline namespace CPU_CAPABILITY {

// A matrix (k, n) is packed as blocks (k, kBlock) of columns, so that a product reads it sequentially. The
// last block is padded with zeros.
template <class A>
constexpr int64_t kBlock = (Vec<A>::size() == 16 ? 4 : 2) * Vec<A>::size();
template <class A>
inline int64_t packed_size(int64_t k, int64_t n) {
  return (n + kBlock<A> - 1) / kBlock<A> * kBlock<A> * k;
}
// Pack a matrix (k, n) whose rows are `step` apart, or the transpose of `from` if `transposed`.
template <class A>
inline void pack(const A* from, int64_t step, bool transposed, int64_t k, int64_t n, A* to) {
  constexpr int64_t width = kBlock<A>;
  for (int64_t j = 0; j < n; j += width, to += k * width) {
    const int64_t there = std::min(width, n - j);
    if (there < width) std::fill(to, to + k * width, A(0));
    if (transposed)
      transpose(from + j * step, step, there, k, to, width);
    else
      for (int64_t i = 0; i < k; ++i)
        std::copy(from + i * step + j, from + i * step + j + there, to + i * width);
  }
}

// out_r = from_r (0 if null) + a_r . b over k, for R rows and one packed block of columns, of which `count`
// exist.
template <int R, class A>
inline void product_block(const A* a, int64_t a_step, const A* b, int64_t k, const A* from, A* out,
                          int64_t step, int64_t count) {
  using V = Vec<A>;
  constexpr int64_t width = V::size();
  constexpr int C = kBlock<A> / width;
  const auto there = [&](int c) { return std::clamp<int64_t>(count - c * width, 0, width); };
  V sums[R][C];
  for (int r = 0; r < R; ++r)
    for (int c = 0; c < C; ++c)
      sums[r][c] = !from || there(c) == 0 ? V(A(0))
                   : there(c) == width    ? V::loadu(from + r * step + c * width)
                                          : V::loadu(from + r * step + c * width, there(c));
  for (int64_t i = 0; i < k; ++i, b += kBlock<A>) {
    V y[C];
    for (int c = 0; c < C; ++c) y[c] = V::loadu(b + c * width);
    for (int r = 0; r < R; ++r) {
      const V x(a[r * a_step + i]);
      for (int c = 0; c < C; ++c) sums[r][c] = at::vec::fmadd(x, y[c], sums[r][c]);
    }
  }
  for (int r = 0; r < R; ++r)
    for (int c = 0; c < C; ++c) {
      if (there(c) == width)
        sums[r][c].store(out + r * step + c * width);
      else if (there(c))
        sums[r][c].store(out + r * step + c * width, there(c));
    }
}

// out (rows, n) = from (rows, n; 0 if null) + a (rows, k) b, where b is packed. The rows of from and out are
// `step` apart.
template <class A>
inline void product(int64_t rows, const A* a, int64_t a_step, const A* b, int64_t n, int64_t k, const A* from,
                    A* out, int64_t step) {
  for (int64_t j = 0; j < n; j += kBlock<A>, b += k * kBlock<A>) {
    int64_t r = 0;
    const auto next = [&](auto size) {
      constexpr int R = decltype(size)::value;
      for (; r + R <= rows; r += R)
        product_block<R>(a + r * a_step, a_step, b, k, from ? from + r * step + j : nullptr,
                         out + r * step + j, step, std::min(kBlock<A>, n - j));
    };
    next(std::integral_constant<int, 6>{}), next(std::integral_constant<int, 4>{}),
        next(std::integral_constant<int, 2>{}), next(std::integral_constant<int, 1>{});
  }
}

// Call f(offset, count) over [0, n), one vector at a time.
template <class A, class F>
inline void by_vector(int64_t n, F&& f) {
  for (int64_t i = 0; i < n; i += Vec<A>::size()) f(i, std::min<int64_t>(Vec<A>::size(), n - i));
}

// The time index of the i-th computed step.
inline int64_t step_of(const RecurrentLayer& l, int64_t i) { return l.reverse ? l.steps - 1 - i : i; }

template <class A>
inline void lstm_rows(const RecurrentLayer& l, const A* given, const A* packed, const A* h0, const A* c0,
                      A* gates, A* cells, A* hidden, int64_t begin, int64_t end) {
  using V = Vec<A>;
  const int64_t h = l.hidden, rows = end - begin;
  const A *h_before = h0 + begin * h, *c_before = c0 + begin * h;
  for (int64_t i = 0; i < l.steps; ++i) {
    const int64_t row = step_of(l, i) * l.batch + begin;
    product(rows, h_before, h, packed, 4 * h, h, given + row * 4 * h, gates + row * 4 * h, 4 * h);
    for (int64_t r = 0; r < rows; ++r) {
      A *g = gates + (row + r) * 4 * h, *c = cells + (row + r) * h, *y = hidden + (row + r) * h;
      by_vector<A>(h, [&](int64_t at, int64_t n) {
        const V in = logistic(V::loadu(g + at, n)), forget = logistic(V::loadu(g + h + at, n)),
                cell = hyperbolic_tangent(V::loadu(g + 2 * h + at, n)),
                out = logistic(V::loadu(g + 3 * h + at, n));
        const V now = at::vec::fmadd(forget, V::loadu(c_before + r * h + at, n), in * cell);
        in.store(g + at, n), forget.store(g + h + at, n), cell.store(g + 2 * h + at, n),
            out.store(g + 3 * h + at, n);
        now.store(c + at, n), (out * hyperbolic_tangent(now)).store(y + at, n);
      });
    }
    h_before = hidden + row * h, c_before = cells + row * h;
  }
}

template <class A>
inline void lstm_backward_rows(const RecurrentLayer& l, const A* dhidden, const A* gates, const A* cells,
                               const A* c0, const A* packed, A* dgates, A* dh, A* dc, int64_t begin,
                               int64_t end) {
  using V = Vec<A>;
  const int64_t h = l.hidden, rows = end - begin;
  const V one(A(1));
  dh += begin * h, dc += begin * h;
  for (int64_t i = l.steps; i-- > 0;) {
    const int64_t row = step_of(l, i) * l.batch + begin;
    const A* c_before = i == 0 ? c0 + begin * h : cells + (step_of(l, i - 1) * l.batch + begin) * h;
    for (int64_t r = 0; r < rows; ++r) {
      const A *g = gates + (row + r) * 4 * h, *c = cells + (row + r) * h;
      A* d = dgates + (row + r) * 4 * h;
      by_vector<A>(h, [&](int64_t at, int64_t n) {
        const V in = V::loadu(g + at, n), forget = V::loadu(g + h + at, n),
                cell = V::loadu(g + 2 * h + at, n), out = V::loadu(g + 3 * h + at, n);
        const V t = hyperbolic_tangent(V::loadu(c + at, n)),
                dy = dhidden ? V::loadu(dh + r * h + at, n) + V::loadu(dhidden + (row + r) * h + at, n)
                             : V::loadu(dh + r * h + at, n);
        const V dnow = at::vec::fmadd(dy * out, one - t * t, V::loadu(dc + r * h + at, n));
        (dnow * cell * in * (one - in)).store(d + at, n);
        (dnow * V::loadu(c_before + r * h + at, n) * forget * (one - forget)).store(d + h + at, n);
        (dnow * in * (one - cell * cell)).store(d + 2 * h + at, n);
        (dy * t * out * (one - out)).store(d + 3 * h + at, n);
        (dnow * forget).store(dc + r * h + at, n);
      });
    }
    product<A>(rows, dgates + row * 4 * h, 4 * h, packed, h, 4 * h, nullptr, dh, h);
  }
}

// h' = f(given + bias + h w), where f is tanh or relu.
template <class A>
inline void rnn_rows(const RecurrentLayer& l, bool relu, const A* given, const A* packed, const A* bias,
                     const A* h0, A* hidden, int64_t begin, int64_t end) {
  using V = Vec<A>;
  const int64_t h = l.hidden, rows = end - begin;
  const V zero(A(0));
  const A* h_before = h0 + begin * h;
  for (int64_t i = 0; i < l.steps; ++i) {
    const int64_t row = step_of(l, i) * l.batch + begin;
    product(rows, h_before, h, packed, h, h, given + row * h, hidden + row * h, h);
    for (int64_t r = 0; r < rows; ++r) {
      A* y = hidden + (row + r) * h;
      by_vector<A>(h, [&](int64_t at, int64_t n) {
        const V x = bias ? V::loadu(y + at, n) + V::loadu(bias + at, n) : V::loadu(y + at, n);
        (relu ? at::vec::clamp_min(x, zero) : hyperbolic_tangent(x)).store(y + at, n);
      });
    }
    h_before = hidden + row * h;
  }
}

template <class A>
inline void rnn_backward_rows(const RecurrentLayer& l, bool relu, const A* dhidden, const A* hidden,
                              const A* packed, A* dgates, A* dh, int64_t begin, int64_t end) {
  using V = Vec<A>;
  const int64_t h = l.hidden, rows = end - begin;
  const V one(A(1)), zero(A(0));
  dh += begin * h;
  for (int64_t i = l.steps; i-- > 0;) {
    const int64_t row = step_of(l, i) * l.batch + begin;
    for (int64_t r = 0; r < rows; ++r)
      by_vector<A>(h, [&](int64_t at, int64_t n) {
        const V y = V::loadu(hidden + (row + r) * h + at, n);
        const V dy = dhidden ? V::loadu(dh + r * h + at, n) + V::loadu(dhidden + (row + r) * h + at, n)
                             : V::loadu(dh + r * h + at, n);
        (relu ? V::blendv(dy, zero, y <= zero) : dy * (one - y * y)).store(dgates + (row + r) * h + at, n);
      });
    if (i) product<A>(rows, dgates + row * h, h, packed, h, h, nullptr, dh, h);
  }
}

// r, z = logistic(given + bias + h w), n = tanh(given + r (bias + h w)), h' = (h - n) z + n. `kept` stores
// for each row: r, z, the (bias + h w) of n (`recurrent`), and n.
template <class A>
inline void gru_rows(const RecurrentLayer& l, const A* given, const A* packed, const A* bias, const A* h0,
                     A* kept, A* hidden, int64_t begin, int64_t end) {
  using V = Vec<A>;
  const int64_t h = l.hidden, rows = end - begin;
  const A* h_before = h0 + begin * h;
  for (int64_t i = 0; i < l.steps; ++i) {
    const int64_t row = step_of(l, i) * l.batch + begin;
    product<A>(rows, h_before, h, packed, 3 * h, h, nullptr, kept + row * 4 * h, 4 * h);
    for (int64_t r = 0; r < rows; ++r) {
      const A* g = given + (row + r) * 3 * h;
      A *k = kept + (row + r) * 4 * h, *y = hidden + (row + r) * h;
      by_vector<A>(h, [&](int64_t at, int64_t n) {
        const auto sum = [&](int64_t gate) {
          return bias ? V::loadu(k + gate * h + at, n) + V::loadu(bias + gate * h + at, n)
                      : V::loadu(k + gate * h + at, n);
        };
        const V reset = logistic(sum(0) + V::loadu(g + at, n)),
                update = logistic(sum(1) + V::loadu(g + h + at, n)), recurrent = sum(2);
        const V now = hyperbolic_tangent(at::vec::fmadd(reset, recurrent, V::loadu(g + 2 * h + at, n)));
        reset.store(k + at, n), update.store(k + h + at, n), recurrent.store(k + 2 * h + at, n),
            now.store(k + 3 * h + at, n);
        at::vec::fmadd(V::loadu(h_before + r * h + at, n) - now, update, now).store(y + at, n);
      });
    }
    h_before = hidden + row * h;
  }
}

template <class A>
inline void gru_backward_rows(const RecurrentLayer& l, const A* dhidden, const A* hidden, const A* kept,
                              const A* h0, const A* packed, A* dgiven, A* drecurrent, A* dh, int64_t begin,
                              int64_t end) {
  using V = Vec<A>;
  const int64_t h = l.hidden, rows = end - begin;
  const V one(A(1));
  dh += begin * h;
  for (int64_t i = l.steps; i-- > 0;) {
    const int64_t row = step_of(l, i) * l.batch + begin;
    const A* h_before = i == 0 ? h0 + begin * h : hidden + (step_of(l, i - 1) * l.batch + begin) * h;
    for (int64_t r = 0; r < rows; ++r) {
      const A* k = kept + (row + r) * 4 * h;
      A *dx = dgiven + (row + r) * 3 * h, *dw = drecurrent + (row + r) * 3 * h;
      by_vector<A>(h, [&](int64_t at, int64_t n) {
        const V reset = V::loadu(k + at, n), update = V::loadu(k + h + at, n),
                recurrent = V::loadu(k + 2 * h + at, n), now = V::loadu(k + 3 * h + at, n);
        const V dy = dhidden ? V::loadu(dh + r * h + at, n) + V::loadu(dhidden + (row + r) * h + at, n)
                             : V::loadu(dh + r * h + at, n);
        const V dupdate = dy * (V::loadu(h_before + r * h + at, n) - now) * update * (one - update),
                dnow = dy * (one - update) * (one - now * now);
        const V dreset = dnow * recurrent * reset * (one - reset);
        dreset.store(dx + at, n), dupdate.store(dx + h + at, n), dnow.store(dx + 2 * h + at, n);
        dreset.store(dw + at, n), dupdate.store(dw + h + at, n), (dnow * reset).store(dw + 2 * h + at, n);
        (dy * update).store(dh + r * h + at, n);
      });
    }
    if (i) product<A>(rows, drecurrent + row * 3 * h, 3 * h, packed, h, 3 * h, dh, dh, h);
  }
}

// Call f with a value of the dtype, if the recurrences support it.
template <class F>
inline void recurrent_dispatch(Dtype dtype, F&& f) {
  dispatch(dtype, [&](auto t) {
    if constexpr (std::is_same_v<decltype(t), Acc<decltype(t)>>) f(t);
  });
}

// Pack the weight (gates hidden, hidden) for the forward pass (which reads its transpose) or the backward
// pass. If `to` is null, only return the number of elements needed.
inline int64_t recurrent_pack(Dtype dtype, const void* weight, int64_t gates, int64_t hidden, bool backward,
                              void* to) {
  int64_t size = 0;
  recurrent_dispatch(dtype, [&](auto t) {
    using T = decltype(t);
    const int64_t k = backward ? gates * hidden : hidden, n = backward ? hidden : gates * hidden;
    size = packed_size<T>(k, n);
    if (to) pack(static_cast<const T*>(weight), hidden, !backward, k, n, static_cast<T*>(to));
  });
  return size;
}

inline void rnn(Dtype dtype, const RecurrentLayer& l, bool relu, const void* given, const void* packed,
                const void* bias, const void* h0, void* hidden, int64_t begin, int64_t end) {
  recurrent_dispatch(dtype, [&](auto t) {
    using T = decltype(t);
    rnn_rows<T>(l, relu, static_cast<const T*>(given), static_cast<const T*>(packed),
                static_cast<const T*>(bias), static_cast<const T*>(h0), static_cast<T*>(hidden), begin, end);
  });
}

inline void rnn_backward(Dtype dtype, const RecurrentLayer& l, bool relu, const void* dhidden,
                         const void* hidden, const void* packed, void* dgates, void* dh, int64_t begin,
                         int64_t end) {
  recurrent_dispatch(dtype, [&](auto t) {
    using T = decltype(t);
    rnn_backward_rows<T>(l, relu, static_cast<const T*>(dhidden), static_cast<const T*>(hidden),
                         static_cast<const T*>(packed), static_cast<T*>(dgates), static_cast<T*>(dh), begin,
                         end);
  });
}

inline void gru(Dtype dtype, const RecurrentLayer& l, const void* given, const void* packed, const void* bias,
                const void* h0, void* kept, void* hidden, int64_t begin, int64_t end) {
  recurrent_dispatch(dtype, [&](auto t) {
    using T = decltype(t);
    gru_rows<T>(l, static_cast<const T*>(given), static_cast<const T*>(packed), static_cast<const T*>(bias),
                static_cast<const T*>(h0), static_cast<T*>(kept), static_cast<T*>(hidden), begin, end);
  });
}

inline void gru_backward(Dtype dtype, const RecurrentLayer& l, const void* dhidden, const void* hidden,
                         const void* kept, const void* h0, const void* packed, void* dgiven, void* drecurrent,
                         void* dh, int64_t begin, int64_t end) {
  recurrent_dispatch(dtype, [&](auto t) {
    using T = decltype(t);
    gru_backward_rows<T>(l, static_cast<const T*>(dhidden), static_cast<const T*>(hidden),
                         static_cast<const T*>(kept), static_cast<const T*>(h0),
                         static_cast<const T*>(packed), static_cast<T*>(dgiven), static_cast<T*>(drecurrent),
                         static_cast<T*>(dh), begin, end);
  });
}

inline void lstm(Dtype dtype, const RecurrentLayer& l, const void* given, const void* packed, const void* h0,
                 const void* c0, void* gates, void* cells, void* hidden, int64_t begin, int64_t end) {
  recurrent_dispatch(dtype, [&](auto t) {
    using T = decltype(t);
    lstm_rows<T>(l, static_cast<const T*>(given), static_cast<const T*>(packed), static_cast<const T*>(h0),
                 static_cast<const T*>(c0), static_cast<T*>(gates), static_cast<T*>(cells),
                 static_cast<T*>(hidden), begin, end);
  });
}

inline void lstm_backward(Dtype dtype, const RecurrentLayer& l, const void* dhidden, const void* gates,
                          const void* cells, const void* c0, const void* packed, void* dgates, void* dh,
                          void* dc, int64_t begin, int64_t end) {
  recurrent_dispatch(dtype, [&](auto t) {
    using T = decltype(t);
    lstm_backward_rows<T>(l, static_cast<const T*>(dhidden), static_cast<const T*>(gates),
                          static_cast<const T*>(cells), static_cast<const T*>(c0),
                          static_cast<const T*>(packed), static_cast<T*>(dgates), static_cast<T*>(dh),
                          static_cast<T*>(dc), begin, end);
  });
}

}  // namespace CPU_CAPABILITY
}  // namespace oneflow_cpu

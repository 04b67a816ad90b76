// nms, roi_align, the sampled columns of deform_conv2d, ctc_greedy_decode and unique_pairs on the CPU: scalar loops over
// many small pieces, one piece a thread. float32 and float64; the other dtypes take the plain-torch way.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <unordered_map>

#include "../common.h"

namespace oneflow_ext {
namespace {

using torch::stable::parallel_for;

template <class F>
void floating(const char* name, const Tensor& x, F&& f) {
  switch (x.scalar_type()) {
    case ScalarType::Float: return f(float{});
    case ScalarType::Double: return f(double{});
    default: STD_TORCH_CHECK(false, "oneflow::", name, ": float32 and float64 on the CPU, found ", toString(x.scalar_type()));
  }
}
template <class T>
const T* data(const Tensor& x) {
  return static_cast<const T*>(x.data_ptr());
}
template <class T>
T* mutable_data(const Tensor& x) {
  return static_cast<T*>(x.data_ptr());
}

// --------------------------------------------------------------------------- nms
Tensor nms_mask(const Tensor& boxes, double threshold, int64_t keep_n) {
  const Tensor dense_boxes = dense(boxes);
  const int64_t n = boxes.size(0);
  const Tensor keep = fresh(boxes, {n}, ScalarType::Char);
  int8_t* out = mutable_data<int8_t>(keep);
  floating("nms_mask", boxes, [&](auto t) {
    using T = decltype(t);
    const T* b = data<T>(dense_boxes);
    std::vector<T> x1(n), y1(n), x2(n), y2(n), area(n);
    for (int64_t i = 0; i < n; ++i) {
      x1[i] = b[4 * i], y1[i] = b[4 * i + 1], x2[i] = b[4 * i + 2], y2[i] = b[4 * i + 3];
      area[i] = (x2[i] - x1[i]) * (y2[i] - y1[i]);
    }
    std::vector<uint8_t> gone(n, 0);
    int64_t kept = 0;
    for (int64_t i = 0; i < n; ++i) {
      out[i] = !gone[i] && (keep_n < 0 || kept < keep_n);
      if (!out[i]) continue;
      ++kept;
      const T a1 = x1[i], b1 = y1[i], a2 = x2[i], b2 = y2[i], own = area[i], limit = static_cast<T>(threshold);
      const T *px1 = x1.data(), *py1 = y1.data(), *px2 = x2.data(), *py2 = y2.data(), *pa = area.data();
      uint8_t* g = gone.data();
      for (int64_t j = i + 1; j < n; ++j) {
        const T w = std::max(std::min(a2, px2[j]) - std::max(a1, px1[j]), T(0));
        const T h = std::max(std::min(b2, py2[j]) - std::max(b1, py1[j]), T(0));
        const T inter = w * h;
        g[j] |= inter > limit * (own + pa[j] - inter);
      }
    }
  });
  return keep;
}

// --------------------------------------------------------------------------- bilinear sampling
// Four neighbours of a point with their weights; a weight of 0 and index 0 where there is none.
template <class T>
struct Corners {
  int64_t at[4];
  T weight[4];
  T fy, fx;      // fractions, for the gradient to the point
  bool inside[4];
};

// roi_align's rule: outside [-1, H] x [-1, W] nothing, else the point moved inside.
template <class T>
Corners<T> clamped(T y, T x, int64_t height, int64_t width) {
  Corners<T> c{};
  if (!(y >= -1 && y <= height && x >= -1 && x <= width)) return c;
  y = std::max(y, T(0)), x = std::max(x, T(0));
  int64_t y0 = static_cast<int64_t>(y), x0 = static_cast<int64_t>(x), y1 = y0 + 1, x1 = x0 + 1;
  if (y0 >= height - 1) y0 = y1 = height - 1, y = static_cast<T>(y0);
  if (x0 >= width - 1) x0 = x1 = width - 1, x = static_cast<T>(x0);
  const T ly = y - y0, lx = x - x0, hy = 1 - ly, hx = 1 - lx;
  c.at[0] = y0 * width + x0, c.at[1] = y0 * width + x1, c.at[2] = y1 * width + x0, c.at[3] = y1 * width + x1;
  c.weight[0] = hy * hx, c.weight[1] = hy * lx, c.weight[2] = ly * hx, c.weight[3] = ly * lx;
  return c;
}

// deform_conv2d's rule: neighbours beyond the border count as 0.
template <class T>
Corners<T> bordered(T y, T x, int64_t height, int64_t width) {
  Corners<T> c{};
  if (!(y > -1 && y < height && x > -1 && x < width)) return c;
  const int64_t y0 = static_cast<int64_t>(std::floor(y)), x0 = static_cast<int64_t>(std::floor(x));
  c.fy = y - y0, c.fx = x - x0;
  const T wy[2] = {1 - c.fy, c.fy}, wx[2] = {1 - c.fx, c.fx};
  for (int k = 0; k < 4; ++k) {
    const int64_t yy = y0 + k / 2, xx = x0 + k % 2;
    if (yy < 0 || yy >= height || xx < 0 || xx >= width) continue;
    c.inside[k] = true, c.at[k] = yy * width + xx, c.weight[k] = wy[k / 2] * wx[k % 2];
  }
  return c;
}

// --------------------------------------------------------------------------- roi_align
// f(image, bin, corners, 1 / points) for every sampling point of one region.
template <class T, class F>
void roi_points(const T* roi, double spatial_scale, int64_t ph, int64_t pw, int64_t ratio, bool aligned, int64_t height, int64_t width, F&& f) {
  const T shift = aligned ? T(0.5) : T(0), scale = static_cast<T>(spatial_scale);
  const T x1 = roi[1] * scale - shift, y1 = roi[2] * scale - shift, x2 = roi[3] * scale - shift, y2 = roi[4] * scale - shift;
  T w = x2 - x1, h = y2 - y1;
  if (!aligned) w = std::max(w, T(1)), h = std::max(h, T(1));
  const T bh = h / ph, bw = w / pw;
  const int64_t ny = ratio > 0 ? ratio : std::max<int64_t>(static_cast<int64_t>(std::ceil(bh)), 0);
  const int64_t nx = ratio > 0 ? ratio : std::max<int64_t>(static_cast<int64_t>(std::ceil(bw)), 0);
  const T share = T(1) / std::max<int64_t>(ny * nx, 1);
  for (int64_t i = 0; i < ph * ny; ++i)
    for (int64_t j = 0; j < pw * nx; ++j)
      f(i / ny * pw + j / nx, clamped<T>(y1 + (i + T(0.5)) * (bh / ny), x1 + (j + T(0.5)) * (bw / nx), height, width), share);
}

Tensor roi_align(const Tensor& x, const Tensor& rois, double spatial_scale, int64_t ph, int64_t pw, int64_t ratio, bool aligned) {
  const Tensor xd = dense(x), rd = dense(rois);
  const int64_t images = x.size(0), c = x.size(1), height = x.size(2), width = x.size(3), bins = ph * pw;
  const Tensor y = fresh(x, {rois.size(0), c, ph, pw});
  floating("roi_align", x, [&](auto t) {
    using T = decltype(t);
    parallel_for(0, rois.size(0), 1, [&](int64_t begin, int64_t end) {
      std::vector<std::pair<int64_t, Corners<T>>> points;
      for (int64_t r = begin; r < end; ++r) {
        const T* roi = data<T>(rd) + 5 * r;
        const int64_t image = static_cast<int64_t>(roi[0]);
        STD_TORCH_CHECK(image >= 0 && image < images, "oneflow::roi_align: region ", r, " names image ", image, " of ", images);
        points.clear();
        T share = 0;
        roi_points<T>(roi, spatial_scale, ph, pw, ratio, aligned, height, width, [&](int64_t bin, const Corners<T>& p, T s) { points.emplace_back(bin, p), share = s; });
        for (int64_t k = 0; k < c; ++k) {
          const T* plane = data<T>(xd) + (image * c + k) * height * width;
          T* out = mutable_data<T>(y) + (r * c + k) * bins;
          std::fill(out, out + bins, T(0));
          for (const auto& [bin, p] : points)
            out[bin] += p.weight[0] * plane[p.at[0]] + p.weight[1] * plane[p.at[1]] + p.weight[2] * plane[p.at[2]] + p.weight[3] * plane[p.at[3]];
          for (int64_t b = 0; b < bins; ++b) out[b] *= share;
        }
      }
    });
  });
  return y;
}

Tensor roi_align_backward(const Tensor& dy, const Tensor& rois, std::vector<int64_t> x_shape, double spatial_scale, int64_t ratio, bool aligned) {
  const Tensor gd = dense(dy), rd = dense(rois);
  const int64_t c = x_shape[1], height = x_shape[2], width = x_shape[3], ph = dy.size(2), pw = dy.size(3), bins = ph * pw;
  Tensor dx = fresh(dy, x_shape);
  torch::stable::zero_(dx);
  floating("roi_align_backward", dy, [&](auto t) {
    using T = decltype(t);
    // A thread owns channels, so that regions may overlap.
    parallel_for(0, c, 1, [&](int64_t begin, int64_t end) {
      for (int64_t r = 0; r < rois.size(0); ++r) {
        const T* roi = data<T>(rd) + 5 * r;
        const int64_t image = static_cast<int64_t>(roi[0]);
        roi_points<T>(roi, spatial_scale, ph, pw, ratio, aligned, height, width, [&](int64_t bin, const Corners<T>& p, T share) {
          for (int64_t k = begin; k < end; ++k) {
            T* plane = mutable_data<T>(dx) + (image * c + k) * height * width;
            const T g = data<T>(gd)[(r * c + k) * bins + bin] * share;
            for (int q = 0; q < 4; ++q) plane[p.at[q]] += p.weight[q] * g;
          }
        });
      }
    });
  });
  return dx;
}

// --------------------------------------------------------------------------- deform_conv2d
struct Deform {
  int64_t n, c, height, width, kh, kw, oh, ow, groups, per_group, sh, sw, ph, pw, dh, dw;
  int64_t taps() const { return kh * kw; }
  int64_t places() const { return oh * ow; }
};
Deform deform_of(const Tensor& x, const Tensor& offset, const std::vector<int64_t>& kernel, const std::vector<int64_t>& stride,
                 const std::vector<int64_t>& padding, const std::vector<int64_t>& dilation, int64_t groups) {
  return {x.size(0), x.size(1), x.size(2), x.size(3), kernel[0], kernel[1], offset.size(2), offset.size(3), groups, x.size(1) / groups,
          stride[0], stride[1], padding[0], padding[1], dilation[0], dilation[1]};
}
// The corners of tap k at place p; o points at the (2 * taps, places) offsets of one sample and group.
template <class T>
Corners<T> deform_corners(const Deform& d, const T* o, int64_t k, int64_t p) {
  const T y = static_cast<T>(p / d.ow * d.sh - d.ph + k / d.kw * d.dh) + o[2 * k * d.places() + p];
  const T x = static_cast<T>(p % d.ow * d.sw - d.pw + k % d.kw * d.dw) + o[(2 * k + 1) * d.places() + p];
  return bordered<T>(y, x, d.height, d.width);
}

// The corners of tap k at every place, their weights times the mask (or 1).
template <class T>
void weighted_corners(const Deform& d, const T* o, int64_t k, const T* mask, std::vector<Corners<T>>& points) {
  for (int64_t p = 0; p < d.places(); ++p) {
    points[p] = deform_corners<T>(d, o, k, p);
    if (mask)
      for (T& w : points[p].weight) w *= mask[p];
  }
}

Tensor deform_columns(const Tensor& x, const Tensor& offset, std::optional<Tensor> mask, std::vector<int64_t> kernel, std::vector<int64_t> stride,
                      std::vector<int64_t> padding, std::vector<int64_t> dilation, int64_t groups) {
  const Deform d = deform_of(x, offset, kernel, stride, padding, dilation, groups);
  const Tensor xd = dense(x), od = dense(offset), md = mask.has_value() ? dense(*mask) : od;
  const Tensor out = fresh(x, {d.n, d.c, d.taps(), d.oh, d.ow});
  floating("deform_columns", x, [&](auto t) {
    using T = decltype(t);
    parallel_for(0, d.n * d.groups * d.taps(), 1, [&](int64_t begin, int64_t end) {
      std::vector<Corners<T>> points(d.places());
      for (int64_t i = begin; i < end; ++i) {
        const int64_t ng = i / d.taps(), k = i % d.taps();
        weighted_corners<T>(d, data<T>(od) + ng * 2 * d.taps() * d.places(), k, mask.has_value() ? data<T>(md) + i * d.places() : nullptr, points);
        for (int64_t j = 0; j < d.per_group; ++j) {
          const int64_t plane = ng * d.per_group + j;
          const T* v = data<T>(xd) + plane * d.height * d.width;
          T* to = mutable_data<T>(out) + (plane * d.taps() + k) * d.places();
          for (int64_t p = 0; p < d.places(); ++p) {
            const Corners<T>& q = points[p];
            to[p] = q.weight[0] * v[q.at[0]] + q.weight[1] * v[q.at[1]] + q.weight[2] * v[q.at[2]] + q.weight[3] * v[q.at[3]];
          }
        }
      }
    });
  });
  return out;
}

std::tuple<Tensor, Tensor, Tensor> deform_columns_backward(const Tensor& dcolumns, const Tensor& x, const Tensor& offset, std::optional<Tensor> mask,
                                                           std::vector<int64_t> kernel, std::vector<int64_t> stride, std::vector<int64_t> padding,
                                                           std::vector<int64_t> dilation, int64_t groups) {
  const Deform d = deform_of(x, offset, kernel, stride, padding, dilation, groups);
  const Tensor xd = dense(x), od = dense(offset), md = mask.has_value() ? dense(*mask) : od, gd = dense(dcolumns);
  Tensor dx = fresh_like(x), doffset = fresh_like(offset), dmask = mask.has_value() ? fresh_like(*mask) : fresh(x, {0});
  torch::stable::zero_(dx);
  floating("deform_columns_backward", x, [&](auto t) {
    using T = decltype(t);
    // A thread owns samples and groups: their planes of dx are its own.
    parallel_for(0, d.n * d.groups, 1, [&](int64_t begin, int64_t end) {
      const int64_t places = d.places();
      std::vector<Corners<T>> points(places);
      std::vector<T> dots(4 * places);  // sum over channels of gradient times each corner's value
      for (int64_t ng = begin; ng < end; ++ng)
        for (int64_t k = 0; k < d.taps(); ++k) {
          const T* m = mask.has_value() ? data<T>(md) + (ng * d.taps() + k) * places : nullptr;
          weighted_corners<T>(d, data<T>(od) + ng * 2 * d.taps() * places, k, m, points);
          std::fill(dots.begin(), dots.end(), T(0));
          for (int64_t j = 0; j < d.per_group; ++j) {
            const int64_t plane = ng * d.per_group + j;
            const T *g = data<T>(gd) + (plane * d.taps() + k) * places, *v = data<T>(xd) + plane * d.height * d.width;
            T* dv = mutable_data<T>(dx) + plane * d.height * d.width;
            for (int64_t p = 0; p < places; ++p) {
              const Corners<T>& q = points[p];
              for (int c = 0; c < 4; ++c) {
                dv[q.at[c]] += g[p] * q.weight[c];
                dots[4 * p + c] += g[p] * v[q.at[c]];
              }
            }
          }
          T* o = mutable_data<T>(doffset) + ng * 2 * d.taps() * places;
          for (int64_t p = 0; p < places; ++p) {
            const Corners<T>& q = points[p];
            T corner[4];
            for (int c = 0; c < 4; ++c) corner[c] = q.inside[c] ? dots[4 * p + c] : T(0);
            const T scale = m ? m[p] : T(1);
            o[2 * k * places + p] = scale * ((1 - q.fx) * (corner[2] - corner[0]) + q.fx * (corner[3] - corner[1]));
            o[(2 * k + 1) * places + p] = scale * ((1 - q.fy) * (corner[1] - corner[0]) + q.fy * (corner[3] - corner[2]));
            if (m)
              mutable_data<T>(dmask)[(ng * d.taps() + k) * places + p] =
                  (1 - q.fy) * ((1 - q.fx) * corner[0] + q.fx * corner[1]) + q.fy * ((1 - q.fx) * corner[2] + q.fx * corner[3]);
          }
        }
    });
  });
  return {dx, doffset, dmask};
}

// --------------------------------------------------------------------------- ctc_greedy_decode, unique_pairs
std::tuple<Tensor, Tensor> ctc_greedy_decode(const Tensor& log_probs, const Tensor& input_lengths, bool merge) {
  const Tensor xd = dense(log_probs), ld = dense(input_lengths);
  const int64_t steps = log_probs.size(0), n = log_probs.size(1), c = log_probs.size(2);
  STD_TORCH_CHECK(input_lengths.scalar_type() == ScalarType::Long, "oneflow::ctc_greedy_decode: input_lengths must be int64");
  const Tensor decoded = fresh(log_probs, {n, steps}, ScalarType::Long), sums = fresh(log_probs, {n, 1});
  floating("ctc_greedy_decode", log_probs, [&](auto t) {
    using T = decltype(t);
    parallel_for(0, n, std::max<int64_t>(1, 16384 / std::max<int64_t>(steps * c, 1)), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        int64_t* out = mutable_data<int64_t>(decoded) + i * steps;
        int64_t used = 0, before = c - 1;
        T sum = 0;
        const int64_t length = std::min(data<int64_t>(ld)[i], steps);
        for (int64_t s = 0; s < length; ++s) {
          const T* row = data<T>(xd) + (s * n + i) * c;
          const int64_t best = std::max_element(row, row + c) - row;
          sum -= row[best];
          if (best != c - 1 && !(merge && s > 0 && best == before)) out[used++] = best;
          before = best;
        }
        std::fill(out + used, out + steps, int64_t(0));
        mutable_data<T>(sums)[i] = sum;
      }
    });
  });
  return {decoded, sums};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> unique_pairs(const Tensor& keys, const Tensor& values) {
  STD_TORCH_CHECK(keys.scalar_type() == ScalarType::Long, "oneflow::unique_pairs: the keys must be int64");
  const Tensor kd = dense(keys), vd = dense(values);
  const int64_t n = keys.numel(), size = static_cast<int64_t>(values.element_size());
  const Tensor count = fresh(keys, {1}, ScalarType::Int), unique = fresh(keys, {n}), of = fresh(values, {n}), inverse = fresh(keys, {n}, ScalarType::Int);
  const int64_t* k = data<int64_t>(kd);
  int64_t* u = mutable_data<int64_t>(unique);
  const char* v = data<char>(vd);
  char* o = mutable_data<char>(of);
  int32_t* at = mutable_data<int32_t>(inverse);
  // Open addressing in a table of at least twice the keys; a slot holds a unique index + 1.
  uint64_t room = 16;
  while (room < static_cast<uint64_t>(2 * n)) room *= 2;
  std::vector<int32_t> table(room, 0);
  int32_t used = 0;
  for (int64_t i = 0; i < n; ++i) {
    uint64_t h = static_cast<uint64_t>(k[i]) * 0x9E3779B97F4A7C15ull;
    for (h = (h ^ (h >> 32)) & (room - 1);; h = (h + 1) & (room - 1)) {
      if (!table[h]) {
        u[used] = k[i];
        std::memcpy(o + used * size, v + i * size, size);
        table[h] = ++used;
      }
      if (u[table[h] - 1] == k[i]) {
        at[i] = table[h] - 1;
        break;
      }
    }
  }
  std::fill(u + used, u + n, int64_t(0));
  if (used < n) std::memset(o + used * size, 0, (n - used) * size);  // not of a null pointer, even for nothing
  *mutable_data<int32_t>(count) = used;
  return {count, unique, of, inverse};
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(oneflow, CPU, m) {
  m.impl("nms_mask", TORCH_BOX(&nms_mask));
  m.impl("roi_align", TORCH_BOX(&roi_align));
  m.impl("roi_align_backward", TORCH_BOX(&roi_align_backward));
  m.impl("deform_columns", TORCH_BOX(&deform_columns));
  m.impl("deform_columns_backward", TORCH_BOX(&deform_columns_backward));
  m.impl("ctc_greedy_decode", TORCH_BOX(&ctc_greedy_decode));
  m.impl("unique_pairs", TORCH_BOX(&unique_pairs));
}

}  // namespace oneflow_ext

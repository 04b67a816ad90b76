// nms, roi_align and the sampled columns of deform_conv2d on the CPU: scalar loops over many small pieces,
// distributed to threads. float32 and float64 only; other dtypes use the plain-torch functions.
#include <algorithm>
#include <cmath>

#include "../common.h"
#include "scalar.h"

namespace oneflow_ext {
namespace {

using torch::stable::parallel_for;

// --------------------------------------------------------------------------- nms
Tensor nms_mask(const Tensor& boxes, double threshold, int64_t keep_n) {
  check_nms_mask(boxes);
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
      const T a1 = x1[i], b1 = y1[i], a2 = x2[i], b2 = y2[i], own = area[i],
              limit = static_cast<T>(threshold);
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

// --------------------------------------------------------------------------- roi_align
// A sampling point along one axis: the bin it belongs to, the two pixels beside it, and their weights.
template <class T>
struct AxisPoint {
  int64_t bin, low, high;
  T low_weight, high_weight;
};
// The sampling points along one axis that lie in the image, and the total number of points per bin.
template <class T>
struct AxisPoints {
  int64_t per_bin;
  std::vector<AxisPoint<T>> inside;
};

// The largest number of points along an axis of an automatically sampled region. A longer region gets no
// points: its means would round to 0, and float32 could not tell its points apart, so that many would fall on
// one pixel. The CUDA kernels have the same limit.
constexpr int64_t kMaxPoints = int64_t(1) << 31;

template <class T>
AxisPoint<T> axis_point(int64_t bin, T position, int64_t size) {
  position = std::max(position, T(0));
  const int64_t low = static_cast<int64_t>(position);
  if (low >= size - 1) return {bin, size - 1, size - 1, T(1), T(0)};
  const T high_weight = position - low;
  return {bin, low, low + 1, 1 - high_weight, high_weight};
}

// The first i in [0, count) for which `reached(i)` is true, or count. `reached` must be true for all later i
// too.
template <class F>
int64_t first_reached(int64_t count, F&& reached) {
  int64_t low = 0;
  for (int64_t high = count; low < high;) {
    const int64_t middle = low + (high - low) / 2;
    if (reached(middle))
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

// The sampling points of `bins` bins of `length` pixels in total, from `start` on, over an image of `size`
// pixels. A point outside [-1, size] counts as 0 and is not visited. The points are in order, so a binary
// search finds those inside, whatever the length of the region. With automatic sampling (ratio <= 0), points
// of one bin are at least half a pixel apart, so at most 2 * size + bins + 3 points are inside.
template <class T>
AxisPoints<T> axis_points(T start, T length, int64_t bins, int64_t ratio, int64_t size) {
  const T bin_length = length / bins, needed = std::ceil(bin_length);
  const int64_t automatic =
      needed > 0 && length <= static_cast<T>(kMaxPoints) ? static_cast<int64_t>(needed) : 0;
  AxisPoints<T> points{ratio > 0 ? ratio : automatic, {}};
  const T step = bin_length / points.per_bin;
  if (points.per_bin == 0 || size == 0 || !std::isfinite(start) || !std::isfinite(step)) return points;
  const int64_t count = bins * points.per_bin;
  const auto position = [&](int64_t i) { return start + (i + T(0.5)) * step; };
  const T low = -1, high = static_cast<T>(size);
  const int64_t begin =
      first_reached(count, [&](int64_t i) { return step < 0 ? position(i) <= high : position(i) >= low; });
  const int64_t end =
      first_reached(count, [&](int64_t i) { return step < 0 ? position(i) < low : position(i) > high; });
  points.inside.reserve(std::max<int64_t>(end - begin, 0));
  for (int64_t i = begin; i < end; ++i)
    points.inside.push_back(axis_point(i / points.per_bin, position(i), size));
  return points;
}

// The sampling points of one region: every row point combined with every column point.
template <class T>
struct Region {
  int64_t image;
  AxisPoints<T> rows, columns;
  T share() const { return T(1) / std::max<int64_t>(rows.per_bin * columns.per_bin, 1); }
};
struct Pooling {
  double spatial_scale;
  int64_t images, channels, height, width, ph, pw, ratio;
  bool aligned;
  int64_t plane() const { return height * width; }
  int64_t bins() const { return ph * pw; }
};
template <class T>
Region<T> region_of(const T* roi, const Pooling& p) {
  const T shift = p.aligned ? T(0.5) : T(0), scale = static_cast<T>(p.spatial_scale);
  const T x1 = roi[1] * scale - shift, y1 = roi[2] * scale - shift, x2 = roi[3] * scale - shift,
          y2 = roi[4] * scale - shift;
  T w = x2 - x1, h = y2 - y1;
  if (!p.aligned) w = std::max(w, T(1)), h = std::max(h, T(1));
  return {static_cast<int64_t>(roi[0]), axis_points<T>(y1, h, p.ph, p.ratio, p.height),
          axis_points<T>(x1, w, p.pw, p.ratio, p.width)};
}

template <class T>
void check_image_numbers(const Checks& check, const T* rois, int64_t count, int64_t images) {
  for (int64_t r = 0; r < count; ++r)
    if (!(rois[5 * r] > -1 && rois[5 * r] < images))
      check.refuse("rois", "name one of the ", images, " images in column 0, found ", rois[5 * r], " in row ",
                   r);
}

template <class T>
void pool(const Region<T>& region, const T* plane, const Pooling& p, T* out) {
  std::fill(out, out + p.bins(), T(0));
  for (const AxisPoint<T>& y : region.rows.inside) {
    const T *top = plane + y.low * p.width, *bottom = plane + y.high * p.width;
    T* bins = out + y.bin * p.pw;
    for (const AxisPoint<T>& x : region.columns.inside)
      bins[x.bin] += y.low_weight * x.low_weight * top[x.low] + y.low_weight * x.high_weight * top[x.high] +
                     y.high_weight * x.low_weight * bottom[x.low] +
                     y.high_weight * x.high_weight * bottom[x.high];
  }
  const T share = region.share();
  for (int64_t b = 0; b < p.bins(); ++b) out[b] *= share;
}

Tensor roi_align(const Tensor& x, const Tensor& rois, double spatial_scale, int64_t ph, int64_t pw,
                 int64_t ratio, bool aligned) {
  check_roi_align(x, rois, ph, pw, ratio);
  const Tensor xd = dense(x), rd = dense(rois);
  const Pooling p{spatial_scale, x.size(0), x.size(1), x.size(2), x.size(3), ph, pw, ratio, aligned};
  const Tensor y = fresh(x, {rois.size(0), p.channels, ph, pw});
  floating("roi_align", x, [&](auto t) {
    using T = decltype(t);
    check_image_numbers(Checks("roi_align"), data<T>(rd), rois.size(0), p.images);
    if (y.numel() == 0) return;
    parallel_for(0, rois.size(0), 1, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const Region<T> region = region_of(data<T>(rd) + 5 * r, p);
        for (int64_t k = 0; k < p.channels; ++k)
          pool(region, data<T>(xd) + (region.image * p.channels + k) * p.plane(), p,
               mutable_data<T>(y) + (r * p.channels + k) * p.bins());
      }
    });
  });
  return y;
}

// Add the gradient of one channel's bins to its plane.
template <class T>
void unpool(const Region<T>& region, const T* gradient, const Pooling& p, T* plane) {
  const T share = region.share();
  for (const AxisPoint<T>& y : region.rows.inside) {
    T *top = plane + y.low * p.width, *bottom = plane + y.high * p.width;
    const T* bins = gradient + y.bin * p.pw;
    for (const AxisPoint<T>& x : region.columns.inside) {
      const T g = bins[x.bin] * share;
      top[x.low] += y.low_weight * x.low_weight * g, top[x.high] += y.low_weight * x.high_weight * g;
      bottom[x.low] += y.high_weight * x.low_weight * g, bottom[x.high] += y.high_weight * x.high_weight * g;
    }
  }
}

Tensor roi_align_backward(const Tensor& dy, const Tensor& rois, std::vector<int64_t> x_shape,
                          double spatial_scale, int64_t ratio, bool aligned) {
  check_roi_align_backward(dy, rois, x_shape, ratio);
  const Tensor gd = dense(dy), rd = dense(rois);
  const Pooling p{spatial_scale, x_shape[0], x_shape[1], x_shape[2], x_shape[3],
                  dy.size(2),    dy.size(3), ratio,      aligned};
  Tensor dx = fresh(dy, x_shape);
  torch::stable::zero_(dx);
  floating("roi_align_backward", dy, [&](auto t) {
    using T = decltype(t);
    check_image_numbers(Checks("roi_align_backward"), data<T>(rd), rois.size(0), p.images);
    if (dy.numel() == 0 || dx.numel() == 0) return;
    // Each thread owns whole channels, because regions may overlap.
    parallel_for(0, p.channels, 1, [&](int64_t begin, int64_t end) {
      for (int64_t r = 0; r < rois.size(0); ++r) {
        const Region<T> region = region_of(data<T>(rd) + 5 * r, p);
        for (int64_t k = begin; k < end; ++k)
          unpool(region, data<T>(gd) + (r * p.channels + k) * p.bins(), p,
                 mutable_data<T>(dx) + (region.image * p.channels + k) * p.plane());
      }
    });
  });
  return dx;
}

// --------------------------------------------------------------------------- deform_conv2d
// The four neighbors of a point, their weights, and which of them are inside the image. A neighbor outside
// counts as 0.
template <class T>
struct Corners {
  int64_t at[4];
  T weight[4];
  T fy, fx;               // fractional parts, for the gradient of the position
  bool inside[4], whole;  // whole: all four are inside

  // The weighted sum over the neighbors inside the image.
  T sample(const T* plane) const {
    T sum = 0;
    for (int k = 0; k < 4; ++k) sum += weight[k] * (inside[k] ? plane[at[k]] : T(0));
    return sum;
  }
};

template <class T>
Corners<T> corners_of(T y, T x, int64_t height, int64_t width) {
  Corners<T> c{};
  if (!(y > -1 && y < height && x > -1 && x < width)) return c;
  const int64_t y0 = static_cast<int64_t>(std::floor(y)), x0 = static_cast<int64_t>(std::floor(x));
  c.fy = y - y0, c.fx = x - x0, c.whole = true;
  const T wy[2] = {1 - c.fy, c.fy}, wx[2] = {1 - c.fx, c.fx};
  for (int k = 0; k < 4; ++k) {
    const int64_t yy = y0 + k / 2, xx = x0 + k % 2;
    c.inside[k] = yy >= 0 && yy < height && xx >= 0 && xx < width;
    if (c.inside[k])
      c.at[k] = yy * width + xx, c.weight[k] = wy[k / 2] * wx[k % 2];
    else
      c.whole = false;
  }
  return c;
}

struct Deform {
  int64_t n, c, height, width, kh, kw, oh, ow, groups, per_group, sh, sw, ph, pw, dh, dw;
  int64_t taps() const { return kh * kw; }
  int64_t places() const { return oh * ow; }
};
Deform deform_of(const Tensor& x, const Tensor& offset, const std::vector<int64_t>& kernel,
                 const std::vector<int64_t>& stride, const std::vector<int64_t>& padding,
                 const std::vector<int64_t>& dilation, int64_t groups) {
  return {x.size(0),      x.size(1),      x.size(2),   x.size(3),          kernel[0], kernel[1],
          offset.size(2), offset.size(3), groups,      x.size(1) / groups, stride[0], stride[1],
          padding[0],     padding[1],     dilation[0], dilation[1]};
}
// The corners of tap k at output pixel p; o points to the offsets (2 * taps, places) of one sample and group.
template <class T>
Corners<T> deform_corners(const Deform& d, const T* o, int64_t k, int64_t p) {
  const T y = static_cast<T>(p / d.ow * d.sh - d.ph + k / d.kw * d.dh) + o[2 * k * d.places() + p];
  const T x = static_cast<T>(p % d.ow * d.sw - d.pw + k % d.kw * d.dw) + o[(2 * k + 1) * d.places() + p];
  return corners_of<T>(y, x, d.height, d.width);
}

// The corners of tap k at every output pixel, with weights multiplied by the mask, if there is one.
template <class T>
void weighted_corners(const Deform& d, const T* o, int64_t k, const T* mask,
                      std::vector<Corners<T>>& points) {
  for (int64_t p = 0; p < d.places(); ++p) {
    points[p] = deform_corners<T>(d, o, k, p);
    if (mask)
      for (T& w : points[p].weight) w *= mask[p];
  }
}

Tensor deform_columns(const Tensor& x, const Tensor& offset, std::optional<Tensor> mask,
                      std::vector<int64_t> kernel, std::vector<int64_t> stride, std::vector<int64_t> padding,
                      std::vector<int64_t> dilation, int64_t groups) {
  check_deform_columns(Checks("deform_columns"), x, offset, mask, {kernel, stride, padding, dilation},
                       groups);
  const Deform d = deform_of(x, offset, kernel, stride, padding, dilation, groups);
  const Tensor xd = dense(x), od = dense(offset), md = mask.has_value() ? dense(*mask) : od;
  const Tensor out = fresh(x, {d.n, d.c, d.taps(), d.oh, d.ow});
  if (out.numel() == 0) return out;
  floating("deform_columns", x, [&](auto t) {
    using T = decltype(t);
    parallel_for(0, d.n * d.groups * d.taps(), 1, [&](int64_t begin, int64_t end) {
      std::vector<Corners<T>> points(d.places());
      std::vector<int64_t> border;  // the points with a neighbor outside the image
      for (int64_t i = begin; i < end; ++i) {
        const int64_t ng = i / d.taps(), k = i % d.taps();
        weighted_corners<T>(d, data<T>(od) + ng * 2 * d.taps() * d.places(), k,
                            mask.has_value() ? data<T>(md) + i * d.places() : nullptr, points);
        border.clear();
        for (int64_t p = 0; p < d.places(); ++p)
          if (!points[p].whole) border.push_back(p);
        for (int64_t j = 0; j < d.per_group; ++j) {
          const int64_t plane = ng * d.per_group + j;
          const T* v = data<T>(xd) + plane * d.height * d.width;
          T* to = mutable_data<T>(out) + (plane * d.taps() + k) * d.places();
          if (d.height && d.width)  // no branch: a neighbor outside has weight 0 and index 0
            for (int64_t p = 0; p < d.places(); ++p) {
              const Corners<T>& q = points[p];
              to[p] = q.weight[0] * v[q.at[0]] + q.weight[1] * v[q.at[1]] + q.weight[2] * v[q.at[2]] +
                      q.weight[3] * v[q.at[3]];
            }
          for (const int64_t p : border)
            to[p] = points[p].sample(v);  // 0 * pixel 0 is NaN if that pixel is infinite
        }
      }
    });
  });
  return out;
}

std::tuple<Tensor, Tensor, Tensor> deform_columns_backward(const Tensor& dcolumns, const Tensor& x,
                                                           const Tensor& offset, std::optional<Tensor> mask,
                                                           std::vector<int64_t> kernel,
                                                           std::vector<int64_t> stride,
                                                           std::vector<int64_t> padding,
                                                           std::vector<int64_t> dilation, int64_t groups) {
  check_deform_columns_backward(dcolumns, x, offset, mask, {kernel, stride, padding, dilation}, groups);
  const Deform d = deform_of(x, offset, kernel, stride, padding, dilation, groups);
  const Tensor xd = dense(x), od = dense(offset), md = mask.has_value() ? dense(*mask) : od,
               gd = dense(dcolumns);
  Tensor dx = fresh_like(x), doffset = fresh_like(offset),
         dmask = mask.has_value() ? fresh_like(*mask) : fresh(x, {0});
  torch::stable::zero_(dx);
  if (offset.numel() == 0) return {dx, doffset, dmask};
  floating("deform_columns_backward", x, [&](auto t) {
    using T = decltype(t);
    // Each thread owns whole samples and groups, so no two threads write to one plane of dx.
    parallel_for(0, d.n * d.groups, 1, [&](int64_t begin, int64_t end) {
      const int64_t places = d.places();
      std::vector<Corners<T>> points(places);
      std::vector<T> dots(4 * places);  // for each corner: the sum over channels of gradient * value
      for (int64_t ng = begin; ng < end; ++ng)
        for (int64_t k = 0; k < d.taps(); ++k) {
          const T* m = mask.has_value() ? data<T>(md) + (ng * d.taps() + k) * places : nullptr;
          weighted_corners<T>(d, data<T>(od) + ng * 2 * d.taps() * places, k, m, points);
          std::fill(dots.begin(), dots.end(), T(0));
          for (int64_t j = 0; j < d.per_group; ++j) {
            const int64_t plane = ng * d.per_group + j;
            const T *g = data<T>(gd) + (plane * d.taps() + k) * places,
                    *v = data<T>(xd) + plane * d.height * d.width;
            T* dv = mutable_data<T>(dx) + plane * d.height * d.width;
            for (int64_t p = 0; p < places; ++p) {
              const Corners<T>& q = points[p];
              for (int c = 0; c < 4; ++c) {
                if (!q.inside[c]) continue;
                dv[q.at[c]] += g[p] * q.weight[c];
                dots[4 * p + c] += g[p] * v[q.at[c]];
              }
            }
          }
          T* o = mutable_data<T>(doffset) + ng * 2 * d.taps() * places;
          for (int64_t p = 0; p < places; ++p) {
            const Corners<T>& q = points[p];
            T corner[4];
            for (int c = 0; c < 4; ++c) corner[c] = dots[4 * p + c];
            const T scale = m ? m[p] : T(1);
            o[2 * k * places + p] =
                scale * ((1 - q.fx) * (corner[2] - corner[0]) + q.fx * (corner[3] - corner[1]));
            o[(2 * k + 1) * places + p] =
                scale * ((1 - q.fy) * (corner[1] - corner[0]) + q.fy * (corner[3] - corner[2]));
            if (m)
              mutable_data<T>(dmask)[(ng * d.taps() + k) * places + p] =
                  (1 - q.fy) * ((1 - q.fx) * corner[0] + q.fx * corner[1]) +
                  q.fy * ((1 - q.fx) * corner[2] + q.fx * corner[3]);
          }
        }
    });
  });
  return {dx, doffset, dmask};
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(oneflow, CPU, m) {
  m.impl("nms_mask", TORCH_BOX(&nms_mask));
  m.impl("roi_align", TORCH_BOX(&roi_align));
  m.impl("roi_align_backward", TORCH_BOX(&roi_align_backward));
  m.impl("deform_columns", TORCH_BOX(&deform_columns));
  m.impl("deform_columns_backward", TORCH_BOX(&deform_columns_backward));
}

}  // namespace oneflow_ext

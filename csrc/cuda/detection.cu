// nms, roi_align, the sampled columns of deform_conv2d and ctc_greedy_decode on CUDA. float32 and float64.
// Points at the border follow the rules of cpu/detection.cpp.
#include <limits>

#include "common.cuh"

namespace oneflow_ext {
namespace {

template <class F>
void wide(const char* name, const Tensor& x, F&& f) {
  switch (x.scalar_type()) {
    case ScalarType::Float: return f(float{});
    case ScalarType::Double: return f(double{});
    default:
      STD_TORCH_CHECK(false, "oneflow::", name, ": float32 and float64, found ", toString(x.scalar_type()));
  }
}

// --------------------------------------------------------------------------- nms
// Boxes [begin, end) of n. The list is processed in parts, because the overlaps of all boxes would take n * n
// bits.
struct NmsPart {
  int64_t begin, end, n, words, keep_n;
};
// Bit b of covers[(i - begin) * words + w] is set if box i removes the later box 64 w + b. Skipped once
// keep_n boxes are kept.
template <class T>
__global__ void nms_covers_kernel(const T* boxes, unsigned long long* covers, const int64_t* kept,
                                  NmsPart part, T limit) {
  if (part.keep_n >= 0 && *kept >= part.keep_n) return;
  const int64_t total = (part.end - part.begin) * part.words;
  GRID_LOOP(at, total) {
    const int64_t i = part.begin + at / part.words, w = at % part.words;
    const T *a = boxes + 4 * i, own = (a[2] - a[0]) * (a[3] - a[1]);
    unsigned long long bits = 0;
    for (int b = 0; b < 64 && 64 * w + b < part.n; ++b) {
      const int64_t j = 64 * w + b;
      if (j <= i) continue;
      const T* c = boxes + 4 * j;
      const T width = maximum(minimum(a[2], c[2]) - maximum(a[0], c[0]), T(0)),
              height = maximum(minimum(a[3], c[3]) - maximum(a[1], c[1]), T(0));
      const T inter = width * height, area = (c[2] - c[0]) * (c[3] - c[1]);
      if (inter > limit * (own + area - inter)) bits |= 1ull << b;
    }
    covers[at] = bits;
  }
}
// One block walks the boxes in order. Between parts, `gone` holds one bit for each box, and `kept_before` the
// number of boxes kept so far.
__global__ void nms_walk_kernel(const unsigned long long* covers, unsigned long long* gone,
                                int64_t* kept_before, int8_t* keep, NmsPart part) {
  int64_t kept = *kept_before, i = part.begin;
  for (; i < part.end && (part.keep_n < 0 || kept < part.keep_n); ++i) {
    const bool survives = !(gone[i / 64] >> (i % 64) & 1);
    __syncthreads();
    if (survives) {
      ++kept;
      for (int64_t w = i / 64 + threadIdx.x; w < part.words; w += blockDim.x)
        gone[w] |= covers[(i - part.begin) * part.words + w];
    }
    if (threadIdx.x == 0) keep[i] = survives;
    __syncthreads();
  }
  for (i += threadIdx.x; i < part.end; i += blockDim.x) keep[i] = 0;
  __syncthreads();
  if (threadIdx.x == 0) *kept_before = kept;
}

constexpr int64_t kCoversWords =
    1 << 18;  // of the relation at a time: 2 MiB, a thread each on an H100; at least 64 boxes
Tensor nms_mask(const Tensor& boxes, double threshold, int64_t keep_n) {
  check_nms_mask(boxes);
  const OnDevice guard(boxes);
  const Tensor bd = dense(boxes);
  const int64_t n = boxes.size(0), words = (n + 63) / 64;
  const Tensor keep = fresh(boxes, {n}, ScalarType::Char);
  if (!n) return keep;
  const int64_t rows = std::min(n, std::max<int64_t>(64, kCoversWords / words));
  const Tensor covers = fresh(boxes, {rows * words}, ScalarType::Long),
               gone = fresh(boxes, {words}, ScalarType::Long), kept = fresh(boxes, {1}, ScalarType::Long);
  const cudaStream_t stream = stream_of(boxes);
  fill_bytes("nms_mask", gone, 0, stream), fill_bytes("nms_mask", kept, 0, stream);
  auto *c = static_cast<unsigned long long*>(covers.data_ptr()),
       *g = static_cast<unsigned long long*>(gone.data_ptr());
  for (int64_t begin = 0; begin < n; begin += rows) {
    const NmsPart part{begin, std::min(begin + rows, n), n, words, keep_n};
    wide("nms_mask", boxes, [&](auto t) {
      using T = decltype(t);
      nms_covers_kernel<T><<<blocks_for((part.end - begin) * words), kThreads, 0, stream>>>(
          data<T>(bd), c, data<int64_t>(kept), part, static_cast<T>(threshold));
    });
    check_launch("nms_mask");
    nms_walk_kernel<<<1, 256, 0, stream>>>(c, g, mutable_data<int64_t>(kept), mutable_data<int8_t>(keep),
                                           part);
    check_launch("nms_mask");
  }
  return keep;
}

// --------------------------------------------------------------------------- bilinear sampling
template <class T>
struct Corners {
  int64_t at[4] = {0, 0, 0, 0};
  T weight[4] = {0, 0, 0, 0}, fy = 0, fx = 0;
  bool inside[4] = {false, false, false, false};
};

template <class T>
__device__ Corners<T> clamped(T y, T x, int64_t height, int64_t width) {
  Corners<T> c;
  if (!(height > 0 && width > 0 && y >= -1 && y <= height && x >= -1 && x <= width)) return c;
  y = maximum(y, T(0)), x = maximum(x, T(0));
  int64_t y0 = static_cast<int64_t>(y), x0 = static_cast<int64_t>(x), y1 = y0 + 1, x1 = x0 + 1;
  if (y0 >= height - 1) y0 = y1 = height - 1, y = static_cast<T>(y0);
  if (x0 >= width - 1) x0 = x1 = width - 1, x = static_cast<T>(x0);
  const T ly = y - y0, lx = x - x0, hy = 1 - ly, hx = 1 - lx;
  c.at[0] = y0 * width + x0, c.at[1] = y0 * width + x1, c.at[2] = y1 * width + x0, c.at[3] = y1 * width + x1;
  c.weight[0] = hy * hx, c.weight[1] = hy * lx, c.weight[2] = ly * hx, c.weight[3] = ly * lx;
  for (bool& inside : c.inside) inside = true;
  return c;
}
template <class T>
__device__ Corners<T> bordered(T y, T x, int64_t height, int64_t width) {
  Corners<T> c;
  if (!(y > -1 && y < height && x > -1 && x < width)) return c;
  const int64_t y0 = static_cast<int64_t>(floor(y)), x0 = static_cast<int64_t>(floor(x));
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
struct Roi {
  int64_t images, c, height, width, ph, pw, ratio, total;
  double scale;
  bool aligned;
};

// The sampling points of a region along one dimension. Point k of bin b is at start + (b * points + k + 0.5)
// * step.
template <class T>
struct Sampled {
  T start, step;
  int64_t points;

  __device__ T at(int64_t bin, int64_t k) const { return start + (bin * points + k + T(0.5)) * step; }
  // The number of points of a bin below `limit`, or up to and including it. The points must be ascending.
  __device__ int64_t before(int64_t bin, T limit, bool and_at) const {
    int64_t low = 0, high = points;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      const T x = at(bin, middle);
      if (x < limit || (and_at && x == limit))
        low = middle + 1;
      else
        high = middle;
    }
    return low;
  }
};
// A longer region, like one that is not finite, gets no points: float32 could not tell its points apart, so
// that many would fall on one pixel.
constexpr double kMaxLength = 2147483648.0;
template <class T>
__device__ Sampled<T> sampled(const Roi& r, T low, T high, int64_t bins) {
  const T shift = r.aligned ? T(0.5) : T(0), scale = T(r.scale);
  Sampled<T> s{low * scale - shift, 0, 0};
  T length = high * scale - shift - s.start;
  if (!r.aligned) length = maximum(length, T(1));
  if (!(fabs(length) <= T(kMaxLength))) return s;
  const T bin = length / bins;
  s.points = r.ratio > 0 ? r.ratio : max(static_cast<int64_t>(ceil(bin)), int64_t(0));
  s.step = s.points ? bin / s.points : T(0);
  return s;
}
// The points [begin, end) of a bin that may be in [-1, size]. Most points of a bin far longer than the image
// are outside.
template <class T>
__device__ void clip(const Roi& r, const Sampled<T>& s, int64_t bin, int64_t size, int64_t& begin,
                     int64_t& end) {
  begin = 0, end = s.points;
  if (r.ratio <= 0 && s.points > 64) begin = s.before(bin, T(-1), false), end = s.before(bin, T(size), true);
}

// One output element: forward reads the points of its bin, backward adds to them. A region with an invalid
// image index gives NaN and no gradient, because raising the CPU's error would require waiting for the GPU.
template <class T, bool backward>
__global__ void roi_kernel(const T* x, const T* rois, T* y, Roi r) {
  GRID_LOOP(i, r.total) {
    const int64_t px = i % r.pw, py = i / r.pw % r.ph, ch = i / r.pw / r.ph % r.c, n = i / r.pw / r.ph / r.c;
    const T* roi = rois + 5 * n;
    if (!(roi[0] > -1 && roi[0] < r.images)) {
      if constexpr (!backward) y[i] = std::numeric_limits<T>::quiet_NaN();
      continue;
    }
    const Sampled<T> rows = sampled(r, roi[2], roi[4], r.ph), columns = sampled(r, roi[1], roi[3], r.pw);
    int64_t top, bottom, left, right;
    clip(r, rows, py, r.height, top, bottom), clip(r, columns, px, r.width, left, right);
    const T share = T(1) / (rows.points && columns.points ? T(rows.points) * T(columns.points) : T(1));
    const int64_t plane = (static_cast<int64_t>(roi[0]) * r.c + ch) * r.height * r.width;
    T sum = 0;
    for (int64_t a = top; a < bottom; ++a)
      for (int64_t b = left; b < right; ++b) {
        const Corners<T> p = clamped<T>(rows.at(py, a), columns.at(px, b), r.height, r.width);
        for (int q = 0; q < 4; ++q) {
          if (!p.inside[q]) continue;
          if constexpr (backward)
            atomicAdd(y + plane + p.at[q], p.weight[q] * x[i] * share);
          else
            sum += p.weight[q] * x[plane + p.at[q]];
        }
      }
    if constexpr (!backward) y[i] = sum * share;
  }
}

Tensor roi_align(const Tensor& x, const Tensor& rois, double spatial_scale, int64_t ph, int64_t pw,
                 int64_t ratio, bool aligned) {
  check_roi_align(x, rois, ph, pw, ratio);
  const OnDevice guard(x);
  const Tensor xd = dense(x), rd = dense(rois), y = fresh(x, {rois.size(0), x.size(1), ph, pw});
  const Roi r{x.size(0), x.size(1), x.size(2), x.size(3), ph, pw, ratio, y.numel(), spatial_scale, aligned};
  if (!r.total) return y;
  wide("roi_align", x, [&](auto t) {
    roi_kernel<decltype(t), false><<<blocks_for(r.total), kThreads, 0, stream_of(x)>>>(
        data<decltype(t)>(xd), data<decltype(t)>(rd), mutable_data<decltype(t)>(y), r);
  });
  check_launch("roi_align");
  return y;
}

Tensor roi_align_backward(const Tensor& dy, const Tensor& rois, std::vector<int64_t> shape,
                          double spatial_scale, int64_t ratio, bool aligned) {
  check_roi_align_backward(dy, rois, shape, ratio);
  const OnDevice guard(dy);
  const Tensor gd = dense(dy), rd = dense(rois);
  Tensor dx = fresh(dy, shape);
  torch::stable::zero_(dx);
  const Roi r{shape[0],   shape[1], shape[2],   shape[3],      dy.size(2),
              dy.size(3), ratio,    dy.numel(), spatial_scale, aligned};
  if (!r.total) return dx;
  wide("roi_align_backward", dy, [&](auto t) {
    roi_kernel<decltype(t), true><<<blocks_for(r.total), kThreads, 0, stream_of(dy)>>>(
        data<decltype(t)>(gd), data<decltype(t)>(rd), mutable_data<decltype(t)>(dx), r);
  });
  check_launch("roi_align_backward");
  return dx;
}

// --------------------------------------------------------------------------- deform_conv2d
struct Deform {
  int64_t n, c, height, width, kh, kw, oh, ow, groups, per_group, sh, sw, ph, pw, dh, dw;
  __host__ __device__ int64_t taps() const { return kh * kw; }
  __host__ __device__ int64_t places() const { return oh * ow; }
};
Deform deform_of(const Tensor& x, const Tensor& offset, const std::vector<int64_t>& kernel,
                 const std::vector<int64_t>& stride, const std::vector<int64_t>& padding,
                 const std::vector<int64_t>& dilation, int64_t groups) {
  return {x.size(0),      x.size(1),      x.size(2),   x.size(3),          kernel[0], kernel[1],
          offset.size(2), offset.size(3), groups,      x.size(1) / groups, stride[0], stride[1],
          padding[0],     padding[1],     dilation[0], dilation[1]};
}
template <class T>
__device__ Corners<T> deform_corners(const Deform& d, const T* o, int64_t k, int64_t p) {
  const T y = static_cast<T>(p / d.ow * d.sh - d.ph + k / d.kw * d.dh) + o[2 * k * d.places() + p];
  const T x = static_cast<T>(p % d.ow * d.sw - d.pw + k % d.kw * d.dw) + o[(2 * k + 1) * d.places() + p];
  return bordered<T>(y, x, d.height, d.width);
}

// Each thread handles the channels of one (sample, group, tap, output pixel).
template <class T>
__global__ void deform_kernel(const T* x, const T* offset, const T* mask, T* out, Deform d, int64_t total) {
  GRID_LOOP(i, total) {
    const int64_t p = i % d.places(), k = i / d.places() % d.taps(), ng = i / d.places() / d.taps();
    const Corners<T> q = deform_corners<T>(d, offset + ng * 2 * d.taps() * d.places(), k, p);
    const T m = mask ? mask[i] : T(1);
    for (int64_t j = 0; j < d.per_group; ++j) {
      const int64_t plane = ng * d.per_group + j;
      const T* v = x + plane * d.height * d.width;
      T sum = 0;
      for (int c = 0; c < 4; ++c)
        if (q.inside[c]) sum += q.weight[c] * v[q.at[c]];
      out[(plane * d.taps() + k) * d.places() + p] = m * sum;
    }
  }
}
template <class T>
__global__ void deform_backward_kernel(const T* g, const T* x, const T* offset, const T* mask, T* dx,
                                       T* doffset, T* dmask, Deform d, int64_t total) {
  GRID_LOOP(i, total) {
    const int64_t p = i % d.places(), k = i / d.places() % d.taps(), ng = i / d.places() / d.taps(),
                  o = ng * 2 * d.taps() * d.places();
    const Corners<T> q = deform_corners<T>(d, offset + o, k, p);
    const T m = mask ? mask[i] : T(1);
    T dots[4] = {0, 0, 0, 0};  // for each corner: the sum over channels of gradient * value
    for (int64_t j = 0; j < d.per_group; ++j) {
      const int64_t plane = ng * d.per_group + j;
      const T grad = g[(plane * d.taps() + k) * d.places() + p];
      for (int c = 0; c < 4; ++c) {
        if (!q.inside[c]) continue;
        const int64_t at = plane * d.height * d.width + q.at[c];
        atomicAdd(dx + at, grad * m * q.weight[c]);
        dots[c] += grad * x[at];
      }
    }
    doffset[o + 2 * k * d.places() + p] = m * ((1 - q.fx) * (dots[2] - dots[0]) + q.fx * (dots[3] - dots[1]));
    doffset[o + (2 * k + 1) * d.places() + p] =
        m * ((1 - q.fy) * (dots[1] - dots[0]) + q.fy * (dots[3] - dots[2]));
    if (dmask)
      dmask[i] = (1 - q.fy) * ((1 - q.fx) * dots[0] + q.fx * dots[1]) +
                 q.fy * ((1 - q.fx) * dots[2] + q.fx * dots[3]);
  }
}

Tensor deform_columns(const Tensor& x, const Tensor& offset, std::optional<Tensor> mask,
                      std::vector<int64_t> kernel, std::vector<int64_t> stride, std::vector<int64_t> padding,
                      std::vector<int64_t> dilation, int64_t groups) {
  check_deform_columns(Checks("deform_columns"), x, offset, mask, {kernel, stride, padding, dilation},
                       groups);
  const OnDevice guard(x);
  const Deform d = deform_of(x, offset, kernel, stride, padding, dilation, groups);
  const Tensor xd = dense(x), od = dense(offset), md = mask.has_value() ? dense(*mask) : od,
               out = fresh(x, {d.n, d.c, d.taps(), d.oh, d.ow});
  const int64_t total = d.n * groups * d.taps() * d.places();
  if (!total) return out;
  wide("deform_columns", x, [&](auto t) {
    using T = decltype(t);
    deform_kernel<T><<<blocks_for(total), kThreads, 0, stream_of(x)>>>(
        data<T>(xd), data<T>(od), mask.has_value() ? data<T>(md) : nullptr, mutable_data<T>(out), d, total);
  });
  check_launch("deform_columns");
  return out;
}

std::tuple<Tensor, Tensor, Tensor> deform_columns_backward(const Tensor& dcolumns, const Tensor& x,
                                                           const Tensor& offset, std::optional<Tensor> mask,
                                                           std::vector<int64_t> kernel,
                                                           std::vector<int64_t> stride,
                                                           std::vector<int64_t> padding,
                                                           std::vector<int64_t> dilation, int64_t groups) {
  check_deform_columns_backward(dcolumns, x, offset, mask, {kernel, stride, padding, dilation}, groups);
  const OnDevice guard(x);
  const Deform d = deform_of(x, offset, kernel, stride, padding, dilation, groups);
  const Tensor xd = dense(x), od = dense(offset), md = mask.has_value() ? dense(*mask) : od,
               gd = dense(dcolumns);
  Tensor dx = fresh_like(x), doffset = fresh_like(offset),
         dmask = mask.has_value() ? fresh_like(*mask) : fresh(x, {0});
  torch::stable::zero_(dx);
  const int64_t total = d.n * groups * d.taps() * d.places();
  if (!total) return {dx, doffset, dmask};
  wide("deform_columns_backward", x, [&](auto t) {
    using T = decltype(t);
    deform_backward_kernel<T><<<blocks_for(total), kThreads, 0, stream_of(x)>>>(
        data<T>(gd), data<T>(xd), data<T>(od), mask.has_value() ? data<T>(md) : nullptr, mutable_data<T>(dx),
        mutable_data<T>(doffset), mask.has_value() ? mutable_data<T>(dmask) : nullptr, d, total);
  });
  check_launch("deform_columns_backward");
  return {dx, doffset, dmask};
}

// --------------------------------------------------------------------------- ctc_greedy_decode
// Whether class a beats class b, as in torch.max: by the greater value, where NaN is the greatest; for equal
// values, by the lower class.
template <class T>
__device__ bool better(T value, int64_t at, T than, int64_t other) {
  const bool nan = value != value, other_nan = than != than;
  return nan || other_nan ? nan && (!other_nan || at < other) : value > than || (value == than && at < other);
}
// The best class of each step of each sample, and its value. One warp handles one row of x.
template <class T>
__global__ void ctc_best_kernel(const T* x, T* values, int64_t* classes, int64_t rows, int64_t c) {
  const int lane = threadIdx.x & 31;
  const int64_t warps = static_cast<int64_t>(gridDim.x) * (blockDim.x >> 5);
  for (int64_t r = blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5); r < rows; r += warps) {
    const T* row = x + r * c;
    int64_t at = min(static_cast<int64_t>(lane), c - 1);
    T best = row[at];
    for (int64_t k = lane + 32; k < c; k += 32)
      if (better(row[k], k, best, at)) best = row[k], at = k;
#pragma unroll
    for (int offset = 16; offset; offset >>= 1) {
      const T other = __shfl_xor_sync(0xffffffffu, best, offset);
      const int64_t place = __shfl_xor_sync(0xffffffffu, at, offset);
      if (better(other, place, best, at)) best = other, at = place;
    }
    if (lane == 0) values[r] = best, classes[r] = at;
  }
}
// One thread handles the steps of a sample in order. It drops blanks (the last class) and repetitions.
template <class T>
__global__ void ctc_collapse_kernel(const T* values, const int64_t* classes, const int64_t* lengths,
                                    int64_t* decoded, T* sums, int64_t steps, int64_t n, int64_t c,
                                    bool merge) {
  GRID_LOOP(i, n) {
    const int64_t length = min(lengths[i], steps);
    int64_t used = 0, before = c - 1;
    T sum = 0;
    for (int64_t s = 0; s < length; ++s) {
      const int64_t at = classes[s * n + i];
      sum -= values[s * n + i];
      if (at != c - 1 && !(merge && s > 0 && at == before)) decoded[i * steps + used++] = at;
      before = at;
    }
    for (; used < steps; ++used) decoded[i * steps + used] = 0;
    sums[i] = sum;
  }
}

std::tuple<Tensor, Tensor> ctc_greedy_decode(const Tensor& log_probs, const Tensor& input_lengths,
                                             bool merge) {
  check_ctc_greedy_decode(log_probs, input_lengths);
  const OnDevice guard(log_probs);
  const Tensor xd = dense(log_probs), ld = dense(input_lengths);
  const int64_t steps = log_probs.size(0), n = log_probs.size(1), c = log_probs.size(2);
  const Tensor decoded = fresh(log_probs, {n, steps}, ScalarType::Long), sums = fresh(log_probs, {n, 1});
  if (!n) return {decoded, sums};
  wide("ctc_greedy_decode", log_probs, [&](auto t) {
    using T = decltype(t);
    const Tensor values = fresh(log_probs, {steps, n});
    const Tensor classes = fresh(log_probs, {steps, n}, ScalarType::Long);
    if (steps)
      ctc_best_kernel<T><<<blocks_for(steps * n * 32), kThreads, 0, stream_of(log_probs)>>>(
          data<T>(xd), mutable_data<T>(values), mutable_data<int64_t>(classes), steps * n, c);
    check_launch("ctc_greedy_decode");
    ctc_collapse_kernel<T><<<static_cast<unsigned>((n + 31) / 32), 32, 0, stream_of(log_probs)>>>(
        data<T>(values), data<int64_t>(classes), data<int64_t>(ld), mutable_data<int64_t>(decoded),
        mutable_data<T>(sums), steps, n, c, merge);
  });
  check_launch("ctc_greedy_decode");
  return {decoded, sums};
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(oneflow, CUDA, m) {
  m.impl("nms_mask", TORCH_BOX(&nms_mask));
  m.impl("roi_align", TORCH_BOX(&roi_align));
  m.impl("roi_align_backward", TORCH_BOX(&roi_align_backward));
  m.impl("deform_columns", TORCH_BOX(&deform_columns));
  m.impl("deform_columns_backward", TORCH_BOX(&deform_columns_backward));
  m.impl("ctc_greedy_decode", TORCH_BOX(&ctc_greedy_decode));
}

}  // namespace oneflow_ext
